"""SYKE plankton: micrographs by an Imaging FlowCytobot, trained on one collection, tested at Utö in 2021.

On disk: a folder per class in `train` and `val`, or under the names that the archives unpack to. Fixed: the
published task numbered the sorted folders of each split on its own; the test collection has a group
`unclassifiable` more, which shifts every class behind it, so that almost all test labels meant another class than
in training. Here labels are given to class names, over both splits; names that differ only in case, hyphens or
underscores are the same class.

`unclassifiable` (about 94,000 of 151,236 test images) is what experts could assign to no class. It is left out: a
closed-set probe cannot predict it, and as an unknown class its mixture would only measure how often a probe may
abstain, which this protocol does not allow. Images of one sample (the part of a file name before the last
underscore) are one group.
"""

import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from agml_assets.errors import UserError
from agml_assets.evaluation.tasks.base import TaskData, counted, make_frame, missing_data, named, some
from agml_assets.evaluation.tasks.folders import left_out
from agml_assets.evaluation.tasks.images import list_class_folders
from agml_assets.registry.tasks import TaskEntry

_TRAIN = ("train", "labeled_20201020")
_TEST = ("val", "phytoplankton_Utö_2021_labeled", "phytoplankton_Uto_2021_labeled")
_WITHOUT_CLASS = frozenset({"unclassifiable", "unclassified"})
_SAMPLE = re.compile(r"(D\d{8}T\d{6}_IFCB\d+)_\d+")


def read(entry: TaskEntry, root: Path) -> TaskData:
    """Read the task."""
    listed = {
        "train": list_class_folders(entry, root, _folder(entry, root, _TRAIN)),
        "test": list_class_folders(entry, root, _folder(entry, root, _TEST)),
    }
    names: dict[str, str] = {}
    respelled = []
    rows = []
    n_without = 0
    for split, found in listed.items():
        for canonical, folder in _canonical(entry, found.images).items():
            if canonical in _WITHOUT_CLASS:
                n_without += len(found.images[folder])
                continue
            name = names.setdefault(canonical, _composed(folder))
            if name != _composed(folder):
                respelled.append(f"{name} and {_composed(folder)}")
            rows += [(image, split, canonical) for image in found.images[folder]]
    order = {canonical: label for label, canonical in enumerate(sorted(names))}
    examples = make_frame(
        (image, split, order[canonical], [image], _sample(image)) for image, split, canonical in rows
    )
    notes = list(left_out(listed.values()))
    if n_without:
        notes.append(f"{counted(n_without, 'image')} that experts gave no class (`unclassifiable`) were left out.")
    if respelled:
        notes.append(f"Classes spelled differently in the two splits were taken as one: {some(respelled)}.")
    return TaskData(root, examples, tuple(names[canonical] for canonical in order), tuple(notes))


def _folder(entry: TaskEntry, root: Path, names: tuple[str, ...]) -> Path:
    # Archives and file systems write `ö` as one or as two characters.
    wanted = {_composed(name) for name in names}
    places = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    for place in places:
        for folder in sorted(place.iterdir()):
            if folder.is_dir() and _composed(folder.name) in wanted:
                return folder
    raise missing_data(entry, root, f"the folder {' or '.join(names)}")


def _canonical(entry: TaskEntry, folders: Iterable[str]) -> dict[str, str]:
    by_name: dict[str, str] = {}
    for folder in folders:
        other = by_name.setdefault(re.sub(r"[\s_-]+", "_", _composed(folder)).casefold(), folder)
        if other != folder:
            raise UserError(
                f"{named(entry)}: the folders {other!r} and {folder!r} of one split are the same class."
            )
    return by_name


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _sample(file: str) -> str | None:
    found = _SAMPLE.match(Path(file).name)
    return found[1] if found else None
