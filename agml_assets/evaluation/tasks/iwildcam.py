"""iWildCam (WILDS v2.0): animals in front of camera traps, tested at traps that training has not seen.

On disk: `metadata.csv`, `categories.csv` and `train/` with the images of all splits, in the task's folder or in
`iwildcam_v2.0` below it. The splits are `train` and the out-of-distribution `test`. Labels are WILDS' own; some of
them occur in neither split, which a macro average must not count as classes of score 0. Photos of one trap are one
group. Fixed: examples are named by their file and keep one order (the published run shuffled training and named by
number).
"""

from collections import Counter
from pathlib import Path

import polars as pl

from agml_assets.evaluation.tasks.base import (
    TaskData,
    distinct,
    find_file,
    make_frame,
    missing_images,
    read_table,
    whole_numbers,
)
from agml_assets.evaluation.tasks.images import ImageFiles
from agml_assets.registry.tasks import TaskEntry


def read(entry: TaskEntry, root: Path) -> TaskData:
    """Read the task."""
    file = find_file(entry, root, "iwildcam_v2.0/metadata.csv", "metadata.csv")
    table = read_table(entry, file, ("split", "location_remapped", "filename", "y"))
    table = table.with_columns(whole_numbers(entry, file, table["y"])).with_row_index("row")
    class_names = _class_names(entry, file.with_name("categories.csv"), int(table["y"].max() or 0) + 1)  # type: ignore[arg-type]
    folder = (file.parent.relative_to(root) / "train").as_posix()
    files = ImageFiles(entry, root)
    rows, missing = [], []
    columns = table.filter(pl.col("split").is_in(["train", "test"])).select(
        "row", "split", "location_remapped", "filename", "y"
    )
    for row, split, location, image, label in columns.iter_rows():
        origin = f"{file}, row {row + 1},"
        path = files.find(image or "", origin, within=folder)
        if path is None:
            missing.append(f"{folder}/{image}")
        else:
            rows.append((image, split, label, [path], location))
    if missing:
        raise missing_images(entry, root, file, missing)
    return TaskData(root, make_frame(distinct(rows)), class_names)


def _class_names(entry: TaskEntry, file: Path, n_classes: int) -> tuple[str, ...]:
    names: dict[int, str] = {}
    if file.is_file():
        table = read_table(entry, file, ("y", "name"))
        names = dict(zip(whole_numbers(entry, file, table["y"]), table["name"], strict=True))
    times = Counter(names.values())
    return tuple(
        names[label] if names.get(label) and times[names[label]] == 1 else f"class {label}"
        for label in range(n_classes)
    )
