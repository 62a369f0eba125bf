"""Peak anonymous memory of the decode pass, its worker processes included, at two numbers of images.

`python benchmarks/ingest_memory.py [--few N] [--many N]` exits with 1 where the larger number takes over a tenth
more, or 1.5 GB.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from measure import markdown_row, run_child
from photographs import Photographs

DIFFERENT = 400  # files; the others are hard links to them
CLASSES = 20
MORE_AT_MOST, BYTES_AT_MOST = 1.10, 1.5e9


def make_folder(root: Path, n: int) -> None:
    """Write a folder of n small JPEG files for each class in turn."""
    source = Photographs(min(n, DIFFERENT), (0.05, 0.4), CLASSES)
    for label in range(CLASSES):
        (root / f"class {label:02}").mkdir(parents=True)
    for i in range(n):
        file = root / f"class {i % CLASSES:02}" / f"{i:06}.jpg"
        if i < len(source.files):
            file.write_bytes(source.files[i])
        else:
            first = i % len(source.files)
            os.link(root / f"class {first % CLASSES:02}" / f"{first:06}.jpg", file)


def ingest(folder: Path) -> None:
    """Run the decode pass over a folder of images."""
    from agml_assets.dataset.decode_pass import decode_source
    from agml_assets.dataset.sources import open_source
    from agml_assets.registry.datasets import DatasetEntry
    from agml_assets.settings import Settings

    source = open_source(DatasetEntry(name="photographs", path=folder))
    with tempfile.TemporaryDirectory(dir=folder.parent) as work_dir:
        decode_source(source, work_dir=Path(work_dir), settings=Settings())


def main() -> None:
    """Measure and print a row."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--few", type=int, default=1000)
    parser.add_argument("--many", type=int, default=20_000)
    parser.add_argument("--ingest", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ingest:
        ingest(options.ingest)
        return
    peaks, seconds = [], []
    for n in (options.few, options.many):
        with tempfile.TemporaryDirectory() as root:
            folder = Path(root) / "images"
            make_folder(folder, n)
            child = run_child([__file__, "--ingest", str(folder)])
            peaks.append(child.peak_anonymous_bytes)
            seconds.append(child.seconds)
    few, many = peaks
    print(
        markdown_row(
            (
                f"ingest of {options.many:,} images against {options.few:,}",
                f"{few / 1e6:.0f} MB",
                f"{many / 1e6:.0f} MB",
                f"**{many / few:.2f}x**",
                f"{MORE_AT_MOST:g}x, {BYTES_AT_MOST / 1e9:g} GB",
                f"{seconds[0]:.1f} s and {seconds[1]:.1f} s",
            )
        )
    )
    if many > MORE_AT_MOST * few or many > BYTES_AT_MOST:
        sys.exit(1)


if __name__ == "__main__":
    main()
