"""An artifact is current exactly when code, settings, source and inputs are those that made it."""

from dataclasses import replace

import pytest

from agml_assets.errors import UserError
from agml_assets.lineage import Artifact, Verdict, judge
from agml_assets.registry.datasets import DatasetEntry
from agml_assets.settings import Settings
from agml_assets.store import ArtifactStore
from agml_assets.workspace import DatasetWorkspace, Making, making

INDEX = Artifact("dataset/index", ".json", settings=("max_image_pixels",), reads_source=True)
SPLITS = Artifact("dataset/splits", ".json", inputs=(INDEX.key,), settings=("split_seed",))
METRIC = Artifact("quality/metric", ".json", inputs=(SPLITS.key,))
OTHER = Artifact("quality/other", ".json", inputs=(INDEX.key,))
GRAPH = (INDEX, SPLITS, METRIC, OTHER)


@pytest.fixture
def dataset(tmp_path):
    return DatasetWorkspace(DatasetEntry(name="beans"), Settings(), ArtifactStore(tmp_path))


def make(dataset, artifact, value):
    with making(dataset, artifact) as work:
        for upstream in GRAPH:
            if upstream.key in artifact.inputs:
                work.read(upstream)
        return work.write(value, source_digest="source 1" if artifact.reads_source else None)


@pytest.fixture
def made(dataset):
    for number, artifact in enumerate(GRAPH):
        make(dataset, artifact, {"n": number})
    return dataset


def states(dataset, graph=GRAPH, settings=None, source="source 1"):
    verdicts = judged(dataset, graph, settings, source)
    return [verdicts[artifact.key].state for artifact in graph]


def judged(dataset, graph=GRAPH, settings=None, source="source 1"):
    by_key = {artifact.key: artifact for artifact in graph}
    return judge(dataset.store, dataset.key, by_key, settings or dataset.settings, lambda: source)


def test_before_anything_is_made_all_is_missing(dataset):
    assert states(dataset) == ["missing"] * 4


def test_what_was_just_made_is_current(made):
    assert set(judged(made).values()) == {Verdict("current")}


def test_making_the_same_again_keeps_everything_after_it_current(made):
    make(made, INDEX, {"n": 0})
    assert states(made) == ["current"] * 4


def test_other_code_makes_it_and_all_after_it_stale_and_nothing_else(made):
    graph = (INDEX, replace(SPLITS, code_version="2"), METRIC, OTHER)
    assert states(made, graph) == ["current", "stale", "stale", "current"]
    assert judged(made, graph)[SPLITS.key].reason == "made by code version 1, now 2"
    assert judged(made, graph)[METRIC.key].reason == "dataset/splits is stale"


def test_another_setting_makes_what_depends_on_it_stale(made):
    settings = Settings(split_seed=7)
    assert states(made, settings=settings) == ["current", "stale", "stale", "current"]
    assert judged(made, settings=settings)[SPLITS.key].reason == "made with split_seed = 42, now 7"


def test_a_setting_that_nothing_depends_on_changes_nothing(made):
    assert states(made, settings=Settings(cv_folds=9)) == ["current"] * 4


def test_another_source_makes_everything_stale(made):
    assert states(made, source="source 2") == ["stale"] * 4
    assert judged(made, source="source 2")[INDEX.key].reason == "the source has changed"


def test_another_content_upstream_makes_what_was_made_from_the_old_one_stale(made):
    make(made, SPLITS, {"n": 100})
    assert states(made) == ["current", "current", "stale", "current"]
    assert judged(made)[METRIC.key].reason == "dataset/splits has changed since"
    make(made, METRIC, {"n": 2})
    assert states(made) == ["current"] * 4


def test_a_failed_try_is_told_with_its_error_until_one_succeeds(made):
    def fail():
        with making(made, SPLITS, run_id="r1"):
            raise UserError("The folder beans/leaf is empty.")

    with pytest.raises(UserError):
        fail()
    assert states(made) == ["current", "failed", "stale", "current"]
    assert judged(made)[SPLITS.key].reason == "The folder beans/leaf is empty."
    make(made, SPLITS, {"n": 1})
    assert states(made) == ["current"] * 4


def test_a_lost_file_is_missing_and_what_was_made_from_it_stale(made):
    made.store.path("beans", SPLITS.file).unlink()
    assert states(made) == ["current", "missing", "stale", "current"]
    assert judged(made)[METRIC.key].reason == "dataset/splits is missing"


def test_what_was_removed_to_save_space_still_vouches(made):
    made.store.remove("beans", SPLITS.file)
    assert states(made) == ["current"] * 4
    with pytest.raises(UserError, match="beans.*dataset/splits was removed to save space"):
        made.read(SPLITS)


def test_the_source_is_asked_at_most_once_and_only_if_needed(made):
    asked = []
    by_key = {a.key: a for a in (INDEX, replace(INDEX, key="dataset/pixels"))}
    judge(made.store, "beans", by_key, made.settings, lambda: asked.append(1) or "source 1")
    assert len(asked) == 1
    judge(made.store, "beans", {}, made.settings, lambda: pytest.fail("asked"))


def test_reading_what_was_not_declared_is_refused(made):
    with pytest.raises(ValueError, match="reads quality/other without declaring it"):
        Making(made, SPLITS).read(OTHER)


def test_reading_what_is_not_there_says_how_to_make_it(dataset):
    with pytest.raises(UserError, match="'beans'.*dataset/splits is not in the store.*materialize dataset/splits"):
        dataset.read(SPLITS)
