"""The demo: benchmark the sample, and compare what was found with the faults that were planted in it."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXEL_HASHES
from agml_assets.dataset.image_index import usable_images
from agml_assets.dataset.sample import Fault, manifest
from agml_assets.embeddings.artifacts import NEIGHBORS
from agml_assets.embeddings.neighbors import from_arrays
from agml_assets.errors import UserError
from agml_assets.progress import show_log
from agml_assets.report.artifacts import ISSUES
from agml_assets.runner import open_dataset, run_dataset
from agml_assets.summary_table import describe_result
from agml_assets.workspace import DatasetWorkspace


@dataclass(frozen=True)
class Finding:
    """How well one kind of planted fault was found.

    Attributes:
        kind: What was planted.
        planted: How many.
        found: How many of them were found; None where that was not measured.
        false_alarms: How many were found that nobody planted; None where that cannot be asked.
        unit: What false alarms are counted in.
    """

    kind: str
    planted: int
    found: int | None
    false_alarms: int | None = None
    unit: str = "images"


def compare_with_manifest(bench: DatasetWorkspace) -> list[Finding]:
    """Return, for each planted kind, what the stored artifacts found of it."""
    index = bench.read(IMAGE_INDEX)
    copies = _copy_findings(bench, index, manifest())
    suspected = _suspected_labels(bench)
    unreadable = set(_rows(index.filter(pl.col("excluded_reason").is_not_null())))
    findings = []
    for kind, faults in _by_kind(manifest()).items():
        rows = {fault.source_row for fault in faults}
        if kind in copies:
            findings.append(copies[kind])
        elif kind == "flipped_label" and suspected is not None:
            # Copies filed under another class are conflicts, found as such; they count for neither side here.
            others = suspected - rows - _in_conflict(manifest())
            findings.append(Finding(kind, len(rows), len(rows & suspected), len(others)))
        elif kind == "truncated":
            findings.append(Finding(kind, len(rows), len(rows & unreadable), len(unreadable - rows)))
        elif kind in _UNUSUAL:
            seen = set(_rows(usable_images(index).filter(_UNUSUAL[kind])))
            findings.append(Finding(kind, len(rows), len(rows & seen), len(seen - rows)))
        else:
            findings.append(Finding(kind, len(rows), None))
    return findings


def _suspected_labels(bench: DatasetWorkspace) -> set[int] | None:
    """Return the source rows whose labels look wrong; None where that was not measured."""
    issues = bench.read(ISSUES)
    if not issues["is_label_issue"].count():
        return None
    return set(_rows(issues.filter(pl.col("is_label_issue"))))


def _in_conflict(faults: Sequence[Fault]) -> set[int]:
    """Return the files that have a copy under another class."""
    across = [fault for fault in faults if fault.original is not None and fault.given != fault.true]
    return {row for fault in across for row in (fault.source_row, fault.original) if row is not None}


_UNUSUAL: Mapping[str, pl.Expr] = {
    "cmyk": pl.col("mode") == "CMYK",
    "16_bit": pl.col("mode").str.starts_with("I"),
    "palette": pl.col("mode") == "P",
    "alpha": pl.col("transparent"),
    "exif_rotated": pl.col("exif_orientation") > 1,
}
"""Files that decode although they are unusual: what the image index says of them."""


def _copy_findings(bench: DatasetWorkspace, index: pl.DataFrame, faults: Sequence[Fault]) -> dict[str, Finding]:
    """Judge copies by pairs: a pair is right when both images come from the same planted original."""
    usable = usable_images(index)
    source_rows = usable["source_row"].to_list()
    family = {f.source_row: f.original for f in faults if f.original is not None}
    hashes = bench.read(PIXEL_HASHES)["blake3"].to_list()
    exact = set(_pairs_of_equals(hashes))
    near = {(int(i), int(j)) for i, j in from_arrays(bench.read(NEIGHBORS)).pair_rows} - exact

    def judge(kind: str, pairs: set[tuple[int, int]]) -> Finding:
        in_source = {(source_rows[i], source_rows[j]) for i, j in pairs}
        planted = {(f.source_row, f.original) for f in faults if f.kind == kind and f.original is not None}
        found = sum(tuple(sorted(pair)) in in_source for pair in planted)
        wrong = sum(family.get(a, a) != family.get(b, b) for a, b in in_source)
        return Finding(kind, len(planted), found, wrong, "pairs")

    return {"exact_copy": judge("exact_copy", exact), "near_copy": judge("near_copy", near | exact)}


def _pairs_of_equals(values: Sequence[str]) -> Iterator[tuple[int, int]]:
    places: dict[str, list[int]] = {}
    for place, value in enumerate(values):
        for earlier in places.setdefault(value, []):
            yield earlier, place
        places[value].append(place)


def _by_kind(faults: Sequence[Fault]) -> dict[str, list[Fault]]:
    kinds: dict[str, list[Fault]] = {}
    for fault in faults:
        kinds.setdefault(fault.kind, []).append(fault)
    return kinds


def _rows(frame: pl.DataFrame) -> list[int]:
    return frame["source_row"].to_list()


def describe_findings(findings: Sequence[Finding]) -> str:
    """Return the findings as a table for the terminal."""
    lines = ["  planted kind     found of planted   false alarms"]
    for finding in findings:
        if finding.found is None:
            lines.append(f"  {finding.kind:<16} not measured ({finding.planted} planted)")
        else:
            alarms = f"{finding.false_alarms} {finding.unit}"
            lines.append(f"  {finding.kind:<16} {finding.found:>5} of {finding.planted:<7}    {alarms}")
    return "\n".join(lines)


def main(write: Callable[[str], object] = sys.stdout.write) -> int:
    """Benchmark the sample and print score, axes, findings and the path of the report."""
    parser = argparse.ArgumentParser(
        "demo", description="Benchmark the sample, a set of leaves with planted faults."
    )
    parser.add_argument("--results", metavar="FOLDER", help="in place of $AGML_RESULTS")
    results = parser.parse_args().results
    show_log()
    try:
        path = run_dataset("sample", results=results)
        _, bench = open_dataset("sample", results=results)
    except UserError as error:
        error.show()
        return error.exit_code
    write(describe_result(bench, path) + "\n\n" + describe_findings(compare_with_manifest(bench)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
