"""Pl@ntNet-300K: citizens' photos of plants, a folder per species; the validation split is the test.

On disk: `images/{train,val,test}/<species id>/<image>` and `plantnet300K_species_id_2_name.json`, in the task's
folder or in `plantnet_300K` below it. Fixed: labels are given to species over both splits together. An observation
may have several photos: `plantnet300K_metadata.json`, where it is there, names it, and its photos are one group.
"""

from pathlib import Path
from typing import Any

import polars as pl

from agml_assets.errors import UserError
from agml_assets.evaluation.tasks.base import TaskData, find_folder, named, read_json
from agml_assets.evaluation.tasks.folders import read_splits
from agml_assets.registry.tasks import TaskEntry


def read(entry: TaskEntry, root: Path) -> TaskData:
    """Read the task."""
    train = find_folder(entry, root, "images/train", "plantnet_300K/images/train")
    base = train.parent.parent
    test = find_folder(entry, root, f"{train.parent.relative_to(root).as_posix()}/val")
    names = base / "plantnet300K_species_id_2_name.json"
    species = {str(key): str(name) for key, name in _read_mapping(entry, names).items()}
    data = read_splits(entry, root, train, test, species)
    metadata = _read_mapping(entry, base / "plantnet300K_metadata.json")
    observations = {
        str(image): str(facts["obs_id"])
        for image, facts in metadata.items()
        if isinstance(facts, dict) and facts.get("obs_id") is not None
    }
    groups = [observations.get(Path(image).stem) for image in data.examples["example"]]
    examples = data.examples.with_columns(group=pl.Series(groups, dtype=pl.String))
    return TaskData(data.root, examples, data.class_names, data.notes)


def _read_mapping(entry: TaskEntry, file: Path) -> dict[str, Any]:
    """Return what a file that need not be there maps."""
    found = read_json(entry, file) if file.is_file() else {}
    if not isinstance(found, dict):
        raise UserError(f"{named(entry)}: {file} must hold one JSON object.")
    return found
