"""iNat21 mini: citizen-science photos of 10,000 species, 50 for training and 10 for testing each.

On disk: `train_mini/<species>/<image>` and `val/<species>/<image>`, as the archives unpack. Fixed: labels are
given to folder names over both splits together, and examples keep one order (the published run shuffled both
splits).
"""

from pathlib import Path

from agml_assets.evaluation.tasks.base import TaskData, find_folder
from agml_assets.evaluation.tasks.folders import read_splits
from agml_assets.registry.tasks import TaskEntry


def read(entry: TaskEntry, root: Path) -> TaskData:
    """Read the task."""
    return read_splits(entry, root, find_folder(entry, root, "train_mini"), find_folder(entry, root, "val"))
