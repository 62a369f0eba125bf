"""What each section of a dataset card says and shows: plain values, from the report, for the templates.

No HTML is written here, and nothing is measured: every number comes from the report.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, isfinite, log10
from typing import Any, TypeGuard
from unicodedata import bidirectional, category

import numpy as np
import polars as pl
from jaxtyping import UInt8

from agml_assets.report.thumbnails import Thumbnails

POINTS_SHOWN = 5_000
CLASSES_SHOWN = 50
"""Classes up to which the confusion matrix is shown whole."""

BLOCK_CLASSES = 20
"""Classes in the most confused block of a larger one."""

ROWS_LISTED = 500
"""Rows of a table under a picture; a longer list is in the files beside the card."""

_NAME_LENGTH = 100
_MANY_CLASSES, _NAME_LENGTH_OF_MANY = 500, 40  # in the data of a map
_NO_ROOM = "the names of its classes would make this page too large."
_BARS = 30
_ALIKE = 5  # groups of class names that may mean one class
_GROUPS = (6, 24)  # duplicate groups shown at once, and in all
_IN_GROUP = 6
_SUSPECTS = (12, 60)
_EXAMPLES = 5  # of each kind of image that stands out
_DUPLICATE_BYTES, _LABEL_BYTES, _HEALTH_BYTES = 900_000, 500_000, 400_000
_SPLITS = ("train", "val", "test")

Value = Mapping[str, Any]
Section = dict[str, Any]


@dataclass(frozen=True)
class CardData:
    """What a card is made from. Any part may be missing; the card then says in words what it lacks.

    Attributes:
        result: The report, as in `result.json`.
        config_used: Settings, registry entry and the state of each artifact, as in `config_used.json`.
        issues: One row for each usable image: `row`, `source_row`, `file`, `given_label`, `suggested_label`,
            `split`, `exact_group`, `joined_group`, and `is_<kind>_issue` with scores.
        points: Published records of the two-dimensional UMAP: `x`, `y`, `label`, `split`, `index`.
        cartography: Per image of the training split: `row`, `confidence`, `variability`, `correctness`.
        pixels: Pictures of the usable images, by row; best memory-mapped.
        maps: Whether there is room for the maps.
    """

    result: Mapping[str, Any]
    config_used: Mapping[str, Any] = field(default_factory=dict)
    issues: pl.DataFrame | None = None
    points: list[dict[str, Any]] | None = None
    cartography: pl.DataFrame | None = None
    pixels: UInt8[np.ndarray, "n h w 3"] | None = None
    maps: bool = True

    def metric(self, name: str) -> Value:
        """Return a metric's JSON value; an empty one where it is missing or skipped."""
        value = (self.result.get("metrics") or {}).get(name) or {}
        return {} if value.get("skipped") else value

    def why_not(self, name: str) -> str:
        """Return in words why a metric has no value."""
        value = (self.result.get("metrics") or {}).get(name) or {}
        if value.get("skipped"):
            return str(value.get("reason") or "no reason is given.")
        state = (self.config_used.get("artifacts") or {}).get(f"quality/{name}") or {}
        if state.get("state") and state["state"] != "current":
            return f"quality/{name} is {state['state']}. {state.get('reason', '')}".strip()
        return f"quality/{name} is not in the report."

    def total(self) -> int:
        """Return the number of usable images, 0 where nothing says it."""
        facts = self.result.get("reproducibility") or {}
        counted = [
            facts.get("num_images"),
            *(self.metric(name).get("total_images") for name in ("exact_duplicate", "resolution_consistency")),
        ]
        return next((int(n) for n in counted if n is not None), 0)

    def rows_by_source(self) -> dict[int, int]:
        """Return the row of each source row, from the issues or the points; both list every usable image."""
        if self.issues is not None:
            return dict(zip(self.issues["source_row"].to_list(), self.issues["row"].to_list(), strict=True))
        return {point["index"]: row for row, point in enumerate(self.points or [])}


# --- Words and numbers


def short(text: Any, length: int = _NAME_LENGTH) -> str:
    """Return text fit to be shown: without what no page can hold, and cut inside where it is long."""
    clean = printable(str(text)[: 50 * length]).replace("\n", " ").strip()
    if len(clean) <= length:
        return clean
    tail = length // 3
    return f"{clean[: length - tail - 1]}…{clean[-tail:]}"


def named(text: Any, length: int = _NAME_LENGTH) -> str:
    """Return a name fit to be shown, also where it is nothing but space."""
    return short(text, length) if str(text).strip() else "(no name)"


def printable(text: str) -> str:
    """Return text with a mark in place of lone surrogates, control characters and overrides of its direction."""
    return "".join(c if c == "\n" or not _unfit(c) else "\N{REPLACEMENT CHARACTER}" for c in text)


def _unfit(character: str) -> bool:
    if category(character) in ("Cc", "Cs", "Cn", "Zl", "Zp"):
        return True
    return bidirectional(character) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def count(number: float | None) -> str:
    """Return a whole number with thousands separated."""
    return "not known" if number is None else f"{number:,.0f}"


def plural(number: float, one: str, many: str | None = None) -> str:
    """Return a number with its noun."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def share(part: float, whole: float) -> str:
    """Return a share in percent with its n, such as `11 % of 298`."""
    return f"{percent(part / whole)} of {count(whole)}" if whole else "none of 0"


def percent(fraction: float) -> str:
    """Return a fraction in percent; a share that is not zero never reads as zero."""
    value = 100 * fraction
    if 0 < value < 0.1:
        return "<\N{NO-BREAK SPACE}0.1\N{NO-BREAK SPACE}%"
    return f"{value:.{1 if 0 < value < 10 else 0}f}\N{NO-BREAK SPACE}%"


def bounds(interval: Any) -> tuple[float, float] | None:
    """Return low and high of an interval that has them."""
    if not isinstance(interval, Mapping):
        return None
    low, high = interval.get("low"), interval.get("high")
    if not _finite(low) or not _finite(high):
        return None
    return float(low), float(high)


def figure(value: Any, interval: Any = None, decimals: int = 2) -> str:
    """Return a number, with its interval as `0.83 [0.79, 0.87]` and as many digits as that justifies."""
    if not _finite(value):
        return "not computable"
    limits = bounds(interval)
    if limits is None:
        return f"{value:.{decimals}f}"
    width = limits[1] - limits[0]
    digits = min(4, max(decimals, -floor(log10(width)))) if width > 0 else decimals
    return f"{value:.{digits}f} [{limits[0]:.{digits}f}, {limits[1]:.{digits}f}]"


def how(interval: Any) -> str:
    """Return how an interval was made, or why there is none; no full stop at the end."""
    said = (interval.get("method") or interval.get("reason")) if isinstance(interval, Mapping) else None
    return short(said or "none is given", 300).rstrip(".")


def words(name: str) -> str:
    """Return a key as words: `low_information` as `low information`."""
    return name.replace("_", " ")


def _finite(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def table(
    identity: str, caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], **options: Any
) -> Section:
    """Return a table for the templates.

    A column whose name ends in `#` is numeric. Options: `open`, shown at once instead of on request.
    """
    listed = [[short(cell, 160) if isinstance(cell, str) else cell for cell in row] for row in rows]
    more = len(listed) - ROWS_LISTED
    return {
        "id": identity,
        "caption": caption + (f" The first {ROWS_LISTED} of {len(listed)} rows." if more > 0 else ""),
        "columns": [(name.removesuffix("#").strip(), name.endswith("#")) for name in columns],
        "rows": listed[:ROWS_LISTED],
        "open": False,
        **options,
    }


# --- Sections


def class_balance(data: CardData) -> Section:
    """Return the counts of the classes."""
    value = data.metric("class_imbalance")
    section: Section = {"id": "balance", "title": "Are the classes balanced?"}
    if not value:
        return section | {"absent": data.why_not("class_imbalance")}
    train = value.get("counts") or {}
    totals = value.get("class_totals") or train
    audit = (data.result.get("metrics") or {}).get("leakage") or {}
    unique = (audit.get("effective_sample_size") or {}).get("per_class") or {}
    ordered = sorted(totals, key=lambda name: -totals[name])
    shown = ordered if len(ordered) <= _BARS else [*ordered[: _BARS // 2], *ordered[-_BARS // 2 :]]
    largest = max(totals.values(), default=0) or 1
    section["lead"] = _balance_lead(value, len(ordered))
    section["bars"] = [
        {
            "label": named(name, 48),
            "total": totals[name],
            "train": train.get(name, 0),
            "train_width": round(100 * train.get(name, 0) / largest, 2),
            "rest_width": round(100 * max(totals[name] - train.get(name, 0), 0) / largest, 2),
        }
        for name in shown
    ]
    if len(ordered) > len(shown):
        section["note"] = (
            f"The {_BARS // 2} largest and the {_BARS // 2} smallest of {count(len(ordered))} classes are drawn; "
            "the table lists the others."
        )
    alike = (value.get("alike_class_names") or {}).get("examples") or []
    section["facts"] = [_alike(group) for group in alike[:_ALIKE]]
    columns = ["class", "images #", "in train #"] + (["copies counted once #"] if unique else [])
    section["table"] = table(
        "balance-table",
        "Images of each declared class.",
        columns,
        (
            [name, count(totals[name]), count(train.get(name, 0))] + ([count(unique.get(name))] if unique else [])
            for name in ordered
        ),
    )
    return section


def _balance_lead(value: Value, n_classes: int) -> str:
    ratio = value.get("imbalance_ratio_declared") or value.get("imbalance_ratio")
    lead = (
        f"The largest class has {figure(ratio, decimals=1)} times as many training images as the smallest"
        f"{' that has any' if value.get('imbalance_ratio_declared') is None else ''}."
    )
    if n_classes == 1:
        lead = "There is one class, so there is nothing to balance."
    effective = value.get("effective_classes")
    if effective is not None and n_classes > 1:
        lead += (
            f" The balance is that of {effective:.1f} equally frequent classes, of {count(n_classes)} declared."
        )
    for key, said in (("empty_classes", "without any image"), ("untrained_classes", "without a training image")):
        names = value.get(key) or []
        if names:
            lead += f" {_classes(len(names))} {said}: {_listing(names)}."
    return lead


def _alike(group: Value) -> str:
    return f"Perhaps one class: {_listing(group['classes'])}, {group['reason']}."


def _classes(n: int) -> str:
    return f"{count(n)} class is" if n == 1 else f"{count(n)} classes are"


def _listing(names: Sequence[Any], most: int = 5) -> str:
    listed = ", ".join(named(name, 40) for name in names[:most])
    return listed + (f" and {count(len(names) - most)} more" if len(names) > most else "")


def resolution(data: CardData) -> Section:
    """Return sizes and shapes of the images."""
    value = data.metric("resolution_consistency")
    section: Section = {"id": "resolution", "title": "Are the images of one size?"}
    if not value:
        return section | {"absent": data.why_not("resolution_consistency")}
    upright = value.get("upright") or value
    area = f"the area varies by {percent(value['area_cv'])} of its mean (coefficient of variation)"
    spread = "; ".join(_spread(side, upright[side]) for side in ("width", "height"))
    section["lead"] = f"Of {plural(value['total_images'], 'image')}, {spread}; {area}."
    limit = max(upright[side]["max"] for side in ("width", "height")) or 1
    section["spans"] = [_span(side, upright[side], limit) for side in ("width", "height")]
    rows = [
        [name, *(_quantity(numbers[key], decimals) for key in ("mean", "std", "min", "max"))]
        for name, numbers, decimals in (
            ("width, pixels", upright["width"], 0),
            ("height, pixels", upright["height"], 0),
            ("width / height", upright["aspect_ratio"], 2),
            ("file size, kB", _kilobytes(value.get("file_bytes")), 1),
        )
        if numbers
    ]
    section["table"] = table(
        "resolution-table",
        f"Of {count(value['total_images'])} images, upright as a viewer shows them.",
        ["", "mean #", "standard deviation #", "smallest #", "largest #"],
        rows,
    )
    kinds = [
        f"{heading}: " + ", ".join(f"{short(name, 20)} {count(n)}" for name, n in counts.items())
        for heading, counts in (
            ("Colour modes", value.get("mode_distribution")),
            ("File formats", value.get("format_distribution")),
        )
        if counts
    ]
    odd = [
        f"{plural(value[key], 'image')} {said}"
        for key, said in (
            ("rotated_images", "turned by EXIF"),
            ("transparent_images", "with transparent pixels"),
            ("multi_frame_images", "with several frames"),
        )
        if value.get(key)
    ]
    section["note"] = ". ".join([*kinds, ", ".join(odd)] if odd else kinds) + "."
    return section


def _spread(side: str, numbers: Value) -> str:
    if numbers["min"] == numbers["max"]:
        return f"every {side} is {count(numbers['min'])} pixels"
    return f"{side}s run from {count(numbers['min'])} to {count(numbers['max'])} pixels"


def _span(name: str, numbers: Value, limit: float) -> Section:
    """Return where a range and its box of one standard deviation lie, in percent of the widest."""
    mean, std = numbers["mean"], numbers["std"]
    at = {
        "min": numbers["min"],
        "low": max(mean - std, numbers["min"]),
        "mean": mean,
        "high": min(mean + std, numbers["max"]),
        "max": numbers["max"],
    }
    said = count(numbers["min"])
    said += f" to {count(numbers['max'])}" if numbers["max"] != numbers["min"] else ""
    return {"name": name, "said": said, **{key: round(100 * value / limit, 2) for key, value in at.items()}}


def _quantity(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}"


def _kilobytes(numbers: Value | None) -> Value | None:
    return {key: value / 1000 for key, value in numbers.items()} if numbers else None


def embedding_map(data: CardData) -> Section:
    """Return the points of the map and what separates the classes."""
    section: Section = {"id": "map", "title": "How do the classes lie to one another?"}
    separability, diversity = data.metric("feature_separability"), data.metric("intra_class_diversity")
    if not data.points:
        return section | {"absent": f"There is no map of the embeddings. {_why_no_map(data)}".strip()}
    chosen = stratified_sample([(p["label"], p["split"]) for p in data.points], POINTS_SHOWN)
    points = [data.points[i] for i in chosen]
    labels = _label_order(data, {p["label"] for p in points})
    groups = [s for s in _SPLITS if any(p["split"] == s for p in points)]
    groups += sorted({str(p["split"]) for p in points} - set(groups))
    code = {name: i for i, name in enumerate(labels)}
    section["lead"] = _map_lead(data, separability)
    every_label = _label_order(data, {p["label"] for p in data.points})
    section["table"] = _map_table(data, every_label, separability, diversity)
    if not data.maps:
        return section | {"chart_absent": _NO_ROOM}
    section["note"] = (
        f"A sample of {count(len(points))} of {count(len(data.points))} images is drawn, each class and split "
        "in proportion. "
        if len(points) < len(data.points)
        else ""
    ) + "Nearness on the map is nearness to the embedding model; the axes themselves mean nothing."
    section["chart"] = {
        "name": "map",
        "said": f"Map of {count(len(points))} images in two dimensions, coloured by class, shaped by split.",
        "group_name": "Split",
        "x_axis": "",
        "y_axis": "",
        "classes": _distinct(labels),
        "groups": [short(name, 30) for name in groups],
        "flags": [("1", "with a suspicious label"), ("2", "with a copy")] if data.issues is not None else [],
        "data": {
            "x": [round(p["x"], 3) for p in points],
            "y": [round(p["y"], 3) for p in points],
            "label": [code[p["label"]] for p in points],
            "group": [groups.index(str(p["split"])) for p in points],
            "index": [p["index"] for p in points],
            "flag": _flags(data, chosen),
            "labels": _distinct(labels),
            "groups": [short(name, 30) for name in groups],
            "colour": "label",
            "axes": False,
        },
    }
    return section


def _why_no_map(data: CardData) -> str:
    state = (data.config_used.get("artifacts") or {}).get("embeddings/umap_projection") or {}
    if state.get("state") and state["state"] != "current":
        return f"embeddings/umap_projection is {state['state']}. {state.get('reason', '')}".strip()
    lacking = 2 not in (data.result.get("phases_completed") or [])
    return "Phase 2, which makes the embeddings, is not completed." if lacking else ""


def _map_lead(data: CardData, value: Value) -> str:
    if not value:
        return f"Separation of the classes is not computable: {data.why_not('feature_separability')}"
    key = "silhouette_score_all" if "silhouette_score_all" in value else "silhouette_score"
    interval = (value.get("intervals") or {}).get(key)
    score = value.get(key)
    said = value.get("silhouette_interpretation")
    return (
        f"The silhouette of the labelled classes is {figure(score, interval)} on a scale from -1 to 1"
        f"{f': {said}' if said else ''}."
    )


def _map_table(data: CardData, labels: Sequence[str], separability: Value, diversity: Value) -> Section:
    silhouettes = separability.get("per_class_silhouette_all") or separability.get("per_class_silhouette") or {}
    spreads = diversity.get("per_class_diversity") or {}
    counts: dict[str, dict[str, int]] = {}
    for point in data.points or []:
        split = counts.setdefault(point["label"], {})
        split[point["split"]] = split.get(point["split"], 0) + 1
    return table(
        "map-table",
        "Images, silhouette (-1 to 1) and diversity (mean distance to the centre of the class, 0 to 1) by class.",
        ["class", "train #", "val #", "test #", "silhouette #", "diversity #"],
        (
            [
                name,
                *(count(counts.get(name, {}).get(split, 0)) for split in _SPLITS),
                figure(silhouettes.get(name)),
                figure(spreads.get(name)),
            ]
            for name in labels
        ),
    )


def _label_order(data: CardData, seen: Iterable[str]) -> list[str]:
    declared = list(data.metric("class_imbalance").get("class_totals") or {})
    seen = set(seen)
    return [name for name in declared if name in seen] + sorted(seen - set(declared))


def _distinct(names: Sequence[str]) -> list[str]:
    """Return short names, numbered where shortening made them alike; views are shared by name."""
    shown: dict[str, int] = {}
    distinct = []
    length = _NAME_LENGTH if len(names) <= _MANY_CLASSES else _NAME_LENGTH_OF_MANY
    for name in (named(name, length) for name in names):
        shown[name] = shown.get(name, 0) + 1
        distinct.append(name if shown[name] == 1 else f"{name} ({shown[name]})")
    return distinct


def _flags(data: CardData, chosen: Sequence[int]) -> list[int]:
    """Return for each point whether its label is suspicious (1) and whether it has a copy (2), added."""
    if data.issues is None:
        return []
    suspicious = pl.col("is_label_issue").fill_null(value=False).cast(pl.Int64)
    copied = (pl.len().over("joined_group") > 1).cast(pl.Int64)
    flags = dict(data.issues.select("row", suspicious + 2 * copied).iter_rows())
    return [flags.get(row, 0) for row in chosen]


def stratified_sample(strata: Sequence[Any], size: int) -> list[int]:
    """Return at most `size` positions, ascending, each stratum in proportion, drawn at even steps."""
    if len(strata) <= size:
        return list(range(len(strata)))
    ordered = sorted(range(len(strata)), key=lambda i: (str(strata[i]), i))
    return sorted(ordered[step * len(strata) // size] for step in range(size))


def duplicates(data: CardData) -> Section:
    """Return the groups of copies, those across splits or with different labels first."""
    exact, near = data.metric("exact_duplicate"), data.metric("near_duplicate")
    section: Section = {"id": "duplicates", "title": "Which images are copies of one another?"}
    if not exact and not near:
        return section | {"absent": data.why_not("exact_duplicate")}
    section["lead"] = _duplicates_lead(data, exact, near)
    section["table"] = _duplicates_table(exact, near)
    if data.issues is None:
        strict = exact.get("blake3") or {}
        conflicts = near.get("label_conflicts") or strict.get("label_conflicts") or {}
        listed = conflicts.get("examples") or []
        section["conflicts"] = [_conflict(example) for example in listed[: ROWS_LISTED // 10]]
        section["note"] = "Pictures need report/issues, the table of issues by image, which is not there."
        return section
    groups = _copy_groups(data.issues)
    pictures = Thumbnails(data.pixels, data.rows_by_source(), _DUPLICATE_BYTES)
    ids = groups["joined_group"].head(_GROUPS[1])
    by_group = data.issues.filter(pl.col("joined_group").is_in(ids.implode())).sort("row")
    shown = [_copy_group(group, by_group, pictures) for group in groups.head(_GROUPS[1]).iter_rows(named=True)]
    section["first"], section["more"] = shown[: _GROUPS[0]], shown[_GROUPS[0] :]
    section["note"] = _shown_of(len(shown), groups.height, "group", "groups", "column joined_group")
    return section


def _duplicates_lead(data: CardData, exact: Value, near: Value) -> str:
    total = exact.get("total_images") or near.get("total_images") or 0
    strict = exact.get("blake3") or {}
    copies = strict.get("duplicate_count", exact.get("exact_duplicate_count"))
    parts = []
    if copies is not None:
        parts.append(f"{plural(copies, 'image')} ({share(copies, total)}) share their pixels with another")
    if near:
        n = near["near_duplicate_count"]
        parts.append(
            f"{plural(n, 'image')} ({share(n, total)}) look nearly the same as another "
            f"(cosine at least {near.get('threshold')}), exact copies among them"
        )
    lead = "; ".join(parts) + "."
    if not near:
        lead += f" Near-duplicates are not computable: {data.why_not('near_duplicate')}"
    elif near.get("exact_search") is False:
        lead += " The search was approximate, so this is a lower bound."
    return lead


def _duplicates_table(exact: Value, near: Value) -> Section:
    strict = exact.get("blake3") or {}
    rows = []
    for name, value, keys in (
        ("same pixels (BLAKE3)", strict, ("duplicate_count", "duplicate_groups", "cross_split_duplicates")),
        (
            "same bytes (MD5, as published)",
            exact,
            ("exact_duplicate_count", "duplicate_groups", "cross_split_duplicates"),
        ),
        (
            "nearly the same",
            near,
            ("near_duplicate_count", "near_duplicate_groups", "cross_split_near_duplicates"),
        ),
    ):
        if not value:
            continue
        conflicts = value.get("label_conflicts") or {}
        rows.append(
            [
                name,
                *(count(value.get(key)) for key in keys),
                count(value.get("largest_group")),
                count(conflicts.get("images")),
            ]
        )
    columns = ["kind", "images #", "groups #", "across splits #", "largest group #", "with other labels #"]
    return table("duplicates-table", "Images in groups of copies.", columns, rows)


def _conflict(example: Value) -> str:
    classes = ", ".join(f"{short(name, 40)} × {n}" for name, n in (example.get("classes") or {}).items())
    rows = ", ".join(str(row) for row in example.get("source_rows") or [])
    return f"{classes} (rows {rows})"


def _copy_groups(issues: pl.DataFrame) -> pl.DataFrame:
    return (
        issues.group_by("joined_group")
        .agg(
            size=pl.len(),
            labels=pl.col("given_label").n_unique(),
            splits=pl.col("split").drop_nulls().n_unique(),
            pictures=pl.col("exact_group").n_unique(),
        )
        .filter(pl.col("size") > 1)
        .with_columns(conflict=pl.col("labels") > 1, crossing=pl.col("splits") > 1)
        .with_columns(urgency=pl.col("conflict").cast(pl.Int8) + pl.col("crossing").cast(pl.Int8))
        .sort("urgency", "conflict", "size", "joined_group", descending=[True, True, True, False])
    )


def _copy_group(group: Mapping[str, Any], issues: pl.DataFrame, pictures: Thumbnails) -> Section:
    images = issues.filter(pl.col("joined_group") == group["joined_group"])
    kind = "same pixels" if group["pictures"] == 1 else "nearly the same"
    said = [plural(group["size"], "image"), kind]
    if group["conflict"]:
        said.append(f"{group['labels']} different labels")
    if group["crossing"]:
        said.append("across " + " and ".join(sorted(images["split"].drop_nulls().unique(), key=_split_order)))
    left = group["size"] - _IN_GROUP
    return {
        "title": ", ".join(said),
        "images": [
            _picture(image, pictures, [("given", "label", image["given_label"]), ("", "split", image["split"])])
            for image in images.head(_IN_GROUP).iter_rows(named=True)
        ],
        "rest": f"and {plural(left, 'image')} more" if left > 0 else "",
    }


def _split_order(name: str) -> tuple[int, str]:
    return (_SPLITS.index(name) if name in _SPLITS else len(_SPLITS), name)


def _picture(image: Mapping[str, Any], pictures: Thumbnails, lines: Iterable[tuple[str, str, Any]]) -> Section:
    source_row = image["source_row"]
    name = image.get("file")
    said = [(css, label, named(value, 60)) for css, label, value in lines if value is not None]
    return {
        "address": pictures.address(source_row),
        "alt": f"row {source_row}, " + ", ".join(f"{label} {value}" for _, label, value in said),
        "name": short(name, 40) if name else "",
        "row": source_row,
        "lines": said,
    }


def _shown_of(shown: int, all_of_them: int, one: str, many: str, where: str) -> str:
    if not all_of_them:
        return ""
    noun = one if all_of_them == 1 else many
    if shown == all_of_them:
        return f"All {count(all_of_them)} {noun} are shown." if shown > 1 else f"The only {noun} is shown."
    return f"{count(shown)} of {count(all_of_them)} {noun} are shown; all are in report/issues.parquet, {where}."


def suspicious_labels(data: CardData) -> Section:
    """Return the images whose labels are probably wrong, most suspicious first."""
    value = data.metric("label_noise")
    section: Section = {"id": "labels", "title": "Which labels look wrong?"}
    if not value:
        return section | {"absent": data.why_not("label_noise")}
    section["lead"] = _labels_lead(value)
    images = _suspects(data, value)
    pictures = Thumbnails(data.pixels, data.rows_by_source(), _LABEL_BYTES)
    shown = [
        _picture(
            image,
            pictures,
            [
                ("given", "given", image["given"]),
                ("what", "suggested", image["suggested"]),
                ("", "score", figure(image["score"], decimals=3)),
            ],
        )
        for image in images[: _SUSPECTS[1]]
    ]
    section["first"], section["more"] = shown[: _SUSPECTS[0]], shown[_SUSPECTS[0] :]
    section["note"] = (
        "The score is the probability that the model gives to the label; 0 is most suspicious. " if shown else ""
    ) + _shown_of(len(shown), len(images), "image", "images", "column is_label_issue")
    counts = value.get("per_class_noise_counts") or {}
    totals = data.metric("class_imbalance").get("class_totals") or {}
    if counts:
        section["table"] = table(
            "labels-table",
            "Suspicious labels by the label given.",
            ["given label", "suspicious #", "images #"],
            ([name, count(n), count(totals.get(name))] for name, n in sorted(counts.items(), key=lambda c: -c[1])),
        )
    return section


def _labels_lead(value: Value) -> str:
    safe = honest_noise(value)
    n, total = safe["n_noisy_samples"], safe["n_total_samples"]
    limits = bounds((safe.get("intervals") or {}).get("estimated_noise_rate"))
    lead = f"{plural(n, 'label')} ({share(n, total)}"
    lead += f" [{percent(limits[0])}, {percent(limits[1])}])" if limits else ")"
    lead += f" {'look' if n != 1 else 'looks'} wrong to a model trained on other images"
    if safe is value:
        return f"{lead}, copies among them. {noise_rate_words(value)}"
    published = f"{count(value.get('n_noisy_samples'))} by the published folds, which do not keep copies together"
    return f"{lead} that are no copies ({published}). {noise_rate_words(value)}"


def honest_noise(value: Value) -> Value:
    """Return the part of `label_noise` without copies in other folds, or all of it where that is not there."""
    safe = value.get("leak_safe") or {}
    return safe if _finite(safe.get("estimated_noise_rate")) else value


def noise_rate_words(value: Value) -> str:
    """Return what the calibrated rate of wrong labels is, or why it is not identifiable."""
    adjusted = value.get("adjusted_noise_rate")
    limits = bounds(adjusted)
    if limits:
        return (
            f"Corrected for flags that are false and errors that are missed, {percent(limits[0])} to "
            f"{percent(limits[1])} of the labels are wrong."
        )
    reason = (adjusted or {}).get("not_identifiable")
    if reason:
        return f"The true rate is not identifiable: {short(reason, 300)}"
    return "The number is that of flags, not of errors: it was not calibrated."


def _suspects(data: CardData, value: Value) -> list[dict[str, Any]]:
    """Return the flagged images, from the table of issues or, failing that, from the metric."""
    if data.issues is None or data.issues["is_label_issue"].null_count() == data.issues.height:
        return [
            {key: item.get(name) for key, name in _SUGGESTION.items()}
            for item in value.get("suggested_labels") or []
        ]
    flagged = data.issues.filter("is_label_issue").sort("label_score", "row", nulls_last=True)
    return flagged.rename(
        {"given_label": "given", "suggested_label": "suggested", "label_score": "score"}
    ).to_dicts()


_SUGGESTION = {
    "source_row": "source_row",
    "given": "given",
    "suggested": "suggested",
    "score": "self_confidence",
}


def confusion(data: CardData) -> Section:
    """Return which classes the reference model takes for which."""
    value = data.metric("class_confusability")
    section: Section = {"id": "confusion", "title": "Which classes are mistaken for which?"}
    if not value:
        return section | {"absent": data.why_not("class_confusability")}
    intervals = value.get("intervals") or {}
    section["lead"] = (
        f"The accuracy of the reference model is {figure(value.get('accuracy'), intervals.get('accuracy'))} on "
        f"{plural(value.get('n_test_samples', 0), 'test image')} of the published split."
    )
    if _finite(value.get("macro_f1")):
        section["lead"] += f" Its macro-F1 is {figure(value['macro_f1'], intervals.get('macro_f1'))}."
    section["how"] = f"Interval of the accuracy: {how(intervals.get('accuracy'))}."
    section["warning"] = value.get("small_class_warning")
    right = value.get("per_class_accuracy") or {}
    n_test = value.get("n_test_per_class") or {}
    rates = _confusion_rates(value)
    names = list(right)
    if rates:
        chosen = list(range(len(names))) if len(names) <= CLASSES_SHOWN else _most_confused(rates, len(names))
        section["matrix"] = _matrix(rates, names, chosen)
        section["note"] = (
            "Rows are classes as labelled, columns predictions; numbers are percent of the row, none is 0."
        )
        if len(chosen) < len(names):
            section["note"] += f" The {len(chosen)} most confused of {count(len(names))} classes are drawn."
    else:
        section["note"] = f"The report holds no matrix of its {count(len(names))} classes."
    section["pairs"] = table(
        "confusion-pairs",
        "Pairs mistaken most often.",
        ["class as labelled", "taken for", "share of its test images #"],
        (
            [
                pair["true_class"],
                pair["predicted_as"],
                share_of(pair["confusion_rate"], n_test.get(pair["true_class"])),
            ]
            for pair in value.get("top_confused_pairs") or []
        ),
    )
    section["table"] = table(
        "confusion-table",
        "Test images of each class that are named right.",
        ["class", "right #"],
        (
            [name, share_of(rate, n_test.get(name)) if n_test.get(name) != 0 else "no test image"]
            for name, rate in right.items()
        ),
    )
    return section


def share_of(fraction: Any, n: Any) -> str:
    """Return a fraction in percent with its n where that is known."""
    if not _finite(fraction):
        return "not computable"
    return f"{percent(fraction)} of {count(n)}" if _finite(n) else percent(fraction)


def _confusion_rates(value: Value) -> dict[tuple[int, int], float]:
    """Return the non-zero cells of the row-normalised confusion matrix, however the report holds them."""
    n_test = list((value.get("n_test_per_class") or {}).values())
    if n_test and value.get("confusion_counts"):
        return {(true, taken): n / n_test[true] for true, taken, n in value["confusion_counts"]}
    matrix = value.get("confusion_matrix") or []
    return {(i, j): rate for i, row in enumerate(matrix) for j, rate in enumerate(row) if rate > 0}


def _most_confused(rates: Mapping[tuple[int, int], float], n_classes: int) -> list[int]:
    """Return the classes of the most confused pairs, in label order."""
    chosen: list[int] = []
    for pair in sorted((pair for pair in rates if pair[0] != pair[1]), key=lambda pair: (-rates[pair], pair)):
        new = [label for label in pair if label not in chosen]
        if len(chosen) + len(new) <= BLOCK_CLASSES:
            chosen += new
    rest = [label for label in range(n_classes) if label not in chosen]
    return sorted(chosen) if chosen else rest[:BLOCK_CLASSES]


_CIVIDIS = (
    (0.0, (0, 34, 78)), (0.25, (65, 77, 107)), (0.5, (124, 123, 120)),
    (0.75, (188, 175, 111)), (1.0, (254, 232, 56)),
)  # fmt: skip
"""Anchors of the colour map cividis (Nunez et al. 2018, doi:10.1371/journal.pone.0199239)."""


def cividis(fraction: float) -> tuple[str, str]:
    """Return the colour of a fraction and the text colour, black or white, that stands out from it."""
    colour = [
        round(float(np.interp(fraction, [a for a, _ in _CIVIDIS], [c[i] for _, c in _CIVIDIS]))) for i in range(3)
    ]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (c / 255 for c in colour)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    # Equal contrast with black and white lies at a luminance of 0.179 (WCAG 2.1, relative luminance).
    return "#" + "".join(f"{c:02x}" for c in colour), "#000" if luminance > 0.179 else "#fff"


def _matrix(rates: Mapping[tuple[int, int], float], names: Sequence[str], chosen: Sequence[int]) -> Section:
    def cell(true: int, predicted: int) -> Section | None:
        rate = rates.get((true, predicted), 0.0)
        if rate <= 0:
            return None
        back, text = cividis(min(rate, 1.0))
        return {"text": f"{100 * rate:.0f}" if rate >= 0.01 else "<1", "back": back, "colour": text}

    # Alike names often differ at the end, so both ends are kept.
    shown = [named(names[i], 22) for i in chosen]
    full = [named(names[i]) for i in chosen]
    return {
        "names": list(zip(shown, full, strict=True)),
        "rows": [(s, f, [cell(i, j) for j in chosen]) for i, s, f in zip(chosen, shown, full, strict=True)],
    }


_CORRECT = ("always named right", "sometimes", "never")


def cartography(data: CardData) -> Section:
    """Return the map of the training images by how the reference model learnt them."""
    value = data.metric("dataset_cartography")
    section: Section = {"id": "cartography", "title": "Which images are hard to learn?"}
    if not value:
        return section | {"absent": data.why_not("dataset_cartography")}
    own = value.get("true_label") or {}
    n = sum(value.get(f"n_{kind}", 0) for kind in _KINDS)
    section["lead"] = _cartography_lead(value, own, n)
    section["note"] = (
        "The published rule reads the highest probability, whatever class it is for, so an image that the model "
        "is surely wrong about counts as easy. The map shows the probability of the label given: low on it lie "
        "images that are hard or wrongly labelled."
    )
    section["table"] = table(
        "cartography-table",
        f"Percent of {count(n)} training images, over {count(value.get('n_epochs'))} epochs.",
        ["images", "by the label given #", "published rule #", "interval of the published"],
        (
            [
                words(kind),
                figure(own.get(key), intervals.get(f"true_label.{key}"), decimals=1),
                figure(value.get(key), intervals.get(key), decimals=1),
                how(intervals.get(key)),
            ]
            for intervals in [value.get("intervals") or {}]
            for kind, key in ((kind, f"pct_{kind}") for kind in _KINDS)
        ),
    )
    return section | _cartography_chart(data)


_KINDS = ("easy", "ambiguous", "hard")


def _cartography_lead(value: Value, own: Value, n: int) -> str:
    source, prefix = (own, "true_label.") if "pct_hard" in own else (value, "")
    intervals = value.get("intervals") or {}
    hard = figure(source.get("pct_hard"), intervals.get(f"{prefix}pct_hard"), decimals=1)
    lead = f"{hard} % of {count(n)} training images are hard: the model seldom trusts their label."
    if _finite(own.get("n_never_learned")):
        lead += f" {plural(own['n_never_learned'], 'image')} never got the label given"
        lead += f", {count(own['n_forgotten'])} got it and lost it again." if "n_forgotten" in own else "."
    return lead


def _cartography_chart(data: CardData) -> Section:
    frame = data.cartography
    if frame is None or frame.is_empty():
        return {"chart_absent": "There are no training dynamics to draw."}
    label, source = _labels_by_row(data)
    if not data.maps:
        return {"chart_absent": _NO_ROOM}
    if not label:
        return {"chart_absent": "Neither the table of issues nor the map says which image is which."}
    frame = frame.filter(pl.col("row").is_in(list(label))).sort("row")
    everything = frame.height
    rows = frame["row"].to_list()
    chosen = stratified_sample([label[row] for row in rows], POINTS_SHOWN)
    drawn = frame[chosen]
    labels = _label_order(data, {label[row] for row in drawn["row"].to_list()})
    code = {name: i for i, name in enumerate(labels)}
    correct = drawn["correctness"].to_list()
    sampled = (
        f"A sample of {count(drawn.height)} of {count(everything)} images is drawn, each class in proportion."
    )
    return {
        "chart_note": sampled if drawn.height < everything else "",
        "chart": {
            "name": "cartography",
            "said": f"Map of {count(drawn.height)} training images: confidence against variability.",
            "group_name": "Over the epochs",
            "x_axis": "variability: standard deviation over the epochs",
            "y_axis": "confidence: mean probability of the label given",
            "classes": _distinct(labels),
            "groups": list(_CORRECT),
            "flags": [],
            "data": {
                "x": [round(v, 3) for v in drawn["variability"].to_list()],
                "y": [round(v, 3) for v in drawn["confidence"].to_list()],
                "label": [code[label[row]] for row in drawn["row"].to_list()],
                "group": [0 if share_right >= 1 else 2 if share_right <= 0 else 1 for share_right in correct],
                "index": [source[row] for row in drawn["row"].to_list()],
                "flag": [],
                "labels": _distinct(labels),
                "groups": list(_CORRECT),
                "colour": "group",
                "axes": True,
            },
        },
    }


def _labels_by_row(data: CardData) -> tuple[dict[int, str], dict[int, int]]:
    if data.issues is not None:
        rows = data.issues["row"].to_list()
        return dict(zip(rows, data.issues["given_label"].to_list(), strict=True)), dict(
            zip(rows, data.issues["source_row"].to_list(), strict=True)
        )
    points = data.points or []
    return {i: p["label"] for i, p in enumerate(points)}, {i: p["index"] for i, p in enumerate(points)}


def leakage(data: CardData) -> Section:
    """Return what copies across splits do to the accuracy."""
    section: Section = {"id": "leakage", "title": "Do copies across splits flatter the accuracy?"}
    value = data.metric("leakage")
    # What needs no model is there even where the comparison is skipped.
    audit = (data.result.get("metrics") or {}).get("leakage") or {}
    section["facts"] = _leakage_facts(audit)
    section["pairs"] = _native_splits(audit)
    if not value:
        section["absent"] = data.why_not("leakage")
        return section
    section["lead"] = _leakage_lead(value)
    warnings = value.get("small_class_warning") or {}
    section["warning"] = warnings.get("leak_safe") or warnings.get("published")
    section["table"] = table(
        "leakage-table",
        "Of the reference model, as fractions. Copies are images of one group, exact and near ones together.",
        ["figure", "value #", "test images #", "interval"],
        _leakage_rows(value),
        open=True,
    )
    return section


def _leakage_lead(value: Value) -> str:
    number = value.get("leakage_inflation")
    interval = (value.get("intervals") or {}).get("leakage_inflation")
    if not _finite(number):
        reason = value.get("leakage_inflation_reason") or (value.get("leak_safe") or {}).get("reason")
        return f"How much copies raise the accuracy is not computable: {reason or 'no reason is given'}"
    limits = bounds(interval)
    said = f"Published minus leak-safe accuracy is {figure(number, interval)}"
    if limits and limits[0] > 0:
        return f"{said}: copies across splits make the model look better than it is."
    if limits and limits[1] >= 0:
        return f"{said}; the interval includes zero, so no such effect is shown."
    return f"{said}." if limits else f"{said}, without an interval: {how(interval)}"


def _leakage_rows(value: Value) -> list[list[str]]:
    intervals = value.get("intervals") or {}
    published, safe = value.get("published") or {}, value.get("leak_safe") or {}
    paired = value.get("paired") or {}
    with_copy, without = paired.get("with_copy") or {}, paired.get("without_copy") or {}
    mode = words(str(safe.get("mode", "mode not known")))
    rows = [
        ("accuracy, published split", "published.accuracy", published.get("accuracy"), (published,)),
        (f"accuracy, leak-safe ({mode})", "leak_safe.accuracy", safe.get("accuracy"), (safe,)),
        ("published minus leak-safe", "leakage_inflation", value.get("leakage_inflation"), (published, safe)),
        (
            "the same over the classes that are kept",
            "leakage_inflation_kept_classes",
            value.get("leakage_inflation_kept_classes"),
            (safe,),
        ),
        ("macro-F1, published split", "published.macro_f1", published.get("macro_f1"), (published,)),
        (f"macro-F1, leak-safe ({mode})", "leak_safe.macro_f1", safe.get("macro_f1"), (safe,)),
        (
            "accuracy, published, of images with a copy in train",
            "paired.with_copy.accuracy",
            with_copy.get("accuracy"),
            (with_copy,),
        ),
        (
            "accuracy, published, of images without one",
            "paired.without_copy.accuracy",
            without.get("accuracy"),
            (without,),
        ),
        ("with a copy minus without", "paired.difference", paired.get("difference"), (with_copy, without)),
    ]
    return [
        [
            name,
            figure(number, intervals.get(key)),
            " and ".join(count(part.get("n_test", part.get("n"))) for part in parts),
            how(intervals.get(key)),
        ]
        for name, key, number, parts in rows
    ]


def _leakage_facts(value: Value) -> list[str]:
    facts = []
    largest, safe = value.get("largest_group") or {}, value.get("leak_safe") or {}
    if largest.get("images"):
        cosine = largest.get("lowest_cosine")
        facts.append(
            f"The largest group of copies holds {plural(largest['images'], 'image')} ({percent(largest['share'])})"
            + (f"; the two least alike have a cosine of {figure(cosine)}." if _finite(cosine) else ".")
        )
    groups = (value.get("effective_sample_size") or {}).get("overall")
    if groups is not None:
        facts.append(f"Copies counted once, there are {plural(groups, 'image')} (effective sample size).")
    conflicts = value.get("label_conflicts") or {}
    if conflicts.get("images"):
        facts.append(
            f"{plural(conflicts['images'], 'image')} in {plural(conflicts['groups'], 'group')} share their "
            "pixels but not the label."
        )
    if safe.get("sizes"):
        sizes = ", ".join(f"{count(n)} {split}" for split, n in safe["sizes"].items())
        facts.append(f"Images of the leak-safe split: {sizes}.")
    sent = value.get("images_sent_to_train") or {}
    if sent:
        reasons = "; ".join(f"{count(n)}: {short(reason)}" for reason, n in list(sent.items())[:5])
        facts.append(f"Images that went to train without being drawn: {reasons}.")
    left_out = safe.get("classes_left_out") or []
    if left_out:
        named = "; ".join(f"{short(c['class'], 40)} ({short(c['reason'], 60)})" for c in left_out[:10])
        more = f"; and {count(len(left_out) - 10)} more" if len(left_out) > 10 else ""
        facts.append(
            f"{plural(len(left_out), 'class', 'classes')} left out of the leak-safe figures: {named}{more}."
        )
    return facts


def _native_splits(value: Value) -> Section | None:
    native = value.get("native_splits")
    if not native:
        return None
    rows = [
        [
            pair.replace("-", " and "),
            "exact" if kind == "exact" else "exact or near",
            count(leak.get("groups")),
            ", ".join(f"{count(n)} {key.removesuffix('_images')}" for key, n in leak.items() if key != "groups"),
        ]
        for kind, pairs in native.items()
        for pair, leak in (pairs or {}).items()
    ]
    columns = ["splits", "copies", "groups in both #", "their images"]
    return table("native-table", "What the dataset's own splits share.", columns, rows)


HEALTH_KINDS = {
    "dark": "too dark",
    "light": "too bright",
    "blurry": "blurred",
    "low_information": "with little information",
    "odd_size": "of an odd size",
    "odd_aspect_ratio": "of an odd shape",
    "grayscale": "without colour",
    "outlier": "unlike all others",
}


def image_health(data: CardData) -> Section:
    """Return the images that stand out as images."""
    value = data.metric("image_health")
    section: Section = {"id": "health", "title": "Which images are faulty or odd?"}
    if not value:
        return section | {"absent": data.why_not("image_health")}
    issues: Value = value.get("issues") or {}
    total = value.get("total_images") or data.total()
    section["lead"] = _health_lead(value, issues, total)
    files = {} if data.issues is None else dict(zip(data.issues["source_row"], data.issues["file"], strict=True))
    pictures = Thumbnails(data.pixels, data.rows_by_source(), _HEALTH_BYTES)
    shown = [
        {
            "title": f"{HEALTH_KINDS.get(kind, words(kind))}: {plural(part['count'], 'image')}",
            "images": [
                _picture(
                    {"source_row": example["source_row"], "file": files.get(example["source_row"])},
                    pictures,
                    [("what", "score", figure(example.get("score"), decimals=3))],
                )
                for example in (part.get("worst") or [])[:_EXAMPLES]
            ],
            "rest": "",
        }
        for kind, part in issues.items()
        if part.get("count")
    ]
    shown = [kind for kind in shown if kind["images"]]
    section["first"], section["more"] = shown[:2], shown[2:]
    if shown:
        section["note"] = "Of each kind the worst are shown; a score of 0 is worst, 1 best."
    section["table"] = table(
        "health-table",
        f"Of {count(total)} images, each of which can have several. Judged on the centre square that models see.",
        ["kind", "images #", "share #", "rule"],
        (_health_row(kind, part) for kind, part in issues.items()),
    )
    section["correlations"] = _correlations(value.get("label_correlations") or {})
    return section


def _health_row(kind: str, part: Value) -> list[str]:
    judged = part.get("threshold") is not None
    widespread = " Widespread: a trait of the dataset." if part.get("widespread") else ""
    return [
        HEALTH_KINDS.get(kind, words(kind)),
        count(part.get("count")) if judged else "not judged",
        percent(part.get("rate", 0)) if judged else "not judged",
        f"{part.get('rule', '')}{widespread}",
    ]


def _health_lead(value: Value, issues: Value, total: float) -> str:
    counts = {kind: part["count"] for kind, part in issues.items() if part.get("count")}
    if not counts:
        return "No image is dark, bright, blurred, empty, odd in size or shape, or unlike all others."
    flagged = value.get("n_flagged", 0)
    found = ", ".join(f"{count(n)} {HEALTH_KINDS.get(kind, words(kind))}" for kind, n in counts.items())
    stand = "stand" if flagged != 1 else "stands"
    return f"{plural(flagged, 'image')} ({share(flagged, total)}) {stand} out: {found}."


def _correlations(value: Value) -> Section | None:
    """Return a table of what an image property alone says about the label."""
    if not value.get("properties"):
        return None
    baseline = value.get("baseline_accuracy")
    caption = "Accuracy of guessing the label from one property of the image alone"
    caption += f"; naming the largest class gives {figure(baseline)}." if _finite(baseline) else "."
    telling = value.get("correlated") or []
    return table(
        "correlations-table",
        caption,
        ["property", "accuracy #", "share of the errors that remains #", ""],
        (
            [
                words(str(part.get("property"))),
                figure(part.get("accuracy")),
                figure(part.get("score")),
                "gives the label away" if part.get("property") in telling else "",
            ]
            for part in value["properties"]
        ),
    )


def metadata(data: CardData) -> Section | None:
    """Return how classes are spread over the dataset's other columns; None where it has none."""
    value = data.metric("metadata_coverage")
    n_values = value.get("n_values") or {}
    rows = [
        [
            name,
            count(n_values.get(name)),
            figure(min(classes.values())),
            figure(sum(classes.values()) / len(classes)),
        ]
        for name, classes in (value.get("normalized_entropy_dataset") or {}).items()
        if classes
    ]
    rows += [
        [name, count(part.get("n_values")), "not computable", short(part.get("reason", ""), 120)]
        for name, part in (value.get("not_covered") or {}).items()
    ]
    if not rows:
        return None
    return {
        "id": "metadata",
        "title": "Are the classes spread over the other columns?",
        "lead": f"{plural(len(rows), 'column')} beside the label. Evenness is 1 where a class meets every value "
        "equally often, and 0 where it meets one only.",
        "table": table(
            "metadata-table",
            "Evenness of the classes over the values of each column.",
            ["column", "values #", "least even class #", "mean of the classes #"],
            rows,
            open=True,
        ),
    }


SECTIONS: tuple[Callable[[CardData], Section | None], ...] = (
    class_balance,
    resolution,
    metadata,
    embedding_map,
    duplicates,
    suspicious_labels,
    confusion,
    cartography,
    leakage,
    image_health,
)
"""In the order of the page; each answers one question."""
