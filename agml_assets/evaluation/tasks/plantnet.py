"""Pl@ntNet-300K: citizens' photos of plants, a folder per species; the validation split is the test.

On disk: `images/{train,val,test}/<species id>/<image>` and `plantnet300K_species_id_2_name.json`, in the task's
folder or in `plantnet_300K` below it. Fixed: labels are given to species over both splits together. An observation
may have several photos: `plantnet300K_metadata.json`, where it is there, names it, and its photos are one group.
"""

from pathlib import Path

import polars as pl

from agml_assets.evaluation.tasks.base import TaskData, find_folder, read_json
from agml_assets.evaluation.tasks.folders import read_splits
from agml_assets.registry.tasks import TaskEntry


def read(entry: TaskEntry, root: Path) -> TaskData:
    """Read the task."""
    train = find_folder(entry, root, "images/train", "plantnet_300K/images/train")
    base = train.parent.parent
    test = find_folder(entry, root, f"{train.parent.relative_to(root).as_posix()}/val")
    names = base / "plantnet300K_species_id_2_name.json"
    found = read_json(entry, names) if names.is_file() else {}
    data = read_splits(entry, root, train, test, {str(key): str(name) for key, name in dict(found).items()})
    metadata = base / "plantnet300K_metadata.json"
    if not metadata.is_file():
        return data
    observations = {
        str(image): str(facts["obs_id"])
        for image, facts in dict(read_json(entry, metadata)).items()
        if isinstance(facts, dict) and facts.get("obs_id") is not None
    }
    groups = [observations.get(Path(image).stem) for image in data.examples["example"]]
    examples = data.examples.with_columns(group=pl.Series(groups, dtype=pl.String))
    return TaskData(data.root, examples, data.class_names, data.notes)
