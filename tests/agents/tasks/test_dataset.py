"""Tasks from a dataset's stored artifacts: copies stay together, answers apart, and nothing gives them away."""

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from agml_assets.agents.scoring import judge
from agml_assets.agents.submission import read_answers
from agml_assets.agents.tasks.dataset import FLIPPED_SHARE, LEAST_FLIPPED, NEEDED, few_tested, flip_labels
from agml_assets.agents.tasks.prepare import open_task, prepare_task
from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXEL_HASHES, PIXELS
from agml_assets.embeddings.artifacts import DUPLICATE_GROUPS, EMBEDDINGS, NEIGHBORS
from agml_assets.errors import UserError
from agml_assets.registry.agents import load_agents
from agml_assets.registry.datasets import DatasetRegistry
from agml_assets.settings import Settings
from agml_assets.workspace import Workspace, making
from tests.report.measured import CLASSES, LABELS_OF_ROWS, N, measure, open_dataset

PYTHON = Path(sys.executable)
MADE = (IMAGE_INDEX, PIXEL_HASHES, PIXELS, EMBEDDINGS, NEIGHBORS, DUPLICATE_GROUPS)


def workspace_of(bench):
    return Workspace(DatasetRegistry((bench.entry,)), Settings(), bench.store)


def prepare(bench, goal, **manifest):
    entry = load_agents().task(f"{bench.key}__{goal}").model_copy(update=manifest)
    return prepare_task(entry, workspace_of(bench), python=PYTHON)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """Forty images of three classes, the last a copy of the first, of another class."""
    found = open_dataset(tmp_path_factory.mktemp("tasks"))
    measure(found, *MADE)
    return found


@pytest.fixture(scope="module")
def classifier(bench):
    return prepare(bench, "classifier")


@pytest.fixture(scope="module")
def mislabelled(bench):
    return prepare(bench, "mislabelled")


def rows_of(bench, images):
    """Return which image of the dataset each of these is.

    The invented ones all differ, and are made of squares of 32 pixels: means of 4 x 4 are every fourth pixel.
    """
    pixels = np.asarray(bench.store.read(bench.key, PIXELS.file))
    known = {row.tobytes(): place for place, row in enumerate(pixels[:, ::4, ::4])}
    return [known[image.tobytes()] for image in images]


def test_a_classifiers_images_are_those_of_the_dataset_with_their_labels(bench, classifier):
    data = classifier.public["data"]
    train, test = np.load(data / "train.npz"), np.load(data / "test.npz")
    rows = rows_of(bench, train["images"])
    assert train["labels"].tolist() == LABELS_OF_ROWS[rows].tolist()
    tested = rows_of(bench, test["images"])
    assert read_answers(classifier)["label"].to_list() == LABELS_OF_ROWS[tested].tolist()
    assert sorted(rows + tested) == list(range(N))
    assert rows != sorted(rows)
    assert test.files == ["images", "ids"]
    assert json.loads((data / "classes.json").read_text()) == list(CLASSES)


def test_a_task_of_few_test_images_warns_that_success_may_be_chance(classifier, mislabelled):
    n = len(read_answers(classifier))
    assert classifier.entry.warnings == few_tested(n)
    assert few_tested(25) == (
        "Only 25 images are tested: the standard error of a share of them is up to 0.10, so that a success may be "
        "chance.",
    )
    assert (few_tested(100), len(few_tested(99))) == ((), 1)
    assert mislabelled.entry.warnings == ()


def test_copies_never_straddle_the_parts(tmp_path):
    bench = open_dataset(tmp_path)
    measure(bench, *MADE)
    # Eight groups of five copies.
    groups = np.repeat(np.arange(8) * 5, 5)
    with making(bench, DUPLICATE_GROUPS) as work:
        for key in DUPLICATE_GROUPS.inputs:
            work.read({PIXEL_HASHES.key: PIXEL_HASHES, NEIGHBORS.key: NEIGHBORS}[key])
        names = ("row", "exact", "near", "joined")
        work.write(pl.DataFrame({n: np.arange(N) if n == "row" else groups for n in names}))
    task = prepare(bench, "classifier")
    train, test = (np.load(task.public["data"] / f"{part}.npz")["images"] for part in ("train", "test"))
    assert not set(groups[rows_of(bench, train)]) & set(groups[rows_of(bench, test)])


def run_starter(task, tmp_path, monkeypatch):
    (tmp_path / "data").symlink_to(task.public["data"])
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(task.env / "train.py"), run_name="__main__")
    return judge(task, tmp_path)


def test_the_starters_run_and_are_scored(classifier, mislabelled, tmp_path, monkeypatch):
    for task in (classifier, mislabelled):
        place = tmp_path / task.key
        place.mkdir()
        verdict = run_starter(task, place, monkeypatch)
        assert verdict.score is not None, verdict.reason
        assert 0 <= verdict.score <= 1
        assert task.reference > verdict.score, "the images are noise, and the embeddings tell the classes"
        assert task.entry.baseline is None


def test_a_classifier_is_measured_as_its_manifest_says(bench, classifier):
    assert classifier.entry.metric == "macro_f1"
    assert "macro-F1" in classifier.problem
    by_accuracy = prepare(bench, "classifier", key="other", metric="accuracy")
    assert "accuracy" in by_accuracy.problem
    with pytest.raises(UserError, match="measured by macro_f1 or accuracy"):
        prepare(bench, "classifier", key="third", metric="mean_dice")


def test_planted_mistakes_are_known_and_nothing_else_differs(bench, mislabelled):
    found = np.load(mislabelled.public["data"] / "images.npz")
    assert found.files == ["images", "labels", "ids"]
    rows = np.array(rows_of(bench, found["images"]))
    true = LABELS_OF_ROWS[rows]
    changed = read_answers(mislabelled)["changed"].to_numpy()
    assert read_answers(mislabelled)["id"].to_list() == found["ids"].tolist()
    # The copies are told apart by their labels alone, and disagree: neither is changed.
    apart = ~np.isin(rows, [0, N - 1])
    assert ((found["labels"] != true) == changed)[apart].all()
    assert changed.sum() == LEAST_FLIPPED
    assert not changed[~apart].any()
    assert f"{LEAST_FLIPPED} of {N} labels" in mislabelled.problem


def test_copies_are_changed_alike_and_to_one_class():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 150, 400)
    labels = groups % 4
    labels[groups == 7] = rng.integers(0, 4, (groups == 7).sum())
    flipped = flip_labels(labels, groups, np.random.default_rng(1))
    assert (flipped != labels).sum() == round(FLIPPED_SHARE * 400)
    for group in np.unique(groups):
        same = groups == group
        assert len(set(flipped[same])) == len(set(labels[same]))
    assert (flipped[groups == 7] == labels[groups == 7]).all()


def test_changed_labels_are_of_any_other_class():
    labels = np.repeat([0, 2, 5], 1000)
    flipped = flip_labels(labels, np.arange(3000), np.random.default_rng(0))
    changed = flipped != labels
    for given in (0, 2, 5):
        now = flipped[changed & (labels == given)]
        others = {0, 2, 5} - {given}
        assert set(now) == others
        assert 0.3 < np.mean(now == min(others)) < 0.7


def test_the_same_content_gives_the_same_task(bench, mislabelled, tmp_path):
    again = open_dataset(tmp_path)
    measure(again, *MADE)
    assert prepare(again, "mislabelled").digest == mislabelled.digest


def test_nothing_public_holds_a_name_of_the_source(classifier, mislabelled):
    for task in (classifier, mislabelled):
        for file in task.public["data"].iterdir():
            assert b"source_row" not in file.read_bytes()
            assert ".png" not in file.name
        ids = read_answers(task)["id"].to_list()
        assert ids == [f"{place:0{len(ids[0])}}" for place in range(len(ids))]


def test_the_package_and_the_images_are_hidden(tmp_path):
    import agml_assets

    (tmp_path / "images").mkdir()
    bench = open_dataset(tmp_path / "results", path=tmp_path / "images")
    measure(bench, *MADE)
    hidden = prepare(bench, "classifier").hidden
    assert Path(agml_assets.__file__).parent in hidden
    assert tmp_path / "images" in hidden


def test_a_missing_artifact_names_the_command_that_makes_it(tmp_path):
    bench = open_dataset(tmp_path)
    measure(bench, *MADE[:3])
    with pytest.raises(UserError, match="agml-assets run --dataset beans --phases 1 2"):
        prepare(bench, "classifier")


def test_a_new_artifact_asks_for_another_preparation(tmp_path):
    bench = open_dataset(tmp_path)
    measure(bench, *MADE)
    task = prepare(bench, "mislabelled")
    entry = load_agents().task("beans__mislabelled")
    assert open_task(entry, workspace_of(bench)) == task
    with making(bench, EMBEDDINGS) as work:
        work.write(np.asarray(bench.store.read(bench.key, EMBEDDINGS.file))[:, ::-1].copy())
    with pytest.raises(UserError, match="'beans__mislabelled': its source or its manifest has changed"):
        open_task(entry, workspace_of(bench))


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([0] * N, "all of one class"),
        ([None] * N, "none of its images has a label"),
        ([0, 1] * 10 + [None] * 20, "has 20 labelled images; a task needs 40"),
    ],
)
@pytest.mark.parametrize("goal", ["classifier", "mislabelled"])
def test_a_dataset_that_makes_no_task_is_refused(tmp_path, labels, said, goal):
    bench = open_dataset(tmp_path)
    measure(bench, *MADE)
    usable = [place for place, label in enumerate(labels) if label is not None]
    rows = {place: row for row, place in enumerate(usable)}
    index = bench.store.read(bench.key, IMAGE_INDEX.file)[:N].with_columns(
        label=pl.Series(labels, dtype=pl.Int64), row=pl.Series([rows.get(i) for i in range(N)], dtype=pl.Int64)
    )
    replaced = {
        IMAGE_INDEX: index,
        PIXELS: np.asarray(bench.store.read(bench.key, PIXELS.file))[usable],
        EMBEDDINGS: np.asarray(bench.store.read(bench.key, EMBEDDINGS.file))[usable],
        DUPLICATE_GROUPS: pl.DataFrame(
            {name: np.arange(len(usable)) for name in ("row", "exact", "near", "joined")}
        ),
    }
    assert set(replaced) == set(NEEDED)
    for artifact, value in replaced.items():
        with making(bench, artifact) as work:
            work.write(value)
    with pytest.raises(UserError, match=f"Dataset 'beans': .*{said}"):
        prepare(bench, goal)
