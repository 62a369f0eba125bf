"""MammalNet: what is this mammal doing? Clips of web videos; the split `composition` tests new pairs.

On disk: `annotation/composition/{train,test}.csv` (`trimmed_videos/<clip>.mp4 <behaviour> <animal>`, separated by
spaces, without a header), `annotation/behavior_to_id.txt`, and the frames of each clip, cut beforehand, in
`frames/<clip>/`. Of n frames, 32 are taken, n // 32 apart. Clips without 32 frames are left out and counted, as
videos vanish from the web. Which column is the behaviour is checked: there are 12, and 173 animals. Clips of one
video (the 11 characters that their names begin with) are one group.
"""

import re
from pathlib import Path, PurePosixPath

import polars as pl

from agml_assets.errors import UserError
from agml_assets.evaluation.tasks.base import (
    TaskData,
    counted,
    distinct,
    find_file,
    find_folder,
    make_frame,
    named,
    read_table,
    whole_numbers,
)
from agml_assets.evaluation.tasks.images import ImageFiles
from agml_assets.registry.tasks import TaskEntry

N_FRAMES = 32
N_BEHAVIOURS = 12
"""Of the published protocol and data set."""

_YOUTUBE_ID = 11
_FRAME = re.compile(r"frame_(\d+)\.jpe?g", re.IGNORECASE)


def read(entry: TaskEntry, root: Path) -> TaskData:
    """Read the task."""
    find_folder(entry, root, "frames")
    files = ImageFiles(entry, root)
    rows, notes = [], []
    for split in ("train", "test"):
        file = find_file(entry, root, f"annotation/composition/{split}.csv")
        table = read_table(
            entry, file, ("path", "behaviour", "animal"),
            separator=" ", has_header=False, new_columns=["path", "behaviour", "animal"],
        )  # fmt: skip
        labels = whole_numbers(entry, file, table["behaviour"])
        if not labels.is_between(0, N_BEHAVIOURS - 1).all():
            raise UserError(
                f"{named(entry)}: {file}: behaviours are 0 to {N_BEHAVIOURS - 1}, but the second column goes up "
                f"to {labels.max()!r}. Is it the animal?"
            )
        n_short = 0
        for row, (path, label) in enumerate(zip(table["path"], labels, strict=True), start=1):
            clip = PurePosixPath(path or "").stem
            frames = _frames(files, root, clip, f"{file}, row {row},")
            if len(frames) < N_FRAMES:
                n_short += 1
                continue
            chosen = frames[:: len(frames) // N_FRAMES][:N_FRAMES]
            rows.append((f"{split}/{clip}", split, label, chosen, clip[:_YOUTUBE_ID]))
        if n_short:
            notes.append(f"{counted(n_short, 'clip')} of {file.name} without {N_FRAMES} frames were left out.")
    return TaskData(root, make_frame(distinct(rows)), _read_behaviours(entry, root), tuple(notes))


def _frames(files: ImageFiles, root: Path, clip: str, origin: str) -> list[str]:
    """Return the frames of a clip in time order."""
    folder = f"frames/{clip}"
    files.find(f"{folder}/frame_1.jpg", origin)  # refuses a folder outside
    numbered = []
    if clip and (root / folder).is_dir():
        for file in (root / folder).iterdir():
            if found := _FRAME.fullmatch(file.name):
                numbered.append((int(found[1]), file.name))
    return [path for _, name in sorted(numbered) if (path := files.find(f"{folder}/{name}", origin))]


def _read_behaviours(entry: TaskEntry, root: Path) -> tuple[str, ...]:
    """Return the behaviours' names; they are numbered where the file of names is missing or names others."""
    numbered = tuple(f"behaviour {label}" for label in range(N_BEHAVIOURS))
    file = root / "annotation/behavior_to_id.txt"
    if not file.is_file():
        return numbered
    table = read_table(
        entry, file, ("name", "id"), separator="\t", has_header=False, new_columns=["name", "id"], quote_char=None
    )
    names = dict(zip(whole_numbers(entry, file, table["id"]), table["name"].cast(pl.String), strict=True))
    known = tuple(names.get(label) or numbered[label] for label in range(N_BEHAVIOURS))
    return known if len(set(known)) == N_BEHAVIOURS else numbered
