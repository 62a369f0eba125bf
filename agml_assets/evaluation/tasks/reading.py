"""From a registry entry to a task's data: read, checked, and compared with what is published.

How a task lies on disk is in its own module.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import polars as pl

from agml_assets.errors import UserError, did_you_mean
from agml_assets.evaluation.tasks.base import TaskData, check, counted, missing_data, named, some
from agml_assets.registry.tasks import TaskEntry, load_plugin, plugin_named

READERS = (
    "beluga", "ecdysis", "fishnet", "folders", "fungiclef", "herbarium19", "imagenet1k", "inat21", "iwildcam",
    "kabr", "mammalnet", "newt", "plankton", "plantnet",
)  # fmt: skip
"""Modules here with a function `read(entry, root) -> TaskData`; `folders` reads any folder-per-class dataset."""

Reader = Callable[[TaskEntry, Path], TaskData]


def read_task(entry: TaskEntry) -> TaskData:
    """Read what a task predicts of which images; no image is opened.

    Returns:
        The examples in a stable order, with notes on what was left out, on classes that only one split has, and on
        numbers that differ from the published ones.

    Raises:
        UserError: Data are missing (it says where they were looked for and how to get them) or damaged, a path
            leads out of the task's folder, or the reader is not known.
    """
    reader = find_reader(entry)
    root = entry.root()
    if not root.is_dir():
        raise missing_data(entry, root, "its folder")
    data = reader(entry, root)
    check(entry, data)
    notes = (*data.notes, *_class_notes(data), *_count_notes(entry, data))
    return TaskData(data.root, data.examples, data.class_names, notes, data.poisonous)


def find_reader(entry: TaskEntry) -> Reader:
    """Return the reader of a task: one of `READERS`, or that of an installed task."""
    if entry.reader in READERS:
        read: Reader = import_module(f"agml_assets.evaluation.tasks.{entry.reader}").read
        return read
    point = plugin_named(entry.reader)
    if point is None:
        raise UserError(
            f"{named(entry)}: there is no reader {entry.reader!r}.{did_you_mean(entry.reader, READERS)} Readers "
            f"are {', '.join(READERS)}, and those of installed tasks (entry points of agml_assets.tasks)."
        )
    plugged: Reader = load_plugin(point).read
    return plugged


def _class_notes(data: TaskData) -> list[str]:
    """Say which classes only one split has: labels are aligned, but these cannot be learned or are not tested."""
    frame = data.examples
    if "labels" in frame.columns or "all" in frame["split"]:
        return []
    seen = {
        split: set(frame.filter((pl.col("split") == split) & (pl.col("label") >= 0))["label"].unique())
        for split in ("train", "test")
    }
    notes = []
    if only := sorted(seen["test"] - seen["train"]):
        names = some(data.class_names[label] for label in only)
        notes.append(
            f"{counted(len(only), 'class', 'classes')} of the test split have no training example: {names}."
        )
    if only := sorted(seen["train"] - seen["test"]):
        names = some(data.class_names[label] for label in only)
        notes.append(f"{counted(len(only), 'class', 'classes')} of the training split are not tested: {names}.")
    return notes


def _count_notes(entry: TaskEntry, data: TaskData) -> list[str]:
    """Say where numbers differ from the published ones, which count images for some tasks and clips for others."""
    notes = []
    for published, splits, what in (
        (entry.n_train, ["train"], "training"),
        (entry.n_test, ["test", "all"], "test"),
    ):
        rows = data.examples.filter(pl.col("split").is_in(splits))
        images = int(rows["images"].list.len().sum())
        if published is not None and published not in (rows.height, images):
            notes.append(f"{published:,} {what} examples are published, {rows.height:,} are here.")
    if entry.n_classes is not None and entry.n_classes != len(data.class_names):
        notes.append(f"{entry.n_classes:,} classes are published, {len(data.class_names):,} are here.")
    return notes
