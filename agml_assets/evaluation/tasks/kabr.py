"""KABR: what is this giraffe or zebra doing? Clips filmed by drones; the validation split is the test.

On disk: `annotation/{train,val}.csv` in the format of Charades (`original_vido_id video_id frame_id path labels`,
separated by spaces), `annotation/classes.json`, and the frames in `dataset/image/<clip>/<frame>.jpg`. Of each clip
with at least 16 frames, 16 are taken, 5 apart or, in shorter clips, as far apart as fits; where they start is
drawn per clip. The label is the most frequent one of these frames, the smallest where two are. Fixed: the start
depends on the clip alone (the published generators were copied into each worker process, so it depended on how
many there were). Clips of one original video are one group.
"""

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from agml_assets.errors import UserError
from agml_assets.evaluation.tasks.base import (
    TaskData,
    counted,
    find_file,
    make_frame,
    missing_images,
    named,
    read_json,
    read_table,
)
from agml_assets.evaluation.tasks.images import ImageFiles
from agml_assets.registry.tasks import TaskEntry

N_FRAMES = 16
STRIDE = 5
SEED = 42
"""Of the published protocol."""

_COLUMNS = ("original_vido_id", "video_id", "frame_id", "path", "labels")  # the first is spelled so in the files
_SPLITS = {"train": "train", "test": "val"}


def read(entry: TaskEntry, root: Path) -> TaskData:
    """Read the task."""
    class_names = _read_class_names(entry, find_file(entry, root, "annotation/classes.json"))
    files = ImageFiles(entry, root)
    rows, notes = [], []
    for split, name in _SPLITS.items():
        file = find_file(entry, root, f"annotation/{name}.csv")
        clips, originals = _read_clips(entry, file, len(class_names))
        missing: list[str] = []
        n_short = 0
        for video, frames in clips.items():
            if len(frames) < N_FRAMES:
                n_short += 1
                continue
            chosen = [frames[i] for i in choose_frames(len(frames), [SEED, int(split == "test"), video])]
            paths = [files.find(f"dataset/image/{path}", f"{file}, video {video},") for path, _ in chosen]
            missing += [path for (path, _), found in zip(chosen, paths, strict=True) if found is None]
            times = Counter(label for _, label in chosen)
            label = min(times, key=lambda label: (-times[label], label))
            rows.append((f"{split}/{video}", split, label, [path for path in paths if path], originals[video]))
        if missing:
            raise missing_images(entry, root, file, missing)
        if n_short:
            notes.append(
                f"{counted(n_short, 'clip')} of {file.name} with fewer than {N_FRAMES} frames were left out."
            )
    return TaskData(root, make_frame(rows), class_names, tuple(notes))


def choose_frames(n: int, seed: list[int]) -> range:
    """Return the positions of 16 frames in a clip of `n` >= 16, 5 apart or as far as fits, from a drawn start."""
    stride = min(STRIDE, (n - 1) // (N_FRAMES - 1))
    span = (N_FRAMES - 1) * stride + 1
    start = int(np.random.default_rng(seed).integers(0, n - span + 1))
    return range(start, start + span, stride)


def _read_class_names(entry: TaskEntry, file: Path) -> tuple[str, ...]:
    classes = read_json(entry, file)
    pairs = classes.items() if isinstance(classes, dict) else ()
    names = {label: name for name, label in pairs if isinstance(label, int)}
    if not names or sorted(names) != list(range(len(pairs))):
        raise UserError(f"{named(entry)}: {file} must map every class name to a number, from 0 without gaps.")
    return tuple(names[label] for label in range(len(names)))


def _read_clips(
    entry: TaskEntry, file: Path, n_classes: int
) -> tuple[dict[int, list[tuple[str, int]]], dict[int, str]]:
    """Return the frames (path and label) of every clip in time order, and the video that it was cut from."""
    table = read_table(entry, file, _COLUMNS, separator=" ")
    frames: dict[int, dict[int, tuple[str, int]]] = defaultdict(dict)
    originals: dict[int, str] = {}
    for row, (original, video, frame, path, label) in enumerate(table.select(_COLUMNS).iter_rows(), start=1):
        try:
            number, position, code = int(video), int(frame), int(label)
        except (TypeError, ValueError):
            raise UserError(
                f"{named(entry)}: {file}, row {row}: video, frame and label must be numbers."
            ) from None
        if not 0 <= code < n_classes or number < 0 or not path:
            raise UserError(f"{named(entry)}: {file}, row {row}: no such class or video, or no path.")
        frames[number][position] = (path, code)
        originals[number] = original
    for number, found in frames.items():
        if max(found) - min(found) + 1 != len(found):
            raise UserError(
                f"{named(entry)}: {file}: video {number} lacks a frame between its first and its last."
            )
    return {number: [found[i] for i in sorted(found)] for number, found in frames.items()}, originals
