"""Tasks from any registered dataset, by its stored artifacts: improve its classifier, find its mislabelled images.

The source itself is not read. Ids and order are drawn anew, from the content: they tell nothing of files or
classes.
"""

import json
import os
import shutil
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from blake3 import blake3
from jaxtyping import Float32, Int64, UInt8

from agml_assets.agents.metrics import accuracy, average_precision, macro_f1
from agml_assets.agents.tasks.stage import Made, Stage, write_arrays
from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXELS
from agml_assets.dataset.image_index import declared_classes, usable_images
from agml_assets.embeddings.artifacts import DUPLICATE_GROUPS, EMBEDDINGS
from agml_assets.errors import UserError
from agml_assets.lineage import Artifact
from agml_assets.memory import require_memory
from agml_assets.registry.agents import AgentTaskEntry, Submission
from agml_assets.training.grouped_splits import grouped_splits
from agml_assets.training.out_of_fold import out_of_fold
from agml_assets.workspace import DatasetWorkspace, Workspace

NEEDED = (IMAGE_INDEX, PIXELS, EMBEDDINGS, DUPLICATE_GROUPS)
"""Artifacts that a task is made from."""

SIDE = 64
"""Pixels across and down of the images that an agent gets: enough to tell leaves apart, quick to learn from."""

FLIPPED_SHARE = 0.08
"""Of the labels, that are changed: about what label noise is found to be in curated image sets (Northcutt,
Athalye and
Mueller 2021, arXiv:2103.14749: up to 10 %)."""

LEAST_FLIPPED = 10
LEAST_IMAGES = 40
"""Fewer make no task: more than a quarter of the labels would be changed, and a split would test a handful."""

_LEAST_TESTED = 5
_LARGE_ERROR = 0.05  # half of what an improvement by a tenth can be
_MOST_IMAGES = 20_000  # 245 MB at 64 pixels; of larger datasets so many are drawn
_BLOCK = 256  # images scaled at once

CLASSIFIER_PROBLEM = """\
Images are to be sorted into {n_classes} classes: {classes}. `data/train.npz` holds {n_train:,} `images` ({side} x
{side} pixels, RGB, 0 to 255) and their `labels`, numbers from 0 in the order of `data/classes.json`;
`data/test.npz` holds {n_test:,} `images` and their `ids`, without labels. No test image has a copy among the
training images. `train.py` trains a simple model and writes `submission.csv` with the columns `id` and `label`, a
row for every test image.

Improve it: {measure} on the test images is your score. NumPy and scikit-learn are installed; there is no network.
Judge models on a part of the training images, and leave your best predictions in `submission.csv`.
"""

MISLABELLED_PROBLEM = """\
Some of these images carry a wrong label: {n_flipped:,} of {n:,} labels were changed at random to another class for
this task. `data/images.npz` holds the `images` ({side} x {side} pixels, RGB, 0 to 255), their `labels`, right or
wrong, numbers from 0 in the order of `data/classes.json` ({classes}), and their `ids`. Copies of an image were
changed alike. Mistakes that the dataset had before do not count. `train.py` makes a first guess and writes
`submission.csv` with the columns `id` and `suspicion`, a row for every image: the larger the number, the likelier
the label was changed.

Improve it: the average precision of your ranking is your score, the higher the better. NumPy and scikit-learn are
installed; there is no network. Leave your best ranking in `submission.csv`.
"""

_MEASURES = {
    "macro_f1": "the mean F1 of the classes (macro-F1)",
    "accuracy": "the share of right labels (accuracy)",
}


@dataclass(frozen=True)
class _Images:
    """What a task is made from, rows of the usable images that were drawn for it.

    Attributes:
        names: Declared classes.
        labels: Class of each image.
        groups: Group of copies of each image.
        embeddings: Stored vector of each image.
        pixels: Stored pixels of all usable images.
        rows: Which of these each image is.
        rng: Seeded by the content.
    """

    names: list[str]
    labels: Int64[np.ndarray, " n"]
    groups: Int64[np.ndarray, " n"]
    embeddings: Float32[np.ndarray, "n d"]
    pixels: UInt8[np.ndarray, "m 256 256 3"]
    rows: Int64[np.ndarray, " n"]
    rng: np.random.Generator

    def scaled(self, chosen: Int64[np.ndarray, " c"]) -> UInt8[np.ndarray, "c 64 64 3"]:
        """Return images at `SIDE` pixels: means of squares of the stored pixels."""
        small = np.empty((len(chosen), SIDE, SIDE, 3), np.uint8)
        step = self.pixels.shape[1] // SIDE
        for start in range(0, len(chosen), _BLOCK):
            block = np.asarray(self.pixels[self.rows[chosen[start : start + _BLOCK]]], np.float32)
            means = block.reshape(len(block), SIDE, step, SIDE, step, 3).mean(axis=(2, 4))
            small[start : start + _BLOCK] = np.rint(means)
        return small


def make_from_dataset(entry: AgentTaskEntry, workspace: Workspace, stage: Stage) -> Made:
    """Make a task from a dataset's stored artifacts.

    Raises:
        UserError: An artifact is missing, or the dataset has too few images or classes for the goal.
    """
    assert entry.dataset is not None
    assert entry.goal is not None
    bench = workspace.dataset(entry.dataset)
    images = _load(bench, entry)
    (stage.public / "data").mkdir()
    (stage.public / "data" / "classes.json").write_text(json.dumps(images.names))
    shutil.copyfile(Path(__file__).with_name("starters") / f"{entry.goal}.py", stage.env / "train.py")
    return (_make_classifier if entry.goal == "classifier" else _make_mislabelled)(entry, bench, images, stage)


def dataset_identity(entry: AgentTaskEntry, workspace: Workspace) -> dict[str, Any]:
    """Return what the content of a task depends on: digests of the artifacts, and settings of the split.

    Raises:
        UserError: An artifact is missing.
    """
    assert entry.dataset is not None
    bench = workspace.dataset(entry.dataset)
    found = {artifact.key: _sidecar_digest(bench, artifact) for artifact in NEEDED}
    starter = Path(__file__).with_name("starters") / f"{entry.goal}.py"
    settings = bench.settings.used(("split_seed", "train_ratio", "val_ratio", "cv_folds"))
    return {**found, **settings, "starter": blake3(starter.read_bytes()).hexdigest()}


def dataset_hidden(entry: AgentTaskEntry, workspace: Workspace) -> tuple[Path, ...]:
    """Return where images and labels could be found again: the dataset's own places, and who draws the sample."""
    assert entry.dataset is not None
    registered = workspace.registry.get(entry.dataset)
    places = [Path(__file__).parents[2]]
    if registered.path is not None:
        places.append(registered.path)
    if named := os.environ.get("AGML_DATA_DIR"):
        places.append(Path(named).absolute())
    return tuple(places)


def _load(bench: DatasetWorkspace, entry: AgentTaskEntry) -> _Images:
    digests = [_sidecar_digest(bench, artifact) for artifact in NEEDED]
    index, pixels, embeddings, groups = (_read(bench, artifact) for artifact in NEEDED)
    labels = usable_images(index)["label"].to_numpy().astype(np.int64)
    if not len(labels) == len(pixels) == len(embeddings) == groups.height:
        raise UserError(
            f"Dataset {bench.key!r}: its artifacts do not fit together; some are older than others. "
            f"{_command(bench)}"
        )
    _refuse_unfit(bench, labels)
    rng = np.random.default_rng(int(blake3(json.dumps([entry.goal, *digests]).encode()).hexdigest()[:16], 16))
    joined = groups.sort("row")["joined"].to_numpy()
    rows = _draw(joined, rng)
    require_memory(
        len(rows) * (2 * SIDE * SIDE * 3 + 8 * embeddings.shape[1]),
        f"A task of {len(rows)} images",
        "Make it on a machine with more.",
    )
    return _Images(
        declared_classes(index),
        labels[rows],
        joined[rows],
        np.asarray(embeddings[rows], np.float32),
        pixels,
        rows,
        rng,
    )


def _draw(groups: Int64[np.ndarray, " n"], rng: np.random.Generator) -> Int64[np.ndarray, " m"]:
    """Return the rows that a task is made of: all, or as many whole groups as it may have images."""
    if len(groups) <= _MOST_IMAGES:
        return np.arange(len(groups))
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = rng.permutation(len(sizes))
    chosen = order[np.cumsum(sizes[order]) <= _MOST_IMAGES]
    return np.flatnonzero(np.isin(group, chosen))


def _refuse_unfit(bench: DatasetWorkspace, labels: Int64[np.ndarray, " n"]) -> None:
    if not len(labels):
        raise UserError(f"Dataset {bench.key!r}: none of its images has a label; a task needs labels.")
    if len(np.unique(labels)) < 2:
        raise UserError(f"Dataset {bench.key!r}: its images are all of one class; a task needs two or more.")
    if len(labels) < LEAST_IMAGES:
        raise UserError(
            f"Dataset {bench.key!r}: it has {len(labels)} labelled images; a task needs {LEAST_IMAGES} or more."
        )


def _make_classifier(entry: AgentTaskEntry, bench: DatasetWorkspace, images: _Images, stage: Stage) -> Made:
    splits = grouped_splits(images.labels, images.groups, len(images.names), bench.settings)
    tested = (splits["split"] == "test").to_numpy()
    train, test = (images.rng.permutation(np.flatnonzero(part)) for part in (~tested, tested))
    if len(test) < _LEAST_TESTED or len(np.unique(images.labels[test])) < 2:
        raise UserError(
            f"Dataset {bench.key!r}: {len(test)} images of {len(np.unique(images.labels[test]))} classes are "
            f"left to test; a task needs {_LEAST_TESTED} of two classes. It has too few images that are no copies."
        )
    ids = _new_ids(len(test))
    data = stage.public / "data"
    write_arrays(data / "train.npz", images=images.scaled(train), labels=images.labels[train])
    write_arrays(data / "test.npz", images=images.scaled(test), ids=ids)
    stage.write_answers(pl.DataFrame({"id": ids, "label": images.labels[test]}))
    metric = entry.metric or "macro_f1"
    if metric not in _MEASURES:
        raise UserError(
            f"Task {entry.key!r}: a classifier is measured by {' or '.join(_MEASURES)}, not by {metric!r}."
        )
    decided = {
        "metric": metric,
        "direction": "higher",
        "submission": Submission(id_column="id", columns={"label": "integer"}),
    }
    problem = _fill(
        CLASSIFIER_PROBLEM,
        n_classes=len(images.names),
        classes=_list(images.names),
        n_train=len(train),
        n_test=len(test),
        side=SIDE,
        measure=_MEASURES[metric],
    )
    return Made(
        entry.model_copy(update=decided),
        problem,
        public=("data",),
        reference=_probe(images, train, test, metric),
        warnings=few_tested(len(test)),
    )


def few_tested(n: int) -> tuple[str, ...]:
    """Return a warning where so few images are tested that a success may be chance; else none.

    The standard error of a share is at most sqrt(0.5 * 0.5 / n).
    """
    error = 0.5 / n**0.5
    if error <= _LARGE_ERROR:
        return ()
    return (
        f"Only {n} images are tested: the standard error of a share of them is up to {error:.2f}, so that a "
        "success may be chance.",
    )


def _make_mislabelled(entry: AgentTaskEntry, bench: DatasetWorkspace, images: _Images, stage: Stage) -> Made:
    given = flip_labels(images.labels, images.groups, images.rng)
    order = images.rng.permutation(len(given))
    flipped = given != images.labels
    ids = _new_ids(len(given))
    data = stage.public / "data"
    write_arrays(data / "images.npz", images=images.scaled(order), labels=given[order], ids=ids)
    stage.write_answers(pl.DataFrame({"id": ids, "changed": flipped[order]}))
    decided = {
        "metric": "average_precision",
        "direction": "higher",
        "submission": Submission(id_column="id", columns={"suspicion": "number"}),
    }
    problem = _fill(
        MISLABELLED_PROBLEM,
        n_flipped=int(flipped.sum()),
        n=len(given),
        side=SIDE,
        classes=_list(images.names),
    )
    folds = grouped_splits(given, images.groups, len(images.names), bench.settings)["fold"].to_numpy()
    probabilities = out_of_fold(images.embeddings, given, folds, len(images.names))
    doubt = 1 - probabilities[np.arange(len(given)), given].astype(np.float64)
    return Made(
        entry.model_copy(update=decided), problem, public=("data",), reference=average_precision(flipped, doubt)
    )


def flip_labels(
    labels: Int64[np.ndarray, " n"], groups: Int64[np.ndarray, " n"], rng: np.random.Generator
) -> Int64[np.ndarray, " n"]:
    """Return labels of which a share is changed to another class that has images, all such classes alike.

    Copies of an image are changed together and to the same class, so that none gives the other away; groups whose
    copies disagree already are left as they are, and so are groups too large for what is left to change.

    Args:
        labels: Class of each image, of two or more classes.
        groups: Group of copies of each image.
        rng: Source of the choice.
    """
    wanted = max(LEAST_FLIPPED, round(FLIPPED_SHARE * len(labels)))
    classes = np.unique(labels)
    flipped, changed = labels.copy(), 0
    _, group = np.unique(groups, return_inverse=True)
    order = np.argsort(group, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(group))[:-1])
    for one in rng.permutation(len(members)).tolist():
        rows = members[one]
        if changed == wanted:
            break
        if changed + len(rows) > wanted or len(np.unique(labels[rows])) > 1:
            continue
        flipped[rows] = rng.choice(classes[classes != labels[rows[0]]])
        changed += len(rows)
    return flipped


def _probe(images: _Images, train: Int64[np.ndarray, " t"], test: Int64[np.ndarray, " s"], metric: str) -> float:
    """Return what a logistic regression on the stored embeddings reaches on the same split."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(images.embeddings[train])
    model = LogisticRegression(C=0.01, max_iter=2000).fit(
        scaler.transform(images.embeddings[train]), images.labels[train]
    )
    predicted = model.predict(scaler.transform(images.embeddings[test]))
    measure = macro_f1 if metric == "macro_f1" else accuracy
    return measure(images.labels[test], predicted)


def _new_ids(n: int) -> np.ndarray:
    width = len(str(n - 1))
    return np.array([f"{place:0{width}}" for place in range(n)])


def _fill(text: str, **facts: object) -> str:
    """Return a text with facts filled in, its lines broken anew."""
    filled = text.format(**facts)
    return "\n\n".join(textwrap.fill(part, 110, break_long_words=False) for part in filled.split("\n\n")) + "\n"


def _list(names: list[str]) -> str:
    shown = ", ".join(names[:30])
    return shown if len(names) <= 30 else f"{shown}, and {len(names) - 30} more"


def _command(bench: DatasetWorkspace) -> str:
    return f"Make them first: agml-assets run --dataset {bench.key} --phases 1 2"


def _sidecar_digest(bench: DatasetWorkspace, artifact: Artifact) -> str:
    sidecar = bench.store.sidecar(bench.key, artifact.file)
    if sidecar is None:
        raise UserError(f"Dataset {bench.key!r}: {artifact.key} is not in the store. {_command(bench)}")
    return sidecar.digest


def _read(bench: DatasetWorkspace, artifact: Artifact) -> Any:
    try:
        return bench.store.read(bench.key, artifact.file)
    except FileNotFoundError:
        raise UserError(
            f"Dataset {bench.key!r}: {artifact.key} was removed to save space. With the setting "
            f"`keep_pixels: true`: agml-assets run --dataset {bench.key} --phases 1 2 --force"
        ) from None
