from itertools import islice

from agml_assets.dataset import sample
from agml_assets.dataset.sources import open_source
from agml_assets.registry.datasets import DatasetEntry


def test_the_sample_needs_no_files_and_starts_anywhere():
    source = open_source(DatasetEntry(name="sample", source="sample"))
    info = source.info()
    assert (info.class_names, info.num_rows) == (sample.CLASS_NAMES, sample.NUM_IMAGES)
    examples = list(islice(source.examples(start=290), 3))
    assert [e.source_row for e in examples] == [290, 291, 292]
    assert all(isinstance(e.image, bytes) and e.file.startswith(info.class_names[e.label]) for e in examples)
    assert len(list(source.examples(start=299))) == 1


def test_its_fingerprint_changes_with_the_code_that_draws(monkeypatch, tmp_path):
    source = open_source(DatasetEntry(name="sample", source="sample"))
    before = source.info().fingerprint
    changed = tmp_path / "sample.py"
    changed.write_text("# drawn otherwise")
    monkeypatch.setattr(sample, "__file__", str(changed))
    assert source.info().fingerprint != before
