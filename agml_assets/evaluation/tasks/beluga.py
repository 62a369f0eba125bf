"""Beluga ID 2022 (LILA BC): which whale is it? Every photo is predicted from all others.

On disk: `annotations/instances_train2022.json` (COCO) and `images/train2022/`, in the task's folder or in
`beluga.coco` below it. Whole photos are used, one annotation each. Left out: photos with no annotation or with
several (which whale would be meant?), and those of whales without a name, which the published task kept as one
whale called `____`. Whales with a single photo stay, as published, though they can never be found: no score
reaches 1. Photos of one whale are one group.
"""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from agml_assets.errors import UserError
from agml_assets.evaluation.tasks.base import (
    TaskData,
    counted,
    find_file,
    make_frame,
    missing_images,
    named,
    read_json,
)
from agml_assets.evaluation.tasks.images import ImageFiles
from agml_assets.registry.tasks import TaskEntry

_ANNOTATIONS = "annotations/instances_train2022.json"


def read(entry: TaskEntry, root: Path) -> TaskData:
    """Read the task."""
    file = find_file(entry, root, f"beluga.coco/{_ANNOTATIONS}", _ANNOTATIONS)
    folder = (file.parent.parent.relative_to(root) / "images/train2022").as_posix()
    images, annotations = _read_coco(entry, file)
    files = ImageFiles(entry, root)
    found, missing, whales = [], [], []
    n_unclear = n_nameless = 0
    for image_id in sorted(images, key=lambda value: (str(type(value)), value)):
        if len(annotations[image_id]) != 1:
            n_unclear += 1
            continue
        (whale,) = annotations[image_id]
        if not whale or not whale.strip("_ "):
            n_nameless += 1
            continue
        path = files.find(images[image_id], f"{file}, image {image_id},", within=folder)
        if path is None:
            missing.append(f"{folder}/{images[image_id]}")
            continue
        found.append((str(image_id), path))
        whales.append(whale)
    if missing:
        raise missing_images(entry, root, file, missing)
    names = tuple(sorted(set(whales)))
    labels = {name: label for label, name in enumerate(names)}
    examples = make_frame(
        (example, "all", labels[whale], [path], whale)
        for (example, path), whale in zip(found, whales, strict=True)
    )
    notes = []
    if n_unclear:
        notes.append(f"{counted(n_unclear, 'photo')} without exactly one annotation were left out.")
    if n_nameless:
        notes.append(f"{counted(n_nameless, 'photo')} of whales without a name were left out.")
    if n_single := sum(n == 1 for n in Counter(whales).values()):
        notes.append(
            f"{counted(n_single, 'whale')} have one photo and can never be found; they count as published."
        )
    return TaskData(root, examples, names, tuple(notes))


def _read_coco(entry: TaskEntry, file: Path) -> tuple[dict[Any, str], dict[Any, list[str]]]:
    """Return the file name, and the whales' names, of every image id."""
    coco = read_json(entry, file)
    try:
        images = {image["id"]: str(image["file_name"]) for image in coco["images"]}
        annotations = defaultdict(list)
        for annotation in coco["annotations"]:
            annotations[annotation["image_id"]].append(str(annotation.get("name") or ""))
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{named(entry)}: {file} is no COCO file with images and named annotations (it lacks {error})."
        ) from None
    return images, annotations
