"""NeWT: 164 yes-or-no tasks on photos of nature, each with its own training and test images.

On disk: `newt2021_labels.csv` and `newt2021_images/<id>.jpg`. Each task (`subtask`, of a `cluster`) gets a probe
of its own. Fixed: every prediction belongs to its own image; the published run gave test predictions the names of
the first images of the task, training ones among them. Two labels, `0` and `1`, mean another thing in each task
(`text_label`).
"""

from pathlib import Path

import polars as pl

from agml_assets.errors import UserError
from agml_assets.evaluation.tasks.base import (
    TaskData,
    counted,
    find_file,
    make_frame,
    missing_images,
    named,
    read_table,
    some,
    whole_numbers,
)
from agml_assets.evaluation.tasks.images import ImageFiles
from agml_assets.registry.tasks import TaskEntry

_COLUMNS = ("id", "task", "task_cluster", "label", "text_label", "split")


def read(entry: TaskEntry, root: Path) -> TaskData:
    """Read the task; `examples` has the columns `subtask`, `cluster` and `text_label` besides."""
    file = find_file(entry, root, "newt2021_labels.csv")
    table = read_table(entry, file, _COLUMNS)
    labels = whole_numbers(entry, file, table["label"])
    if not labels.is_between(0, 1).all():
        raise UserError(f"{named(entry)}: {file}: labels must be 0 or 1.")
    files = ImageFiles(entry, root)
    rows, missing = [], []
    for row, (image, split, label) in enumerate(zip(table["id"], table["split"], labels, strict=True), start=1):
        name = f"newt2021_images/{image}.jpg"
        path = files.find(name, f"{file}, row {row},")
        if path is None:
            missing.append(name)
        rows.append((image, split, label, [path or name], None))
    if missing:
        raise missing_images(entry, root, file, missing)
    examples = make_frame(rows).with_columns(
        table["task"].alias("subtask"), table["task_cluster"].alias("cluster"), table["text_label"]
    )
    return TaskData(root, examples, ("0", "1"), tuple(_one_sided(examples)))


def _one_sided(examples: pl.DataFrame) -> list[str]:
    """Say which tasks cannot be learned, because their training images are all of one label."""
    train = examples.filter(pl.col("split") == "train").group_by("subtask").agg(pl.col("label").n_unique())
    learnable = set(train.filter(pl.col("label") == 2)["subtask"])
    others = sorted(set(examples["subtask"]) - learnable)
    if not others:
        return []
    return [f"{counted(len(others), 'subtask')} have training images of one label at most: {some(others)}."]
