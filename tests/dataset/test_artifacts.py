"""What makes the artifacts of a source stale."""

import runpy

import pytest

from agml_assets.dataset import artifacts, decode
from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXEL_HASHES, PIXELS, SPLITS
from agml_assets.lineage import judge
from agml_assets.registry.datasets import DatasetEntry
from agml_assets.settings import Settings
from agml_assets.store import ArtifactStore
from agml_assets.workspace import DatasetWorkspace, Making

MADE = (IMAGE_INDEX, PIXEL_HASHES, PIXELS, SPLITS)


@pytest.fixture
def bench(tmp_path):
    """A dataset whose artifacts hold nothing, with true sidecars."""
    bench = DatasetWorkspace(DatasetEntry(name="beans"), Settings(), ArtifactStore(tmp_path))
    for artifact in MADE:
        inputs = {key: bench.sidecar(IMAGE_INDEX).digest for key in artifact.inputs}
        work = Making(bench, artifact, inputs=inputs)
        (file := tmp_path / "value").touch()
        work.write(file, source_digest="source")
    return bench


def stale(bench, known=artifacts.ARTIFACTS, **settings):
    by_key = {artifact.key: artifact for artifact in known if artifact.key in {made.key for made in MADE}}
    verdicts = judge(bench.store, bench.key, by_key, Settings(**settings), lambda: "source")
    return {key for key, verdict in verdicts.items() if verdict.state == "stale"}


def test_another_decode_policy_makes_everything_that_was_decoded_stale(bench, monkeypatch):
    assert stale(bench) == set()
    monkeypatch.setattr(decode, "POLICY_VERSION", "another")
    known = runpy.run_path(artifacts.__file__)["ARTIFACTS"]
    assert stale(bench, known) == {artifact.key for artifact in MADE}


def test_a_lower_limit_of_unreadable_images_is_judged_again(bench):
    assert stale(bench, max_unreadable_pct=0.5) == {IMAGE_INDEX.key, SPLITS.key}


def test_another_split_recipe_is_judged_again_even_where_no_split_changes(bench):
    assert stale(bench, split_recipe="native") == {SPLITS.key}
