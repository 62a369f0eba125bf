"""FungiCLEF 2023: which fungus, or none of those in training? Poisonous ones taken for edible cost most.

On disk: `FungiCLEF2023_train_metadata_PRODUCTION.csv` with images in `DF20_300`,
`FungiCLEF2023_val_metadata_...csv` with images in `DF21_300` (names in either case), and `poison_status_list.csv`.
Each training example is an image; each test example is an observation with all its images, whose vectors are
averaged. A test species that is not in training is unknown (-1). Fixed: the poisonous list is read from a file
(the published code fetched it whenever it was imported); labels are given to class ids over both splits, so gaps
in the ids shift nothing; observations whose images disagree on the species are left out, where the published code
took the first image's.
"""

from pathlib import Path

import polars as pl

from agml_assets.evaluation.tasks.base import (
    UNKNOWN,
    TaskData,
    counted,
    find_file,
    make_frame,
    missing_images,
    read_table,
    whole_numbers,
)
from agml_assets.evaluation.tasks.images import ImageFiles
from agml_assets.registry.tasks import TaskEntry

_COLUMNS = ("observationID", "image_path", "class_id")
_NAMES = ("species", "scientificName")


def read(entry: TaskEntry, root: Path) -> TaskData:
    """Read the task."""
    files = ImageFiles(entry, root)
    train = _read_images(entry, root, "train", "DF20_300", files)
    test = _read_images(entry, root, "val", "DF21_300", files)
    poison_file = find_file(entry, root, "poison_status_list.csv")
    poison = read_table(entry, poison_file, ("class_id", "poisonous"))
    poison = poison.filter(pl.col("poisonous").cast(pl.Float64, strict=False) == 1)
    poisonous = set(whole_numbers(entry, poison_file, poison["class_id"]))

    class_ids = sorted(set(train["class_id"]) - {UNKNOWN})
    labels = {class_id: label for label, class_id in enumerate(class_ids)}
    n_unlabelled = train.filter(pl.col("class_id") == UNKNOWN).height
    rows = [
        (f"train/{row}", "train", labels[class_id], [image], observation)
        for row, observation, image, class_id, _ in train.iter_rows()
        if class_id != UNKNOWN
    ]
    observations = test.group_by("observationID", maintain_order=True).agg("path", pl.col("class_id").unique())
    torn = observations.filter(pl.col("class_id").list.len() > 1)
    unseen = set()
    for observation, images, (class_id, *others) in observations.iter_rows():
        if others:
            continue
        if class_id not in labels and class_id != UNKNOWN:
            unseen.add(class_id)
        rows.append((f"test/{observation}", "test", labels.get(class_id, UNKNOWN), images, observation))
    notes = []
    if n_unlabelled:
        notes.append(f"{counted(n_unlabelled, 'training image')} without a species were left out.")
    if torn.height:
        notes.append(f"{counted(torn.height, 'observation')} whose images disagree on the species were left out.")
    if unseen:
        notes.append(f"{counted(len(unseen), 'test species', 'test species')} not in training count as unknown.")
    if strange := poisonous - set(labels):
        notes.append(f"{counted(len(strange), 'poisonous species', 'poisonous species')} are not in training.")
    return TaskData(
        root, make_frame(rows), _class_names(train, class_ids), tuple(notes),
        tuple(sorted(labels[class_id] for class_id in poisonous & set(labels))),
    )  # fmt: skip


def _read_images(entry: TaskEntry, root: Path, split: str, folder: str, files: ImageFiles) -> pl.DataFrame:
    """Return row number, observation, path below the root, class id and name of every image of a split."""
    file = find_file(entry, root, f"FungiCLEF2023_{split}_metadata_PRODUCTION.csv")
    table = read_table(entry, file, _COLUMNS)
    name = next((column for column in _NAMES if column in table.columns), None)
    paths, missing = [], []
    for row, image in enumerate(table["image_path"].fill_null("")):
        origin = f"{file}, row {row + 1},"
        path = files.find(f"{folder}/{image}", origin) or files.find(f"{folder}/{image.lower()}", origin)
        paths.append(path)
        if path is None:
            missing.append(f"{folder}/{image}")
    if missing:
        raise missing_images(entry, root, file, missing)
    return table.select(
        pl.int_range(pl.len()).alias("row"),
        pl.col("observationID").fill_null(pl.lit("row ") + pl.int_range(pl.len()).cast(pl.String)),
        pl.Series("path", paths, dtype=pl.String),
        whole_numbers(entry, file, table["class_id"]),
        (pl.col(name) if name else pl.lit(None, pl.String)).alias("name"),
    )


def _class_names(train: pl.DataFrame, class_ids: list[int]) -> tuple[str, ...]:
    named = dict(train.filter(pl.col("name").is_not_null()).select("class_id", "name").iter_rows())
    names = [named.get(class_id, f"class {class_id}") for class_id in class_ids]
    return tuple(
        f"{name} ({class_id})" if names.count(name) > 1 else name
        for class_id, name in zip(class_ids, names, strict=True)
    )
