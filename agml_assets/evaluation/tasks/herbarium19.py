"""Herbarium 2019 (FGVC6): pressed plants, a folder per species; the validation split is the test.

On disk: `train/<species>/<image>` and `validation/<species>/<image>`, as the archives unpack, or `small-train` and
`small-validation` of the reduced release. Fixed: labels are given to folder names over both splits together; the
order of each split's own folders would shift them all if one species were missing.
"""

from pathlib import Path

from agml_assets.evaluation.tasks.base import TaskData, find_folder
from agml_assets.evaluation.tasks.folders import read_splits
from agml_assets.registry.tasks import TaskEntry


def read(entry: TaskEntry, root: Path) -> TaskData:
    """Read the task."""
    train = find_folder(entry, root, "train", "small-train")
    test = find_folder(entry, root, "validation", "small-validation")
    return read_splits(entry, root, train, test)
