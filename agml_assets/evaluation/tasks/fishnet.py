"""FishNet: nine traits of a fish from its picture (food path, climate zones, kinds of water).

On disk: `train.csv` and `test.csv` with the columns at fixed positions, and `Image_Library/<Folder>/<image>`. Rows
that lack a trait are left out, as published. Fixed elsewhere: the published head kept dropout on at test, stopped
learning after some hundred steps and cut at a probability of 0.62; the published intervals looked at one trait
only. Traits belong to species, so pictures of one genus are one group.
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
)
from agml_assets.evaluation.tasks.images import ImageFiles
from agml_assets.registry.tasks import TaskEntry

TRAITS = (
    "FeedingPath", "Tropical", "Temperate", "Subtropical", "Boreal", "Polar",
    "freshwater", "saltwater", "brackish",
)  # fmt: skip
"""The traits in the order of the published files; FeedingPath is 1 for pelagic and 0 for benthic."""

# Positions in the published files, which begin with two unnamed index columns.
_IMAGE, _GENUS, _FOLDER, _FIRST_TRAIT = 3, 5, 12, 14
_FEEDING = {"pelagic": 1, "benthic": 0}


def read(entry: TaskEntry, root: Path) -> TaskData:
    """Read the task."""
    files = ImageFiles(entry, root)
    rows, labels, notes, missing = [], [], [], []
    for split in ("train", "test"):
        file = find_file(entry, root, f"{split}.csv")
        table = _read_rows(entry, file)
        whole = table.filter(pl.all_horizontal(pl.col(TRAITS).is_not_null()))
        if n := table.height - whole.height:
            notes.append(f"{counted(n, 'row')} of {split}.csv that lack a trait were left out.")
        for row, image, genus, folder, *traits in whole.iter_rows():
            origin = f"{file}, row {row + 1},"
            if not image or not folder:
                raise UserError(f"{named(entry)}: {origin} names no image or no folder.")
            name = f"Image_Library/{folder}/{image.split('/')[-1]}"
            path = files.find(name, origin)
            if path is None:
                missing.append(name)
                continue
            rows.append((f"{split}/{row}", split, None, [path], genus))
            labels.append([_trait(entry, origin, name, value) for name, value in zip(TRAITS, traits, strict=True)])
        if missing:
            raise missing_images(entry, root, file, missing)
    examples = make_frame(rows).with_columns(labels=pl.Series(labels, dtype=pl.List(pl.Int8)))
    return TaskData(root, examples, TRAITS, tuple(notes))


def _read_rows(entry: TaskEntry, file: Path) -> pl.DataFrame:
    """Return the row number, image, genus, folder and traits of every row."""
    table = read_table(entry, file, ())
    expected = {_IMAGE: "image", _GENUS: "Genus", _FOLDER: "Folder"}
    expected |= {_FIRST_TRAIT + i: trait for i, trait in enumerate(TRAITS)}
    columns = table.columns
    wrong = [
        f"{position + 1} is not {name}" for position, name in expected.items() if columns[position:][:1] != [name]
    ]
    if wrong:
        raise UserError(
            f"{named(entry)}: {file} has other columns than published: column {', column '.join(wrong)}."
        )
    return table.select("image", "Genus", "Folder", *TRAITS).with_row_index("row")


def _trait(entry: TaskEntry, origin: str, trait: str, value: str) -> int:
    number = _FEEDING.get(value) if trait == "FeedingPath" else {"0": 0, "1": 1, "0.0": 0, "1.0": 1}.get(value)
    if number is None:
        known = "pelagic or benthic" if trait == "FeedingPath" else "0 or 1"
        raise UserError(f"{named(entry)}: {origin} has {trait} {value!r}, but must have {known}.")
    return number
