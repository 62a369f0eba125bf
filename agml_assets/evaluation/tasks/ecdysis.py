"""Ecdysis bugbox: insects from farms, identified to species, tested on later visits than those of training.

On disk: `metadata.csv` (one row per image: taxonomy in `gbif_*`, `visit_date`) and `images/<name>`. A class is the
whole path from class to species, numbered by first appearance. Of each, the images are sorted by date and the
first int(0.8 n) are for training: a class with one image has none. Left out: rows without an image, and images
that were not downloaded (counted). Dates must be written year first, or sorting them as text would mean nothing.
Specimens photographed on one visit (date and place) are one group; where a class's 80 % end within a visit it is
on both sides, and counted.
"""

import re
from collections import defaultdict
from pathlib import Path

import polars as pl

from agml_assets.errors import UserError
from agml_assets.evaluation.tasks.base import (
    TaskData,
    counted,
    find_file,
    find_folder,
    make_frame,
    named,
    read_table,
)
from agml_assets.evaluation.tasks.images import ImageFiles
from agml_assets.registry.tasks import TaskEntry

TRAIN_SHARE = 0.8
"""Of the published protocol."""

_RANKS = ("gbif_class", "gbif_order", "gbif_family", "gbif_genus", "gbif_species")
_PLACE = ("country", "state_region", "county_region")
_IMAGE = "image_thumbnail_large"
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}.*")


def read(entry: TaskEntry, root: Path) -> TaskData:
    """Read the task."""
    file = find_file(entry, root, "metadata.csv")
    find_folder(entry, root, "images")
    table = read_table(entry, file, ("id", _IMAGE, "visit_date", *_RANKS))
    rows, notes = _usable_rows(entry, root, file, table.with_row_index("row"))
    by_class: dict[str, list[tuple[str, str, str, str]]] = defaultdict(list)
    for name, *image in rows:
        by_class[name].append((image[0], image[1], image[2], image[3]))
    examples = []
    n_torn = 0
    for label, images in enumerate(by_class.values()):
        images.sort(key=lambda image: image[0])
        n_train = int(TRAIN_SHARE * len(images))
        n_torn += len({image[3] for image in images[:n_train]} & {image[3] for image in images[n_train:]})
        for i, (_, example, path, visit) in enumerate(images):
            examples.append((example, "train" if i < n_train else "test", label, [path], visit))
    if n_torn:
        notes.append(
            f"{counted(n_torn, 'visit')} of a class lie on both sides of its split by date, as published."
        )
    return TaskData(root, make_frame(examples), tuple(by_class), tuple(notes))


def _usable_rows(
    entry: TaskEntry, root: Path, file: Path, table: pl.DataFrame
) -> tuple[list[tuple[str, str, str, str, str]], list[str]]:
    """Return class, date, example, path and visit of every row with an image, and what was left out."""
    files = ImageFiles(entry, root)
    place = [column for column in _PLACE if column in table.columns]
    rows = []
    n_empty = n_missing = n_undated = 0
    for record in table.iter_rows(named=True):
        origin = f"{file}, row {record['row'] + 1},"
        if not record[_IMAGE]:
            n_empty += 1
            continue
        date = record["visit_date"] or ""
        if date and not _DATE.fullmatch(date):
            raise UserError(f"{named(entry)}: {origin} has the date {date!r}; it must be written like 2021-06-30.")
        path = files.find(f"images/{record[_IMAGE].split('/')[-1]}", origin)
        if path is None:
            n_missing += 1
            continue
        n_undated += not date
        name = "|".join(record[rank] or "" for rank in _RANKS)
        visit = " ".join([date or "undated", *(record[column] or "" for column in place)]).strip()
        rows.append((name, date, str(record["id"]), path, visit))
    notes = []
    if n_empty:
        notes.append(f"{counted(n_empty, 'row')} without an image were left out.")
    if n_missing:
        notes.append(f"{counted(n_missing, 'image')} that metadata.csv names are not there and were left out.")
    if n_undated:
        notes.append(
            f"{counted(n_undated, 'image')} without a date count as the earliest of their class, as published."
        )
    return rows, notes
