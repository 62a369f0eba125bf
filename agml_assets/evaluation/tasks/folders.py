"""Any task whose classes are folders: `train/<class>/<image>` and `test/...`, or `<class>/<image>` alone.

Labels are given to class names, over both splits together, so that a class that one split lacks moves no other.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from agml_assets.dataset.sources.base import SPLIT_NAMES
from agml_assets.errors import UserError
from agml_assets.evaluation.tasks.base import TaskData, counted, make_frame, named, some
from agml_assets.evaluation.tasks.images import ClassFolders, list_class_folders
from agml_assets.registry.tasks import TaskEntry


def read(entry: TaskEntry, root: Path) -> TaskData:
    """Read a folder per class.

    The training split is the folder `train`; the test split is `test`, or where there is none `val`, under any
    name that splits go by. Without split folders every image is predicted from all others, which only the probe
    `knn` can do.

    Raises:
        UserError: There are no class folders, or a split without the other.
    """
    splits: dict[str, Path] = {}
    for folder in sorted(root.iterdir()):
        if folder.is_dir() and (split := SPLIT_NAMES.get(folder.name.lower())):
            splits.setdefault(split, folder)
    if not splits and entry.probe == "knn":
        return read_whole(entry, root)
    test = splits.get("test", splits.get("val"))
    if "train" not in splits or test is None:
        raise UserError(
            f"{named(entry)}: {root} must hold a folder train and a folder test or val, with a folder per class "
            "in each. A folder per class alone is a task for `probe: knn`, which leaves each image out in turn."
        )
    return read_splits(entry, root, splits["train"], test)


def read_splits(
    entry: TaskEntry, root: Path, train: Path, test: Path, display_names: dict[str, str] | None = None
) -> TaskData:
    """Read two folders of class folders.

    Args:
        entry: The task.
        root: Its folder.
        train: Folder of the training split.
        test: Folder of the test split.
        display_names: Names of classes for people, by folder name; a class without one keeps its folder's.
    """
    listed = {"train": list_class_folders(entry, root, train), "test": list_class_folders(entry, root, test)}
    folders = sorted({name for split in listed.values() for name in split.images})
    labels = {name: label for label, name in enumerate(folders)}
    rows = [
        (image, split, labels[name], [image], None)
        for split, found in listed.items()
        for name, images in found.images.items()
        for image in images
    ]
    return TaskData(root, make_frame(rows), class_names(folders, display_names), left_out(listed.values()))


def read_whole(entry: TaskEntry, root: Path) -> TaskData:
    """Read one folder of class folders, each image of which is predicted from all others."""
    found = list_class_folders(entry, root, root)
    names = sorted(found.images)
    rows = [
        (image, "all", label, [image], None) for label, name in enumerate(names) for image in found.images[name]
    ]
    return TaskData(root, make_frame(rows), tuple(names), left_out([found]))


def class_names(folders: Sequence[str], display_names: dict[str, str] | None) -> tuple[str, ...]:
    """Return names of classes for people; where two would be the same, both keep their folders' names."""
    names = [(display_names or {}).get(folder, folder) for folder in folders]
    times = Counter(names)
    return tuple(folder if times[name] > 1 else name for folder, name in zip(folders, names, strict=True))


def left_out(listed: Iterable[ClassFolders]) -> tuple[str, ...]:
    """Say what folders held besides images of classes."""
    found, notes = list(listed), []
    if n := sum(split.others for split in found):
        notes.append(f"{counted(n, 'file')} that are no images of a class were left out.")
    if n := sum(split.outside for split in found):
        notes.append(f"{counted(n, 'link')} out of the task's folder were left out.")
    if empty := sorted({name for split in found for name, images in split.images.items() if not images}):
        notes.append(f"{counted(len(empty), 'class folder')} hold no images: {some(empty)}.")
    return tuple(notes)
