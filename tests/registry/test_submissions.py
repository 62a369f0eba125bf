"""What an entry of submissions.yaml may say, and what is said where it is wrong."""

import pytest

from agml_assets.errors import UserError
from agml_assets.registry.datasets import load_registry
from agml_assets.registry.submissions import check_keys_are_no_datasets, load_submissions


def load(folder, text):
    file = folder / "submissions.yaml"
    file.write_text(text)
    return load_submissions(file)


def test_the_shipped_registry_compresses_two_sources_in_four_ways_at_several_sizes():
    phases = load_submissions().phases()
    assert set(phases) == {"digits", "sample"}
    for entries in phases.values():
        methods = {entry.compress.method for entry in entries}
        assert methods == {"none", "truncation", "pca", "random_projection", "product_quantisation"}
        for method in methods - {"none"}:
            sizes = [entry.compress.size for entry in entries if entry.compress.method == method]
            assert len(sizes) == len(set(sizes)) >= 3
        assert all(entry.file is None for entry in entries)


def test_paths_start_at_the_files_folder(tmp_path):
    registry = load(tmp_path, "submissions: [{key: a, phase: p, file: a.csv, tasks: labels, exclude: out.txt}]")
    (entry,) = registry.entries
    assert (entry.file, entry.tasks, entry.exclude) == tuple(
        tmp_path / name for name in ("a.csv", "labels", "out.txt")
    )
    assert entry.display_name == "a"


def test_the_environment_names_the_registry(tmp_path, monkeypatch):
    load(tmp_path, "submissions: [{key: a, phase: p, embeddings: digits}]")
    monkeypatch.setenv("AGML_SUBMISSIONS", str(tmp_path / "submissions.yaml"))
    assert load_submissions().keys() == ["a"]


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("{key: a, phase: p}", "give either `file`, or `embeddings`"),
        ("{key: a, phase: p, file: x.csv, embeddings: digits, tasks: t}", "give either `file`, or `embeddings`"),
        ("{key: a, phase: p, file: x.csv}", "a `file` needs `tasks`"),
        ("{key: a, phase: p, embeddings: digits, ids: x}", "`ids` goes with `file`"),
        ("{key: a/b, phase: p, embeddings: digits}", "cannot be a key"),
        ("{key: a, phase: ../p, embeddings: digits}", "cannot be a key"),
        ("{key: a, phase: p, embeddings: ../x}", "neither 'digits' nor the key of a dataset"),
        ("{key: a, phase: p, embeddings: digits, codec: pca}", "codec"),
        ("{key: a, phase: p, embeddings: digits, compress: {method: zip}}", "`compress`"),
        ("{key: a, phase: p, embeddings: digits, bytes_per_embedding: 0}", "`bytes_per_embedding`"),
        ("{key: a, embeddings: digits}", "`phase`"),
        ("text", "must be a mapping with a `key`"),
    ],
)
def test_a_wrong_entry_is_named_with_what_is_wrong(tmp_path, entry, told):
    with pytest.raises(UserError) as caught:
        load(tmp_path, f"submissions: [{entry}]")
    assert "entry 1" in caught.value.message
    assert told in caught.value.message


def test_keys_that_differ_in_case_alone_are_told(tmp_path):
    with pytest.raises(UserError, match="the same key, 'a' and 'A'"):
        load(
            tmp_path,
            "submissions: [{key: a, phase: p, embeddings: digits}, {key: A, phase: p, embeddings: digits}]",
        )


def test_an_unknown_key_is_answered_with_those_like_it(tmp_path):
    registry = load(tmp_path, "submissions: [{key: digits-pca, phase: p, embeddings: digits}]")
    with pytest.raises(UserError, match="digits-pca"):
        registry.get("digits-pcA")


def test_a_key_that_a_dataset_has_as_well_is_refused(tmp_path):
    found = load(tmp_path, "submissions:\n  - {key: Corn, phase: p, embeddings: digits}\n")
    check_keys_are_no_datasets(load_submissions(), load_registry())
    (tmp_path / "datasets.yaml").write_text("datasets: [{name: other/corn}]")
    with pytest.raises(UserError, match=r"have: Corn \(case does not count\)"):
        check_keys_are_no_datasets(found, load_registry(tmp_path / "datasets.yaml"))
