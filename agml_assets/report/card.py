"""The dataset card: one HTML file that opens from disk, asks nothing of the network, and says what to fix first.

What its sections say is in `card_sections.py`, how they look in `templates/`; here are the head of the card, the
verdict, and the putting together.
"""

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from agml_assets.quality.score import WEIGHTS, score
from agml_assets.report.card_sections import (
    HEALTH_KINDS,
    SECTIONS,
    CardData,
    Section,
    Value,
    bounds,
    count,
    figure,
    honest_noise,
    how,
    named,
    noise_rate_words,
    plural,
    printable,
    share,
    short,
    words,
)

__all__ = ["CardData", "build_card"]

MAX_BYTES = 5_000_000
"""Size that a card keeps within, whatever the dataset."""

FEW_IMAGES = 30
"""Images below which a class teaches and tests little; the smallest sample that the report trusts."""

SEVERE_CONFLICTS, SEVERE_NOISE, SEVERE_LEAKAGE = 0.005, 0.03, 0.01
SEVERE_UNUSABLE, SEVERE_EMPTY, SEVERE_COPIES = 0.01, 0.1, 0.2
"""Shares of the images, or classes, above which the verdict is that a dataset is not ready; by judgement, about
where a fault is as large as the differences between models that a benchmark is to tell apart."""

_CHARTS = ("bokeh.min.js", "bokeh-api.min.js")
_PROVENANCE_LENGTH = 200_000
_FIXES_FIRST = 3
_OPTIONAL = (
    "absent", "how", "warning", "bars", "spans", "chart", "chart_absent", "chart_note", "matrix", "first", "more",
    "conflicts", "note", "facts", "pairs", "table", "correlations",
)  # fmt: skip
"""Parts of a section that the templates look for."""

_DRIVERS = {
    "balance": "evenness of the classes",
    "redundancy": "images without a copy",
    "resolution": "evenness of the sizes",
    "leakage_penalty": "copies across splits",
    "silhouette": "silhouette of the classes",
    "davies_bouldin": "Davies-Bouldin index of the classes",
    "separability": "separation of the classes",
    "cartography": "images that are learnt",
    "confusability": "accuracy on test images",
    "diversity": "differences inside classes",
    "annotation": "labels that look right",
}
_SUBTRACTED = "leakage_penalty"
_PARTS = {
    "structural": ("balance", "redundancy", "resolution", "leakage_penalty"),
    "difficulty": ("silhouette", "davies_bouldin", "cartography", "confusability"),
    "diversity": ("diversity",),
    "annotation": ("annotation",),
}


@dataclass(frozen=True)
class Fix:
    """Something to repair.

    Attributes:
        harm: How much it matters, for the order: what one affected image does, times their share.
        number: What is counted, with its noun.
        said: What is wrong with it.
        do: What to do.
        section: Where the evidence is.
        severe: Whether a dataset should not be published with it.
        effect: What changes when it is done.
    """

    harm: float
    number: str
    said: str
    do: str
    section: str
    severe: bool = False
    effect: str = ""


def build_card(card: CardData) -> str:
    """Return the card of a dataset as one HTML page.

    The same data give the same page, byte for byte. Everything that comes from the dataset is escaped, and the
    page forbids itself any script but its own and any request.

    Args:
        card: The report and what pictures and plots are made from; what is missing is named on the page.
    """
    card = replace(card, issues=_usable_issues(card.issues))
    page = _render(card)
    for less in ({"pixels": None}, {"pixels": None, "maps": False}):
        if len(page.encode()) > MAX_BYTES:
            page = _render(replace(card, **less))
    return page


def _usable_issues(issues: pl.DataFrame | None) -> pl.DataFrame | None:
    """Return the issues with a group for every image; None where there is nothing to show."""
    if issues is None or issues.is_empty():
        return None
    # Without current vectors only exact copies are known; without hashes, none.
    return issues.with_columns(joined_group=pl.coalesce("joined_group", "exact_group", "row"))


def _render(card: CardData) -> str:
    fixes = find_fixes(card)
    scripts = _scripts()
    style = (files("agml_assets.report") / "templates" / "card.css").read_text("utf-8")
    shown = [section for section in (measure(card) for measure in SECTIONS) if section]
    sections = [{**dict.fromkeys(_OPTIONAL), **section} for section in shown]
    hashes = " ".join(f"'sha256-{b64encode(sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        _environment()
        .get_template("card.html")
        .render(
            name=named(card.result.get("dataset", ""), 200),
            facts=_facts(card),
            verdict=_verdict(card, fixes),
            breaches=[short(breach, 300) for breach in card.result.get("breaches") or []][:20],
            score=_score(card),
            axes=_axes(card),
            fixes=fixes[:_FIXES_FIRST],
            more_fixes=fixes[_FIXES_FIRST:],
            sections=sections,
            provenance=_provenance(card),
            policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {hashes}; "
            "base-uri 'none'; form-action 'none'",
            style=Markup(style),  # noqa: S704 - our own file
            scripts=[Markup(script) for script in scripts],  # noqa: S704 - our own and the plotting library's
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("agml_assets.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["json"] = _json_in_script
    return environment


def _json_in_script(value: Any) -> Markup:
    """Return JSON that nothing in it can end or change the script element around it."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - escaped above; U+2028 and its like are by ensure_ascii


@cache
def _scripts() -> tuple[str, ...]:
    library = files("bokeh") / "server" / "static" / "js"
    sources = [(library / name).read_text("utf-8") for name in _CHARTS]
    sources.append((files("agml_assets.report") / "templates" / "card.js").read_text("utf-8"))
    # The address of a source map would be asked for by the browser's developer tools.
    lines = ("\n".join(s for s in source.splitlines() if not s.startswith("//# source")) for source in sources)
    return tuple(source.replace("</script", "<\\/script") for source in lines)


# --- The head of the card


def _facts(card: CardData) -> str:
    facts = card.result.get("reproducibility") or {}
    total, source = card.total(), facts.get("source_images")
    classes = facts.get("num_classes")
    said = [plural(total, "image") if total else "number of images not known"]
    said[0] += f" in {plural(classes, 'class', 'classes')}" if classes else ""
    if source and source != total:
        said.append(f"{count(source - total)} more in the source are unreadable or without label")
    if facts.get("revision"):
        said.append(f"revision {short(facts['revision'], 20)}")
    phases = card.result.get("phases_completed") or []
    said.append(f"phases completed: {', '.join(map(str, phases)) or 'none'} (of 3)")
    if card.result.get("date"):
        said.append(f"measured {short(card.result['date'], 20)}")
    return " · ".join(said)


def _verdict(card: CardData, fixes: list[Fix]) -> Section:
    severe = [fix for fix in fixes if fix.severe]
    metrics = card.result.get("metrics") or {}
    lacking = [name for name in _EXPECTED if name not in metrics or metrics[name].get("skipped")]
    if len(lacking) == len(_EXPECTED):
        return {
            "tone": "none",
            "word": "Not measured.",
            "said": "There is no metric of it yet.",
            "trust": "",
        }
    if severe:
        tone, word = "stop", "Not ready to publish as it is."
    elif fixes:
        tone, word = "care", "Usable, with care."
    else:
        tone, word = "good", "Nothing found that needs fixing" + (" in what was measured." if lacking else ".")
    named = severe[:_FIXES_FIRST] or fixes[:_FIXES_FIRST]
    said = "; ".join(f"{fix.number} {fix.said}" for fix in named)
    trust = (
        f"Not measured: {', '.join(words(name) for name in lacking)}." if lacking else "Every metric was computed."
    )
    return {"tone": tone, "word": word, "said": f"{said}." if said else "", "trust": trust}


_EXPECTED = (
    "class_imbalance", "exact_duplicate", "resolution_consistency", "near_duplicate",
    "feature_separability", "intra_class_diversity", "dataset_cartography", "class_confusability",
    "label_noise", "leakage", "image_health",
)  # fmt: skip
"""What a verdict rests on. Metadata are not everybody's, so their absence is no gap."""


def _score(card: CardData) -> list[Section]:
    value = card.result.get("score") or {}
    intervals = value.get("intervals") or {}
    formula = str(value.get("formula", "agml-2026"))
    published = (intervals.get(formula) or {}).get("overall")
    missing = list(value.get("unavailable") or {})
    shown = [
        {
            "name": formula,
            "value": _points(value.get("overall"), published),
            "said": "Published formula, of 10"
            + (f"; without {' and '.join(missing)}, which is not measured." if missing else "."),
            "how": f"Interval: {how(published)}.",
        }
    ]
    own = value.get("calibrated") or {}
    limits = bounds(own.get("overall"))
    if limits:
        interval = (intervals.get(str(own.get("formula"))) or {}).get("overall")
        whole = limits[0] == limits[1]
        shown.append(
            {
                "name": str(own.get("formula", "calibrated-1")),
                "value": _points(limits[0], interval) if whole else f"{limits[0]:.1f} to {limits[1]:.1f}",
                "said": "Anchored at chance and at ideal, copies counted once, of 10"
                + ("." if whole else "; a range, as an axis that is not measured may be 0 or 10."),
                "how": "" if how(interval) == how(published) else f"Interval: {how(interval)}.",
            }
        )
    return shown


def _points(value: Any, interval: Any) -> str:
    """Return points of a score with the one decimal that it has."""
    if value is None:
        return "not computable"
    limits = bounds(interval)
    return f"{value:.1f}" + (f" [{limits[0]:.1f}, {limits[1]:.1f}]" if limits else "")


def _axes(card: CardData) -> list[Section]:
    value = card.result.get("score") or {}
    formula = str(value.get("formula", "agml-2026"))
    of_axes = ((value.get("intervals") or {}).get(formula) or {}).get("axes") or {}
    own = (value.get("calibrated") or {}).get("axes") or {}
    shown = []
    for axis in WEIGHTS:
        points = (value.get("axes") or {}).get(axis)
        interval = bounds(of_axes.get(axis))
        reason = (value.get("unavailable") or {}).get(axis, "no reason is given.")
        calibrated = own.get(axis)
        shown.append(
            {
                "name": axis.capitalize(),
                "value": _points(points, of_axes.get(axis)),
                "measured": points is not None,
                "width": None if points is None else round(10 * points, 2),
                "whisker": interval and (round(10 * interval[0], 2), round(10 * (interval[1] - interval[0]), 2)),
                "mark": None if calibrated is None else round(10 * calibrated, 2),
                "calibrated": None if calibrated is None else f"{calibrated:.1f}",
                "said": _drivers(axis, value) if points is not None else f"Not computable: {short(reason, 300)}",
                "census": short((of_axes.get(axis) or {}).get("reason", ""), 200) if points is not None else "",
            }
        )
    return shown


def _drivers(axis: str, value: Value) -> str:
    """Return what an axis is made of, what holds it down first."""
    components = value.get("components") or {}
    parts = sorted((components[name], name) for name in _PARTS[axis] if name in components)
    said = "; ".join(
        f"{_DRIVERS[name]} {'−' if name == _SUBTRACTED else ''}{points:.1f}"
        for points, name in parts
        if name != _SUBTRACTED or points
    )
    incomplete = (value.get("incomplete") or {}).get(axis)
    return said[:1].upper() + said[1:] + (f". {short(incomplete, 200)}" if incomplete else ".")


# --- What to fix first


def find_fixes(card: CardData) -> list[Fix]:
    """Return what to repair: what forbids publishing first, then by harm.

    Harm of one affected image, by judgement: two labels for one picture 10 (one of them is certainly wrong); a
    suspicious label 4; a copy across splits 3 (it falsifies every accuracy); an image that is unreadable 2; a copy
    1; an image that stands out 0.5. Times the share of images or classes affected.
    """
    found = [
        _conflicting_labels(card),
        _wrong_labels(card),
        _copies_across_splits(card),
        _unusable(card),
        _classes_without_images(card),
        _small_classes(card),
        _doubtful_names(card),
        _copies(card),
        _telling_properties(card),
        _odd_images(card),
    ]
    return sorted((fix for fix in found if fix), key=lambda fix: (not fix.severe, -fix.harm))


def _score_without(card: CardData, **changes: Mapping[str, Any]) -> str:
    """Return in words what the published score becomes when these figures change and all else stays."""
    metrics = card.result.get("metrics") or {}
    phases = card.result.get("phases_completed") or []
    changed = {**metrics, **{name: {**metrics[name], **new} for name, new in changes.items() if name in metrics}}
    before, after = (score(m, phases)["overall"] for m in (metrics, changed))
    if before is None or after is None or after == before:
        return ""
    return f"That alone takes the published score from {before:.1f} to {after:.1f}."


def _conflicting_labels(card: CardData) -> Fix | None:
    near, exact = card.metric("near_duplicate"), card.metric("exact_duplicate").get("blake3") or {}
    conflicts = near.get("label_conflicts") or exact.get("label_conflicts") or {}
    n, total = conflicts.get("images", 0), card.total()
    if not n or not total:
        return None
    groups = conflicts.get("groups", 0)
    same = (exact.get("label_conflicts") or {}).get("images", 0)
    return Fix(
        harm=10 * n / total,
        number=plural(n, "image"),
        said=f"in {plural(groups, 'group')} of copies carry different labels",
        do=f"Look at each group and settle the label, or drop the group; {count(same)} of them share every pixel.",
        section="duplicates",
        severe=n / total > SEVERE_CONFLICTS,
    )


def _wrong_labels(card: CardData) -> Fix | None:
    value = card.metric("label_noise")
    if not value:
        return None
    safe = honest_noise(value)
    n, total = safe["n_noisy_samples"], safe["n_total_samples"]
    if not n:
        return None
    limits = bounds(value.get("adjusted_noise_rate"))
    return Fix(
        harm=4 * (limits[0] if limits else n / total / 2),
        number=plural(n, "label"),
        said=f"look{'' if n != 1 else 's'} wrong ({share(n, total)})",
        do="Check them, most suspicious first; correct or drop. " + noise_rate_words(value),
        section="labels",
        severe=bool(limits and limits[0] > SEVERE_NOISE),
        effect=_score_without(card, label_noise={"estimated_noise_rate": 0.0}),
    )


def _copies_across_splits(card: CardData) -> Fix | None:
    near, exact = card.metric("near_duplicate"), card.metric("exact_duplicate")
    n = near.get("cross_split_near_duplicates", exact.get("cross_split_duplicates", 0))
    total = card.total()
    if not n or not total:
        return None
    effect = _score_without(
        card,
        near_duplicate={"cross_split_near_duplicates": 0},
        exact_duplicate={"cross_split_duplicates": 0},
    )
    leaks = card.metric("leakage")
    interval = (leaks.get("intervals") or {}).get("leakage_inflation")
    if bounds(interval):
        said = figure(leaks.get("leakage_inflation"), interval)
        effect = f"{effect} Published minus leak-safe accuracy is {said}.".strip()
    return Fix(
        harm=3 * n / total,
        number=plural(n, "image"),
        said=f"{'belong' if n != 1 else 'belongs'} to a group of copies in several splits ({share(n, total)})",
        do="Split by groups of copies, as training/grouped_splits does, before publishing any accuracy.",
        section="leakage" if card.metric("leakage") else "duplicates",
        severe=n / total > SEVERE_LEAKAGE,
        effect=effect,
    )


def _unusable(card: CardData) -> Fix | None:
    facts = card.result.get("reproducibility") or {}
    source, usable = facts.get("source_images"), facts.get("num_images")
    if not source or usable is None or source <= usable:
        return None
    n = source - usable
    return Fix(
        harm=2 * n / source,
        number=plural(n, "image"),
        said=f"cannot be used: unreadable or without label ({share(n, source)})",
        do="See excluded_reason in dataset/image_index.parquet; replace the files or take them out.",
        section="provenance",
        severe=n / source > SEVERE_UNUSABLE,
    )


def _classes_without_images(card: CardData) -> Fix | None:
    value = card.metric("class_imbalance")
    declared = value.get("n_declared_classes") or len(value.get("class_totals") or {})
    empty, untrained = value.get("empty_classes") or [], value.get("untrained_classes") or []
    n = len(empty) + len(untrained)
    if not n or not declared:
        return None
    return Fix(
        harm=n / declared,
        number=plural(n, "class", "classes"),
        said=f"of {count(declared)} without a training image, {count(len(empty))} of them without any image",
        do="Take them out of the list of classes, or add images.",
        section="balance",
        severe=n / declared > SEVERE_EMPTY,
    )


def _small_classes(card: CardData) -> Fix | None:
    totals = card.metric("class_imbalance").get("class_totals") or {}
    small = [name for name, n in totals.items() if 0 < n < FEW_IMAGES]
    if not small:
        return None
    return Fix(
        harm=0.5 * len(small) / len(totals),
        number=plural(len(small), "class", "classes"),
        said=f"of {count(len(totals))} {'have' if len(small) != 1 else 'has'} fewer than {FEW_IMAGES} images",
        do="Add images, or join classes; figures of single classes this small are unreliable.",
        section="balance",
    )


def _doubtful_names(card: CardData) -> Fix | None:
    """Return the classes that may be one under two names, or a folder that is no class."""
    value = card.metric("class_imbalance")
    alike, like_splits = value.get("alike_class_names") or {}, value.get("classes_called_like_splits") or []
    n, declared = alike.get("classes", 0), value.get("n_declared_classes")
    if not declared or not (n or like_splits):
        return None
    examples = [group["classes"][:2] for group in (alike.get("examples") or [])[:2]]
    said = []
    if n:
        said.append(
            "called almost alike, such as " + "; ".join(" and ".join(map(_quoted, one)) for one in examples)
        )
    if like_splits:
        said.append(f"called like splits: {', '.join(map(_quoted, like_splits[:3]))}")
    n_doubtful = n + len(like_splits)
    return Fix(
        harm=0.5 * min(n_doubtful, declared) / declared,
        number=plural(n_doubtful, "class", "classes"),
        said=f"of {count(declared)} {'are' if n_doubtful != 1 else 'is'} {', or '.join(said)}",
        do="Join what is one class under two names, and see that no folder of a split was taken for a class.",
        section="balance",
    )


def _quoted(name: str) -> str:
    return f"\N{LEFT DOUBLE QUOTATION MARK}{named(name, 40)}\N{RIGHT DOUBLE QUOTATION MARK}"


def _copies(card: CardData) -> Fix | None:
    near, exact = card.metric("near_duplicate"), card.metric("exact_duplicate").get("blake3") or {}
    total = card.total()
    n = total - near["effective_images"] if "effective_images" in near else exact.get("redundant_images", 0)
    if not n or not total:
        return None
    left = f" {plural(total - n, 'independent image')} would be left."
    return Fix(
        harm=n / total,
        number=plural(n, "image"),
        said=f"could go without losing a picture ({share(n, total)})",
        do="Decide which of each group to keep." + left + _clean_list(card),
        section="duplicates",
        severe=n / total > SEVERE_COPIES,
        effect=_score_without(
            card,
            near_duplicate={"near_duplicate_rate": 0.0, "cross_split_near_duplicates": 0},
            exact_duplicate={"exact_duplicate_rate": 0.0, "cross_split_duplicates": 0},
        ),
    )


def _clean_list(card: CardData) -> str:
    if card.issues is None or card.issues["keep"].null_count():
        return ""
    kept = card.issues.filter("keep").height
    return (
        f" The column keep of report/issues.parquet keeps {plural(kept, 'image')}: no exact copy, no copy across "
        "splits, no copies with different labels."
    )


def _telling_properties(card: CardData) -> Fix | None:
    """Return the shortcuts: properties of an image alone that give its label away."""
    telling = (card.metric("image_health").get("label_correlations") or {}).get("correlated") or []
    if not telling:
        return None
    return Fix(
        harm=0.4,
        number=plural(len(telling), "image property", "image properties"),
        said=f"{'give' if len(telling) != 1 else 'gives'} the label away: {', '.join(map(words, telling))}",
        do="Find out whether the classes were photographed differently; a model may learn that instead.",
        section="health",
    )


def _odd_images(card: CardData) -> Fix | None:
    value = card.metric("image_health")
    issues = value.get("issues") or {}
    # What many images have is a trait of the dataset, nothing to repair.
    kinds = {
        kind: part["count"] for kind, part in issues.items() if part.get("count") and not part.get("widespread")
    }
    total = card.total()
    if not kinds or not total:
        return None
    n = max(kinds.values())
    listed = ", ".join(f"{count(k)} {HEALTH_KINDS.get(kind, words(kind))}" for kind, k in kinds.items())
    return Fix(
        harm=0.5 * n / total,
        number=listed,
        said=f"of {plural(total, 'image')}",
        do="Look at them, and drop those that show nothing of their class.",
        section="health",
    )


# --- Provenance


def _provenance(card: CardData) -> Section:
    facts = card.result.get("reproducibility") or {}
    everything = {
        "dataset": card.result.get("dataset"),
        "date": card.result.get("date"),
        "phases_completed": card.result.get("phases_completed"),
        "reproducibility": facts,
        "config_used": card.config_used,
    }
    text = json.dumps(everything, indent=2, ensure_ascii=False, default=str)
    artifacts = card.config_used.get("artifacts") or {}
    stale = [
        (short(key, 60), short(f"{part.get('state')}. {part.get('reason', '')}".strip(), 300))
        for key, part in artifacts.items()
        if part.get("state") != "current"
    ]
    embedder = facts.get("embedder") or {}
    versions = facts.get("versions") or {}
    listed = [
        ("source", _pairs(facts.get("source"))),
        ("revision", facts.get("revision")),
        ("configuration", facts.get("config")),
        ("embedding model", facts.get("embed_model")),
        ("its weights", embedder.get("weights") or embedder.get("revision")),
        ("reference model", facts.get("backbone")),
        (
            "split recipe, seed",
            f"{facts.get('split_recipe', 'not known')}, {facts.get('split_seed', 'not known')}",
        ),
        ("split digest", facts.get("split_digest")),
        ("versions", _pairs(versions)),
        ("images decoded by", facts.get("decoder")),
        ("device", facts.get("device")),
    ]
    return {
        "facts": [(name, short(value, 300) if value else "not stated") for name, value in listed],
        "artifacts": stale,
        "n_artifacts": len(artifacts),
        "json": printable(text[:_PROVENANCE_LENGTH]),
        "cut": len(text) > _PROVENANCE_LENGTH,
    }


def _pairs(value: Any) -> str:
    return ", ".join(f"{key} {part}" for key, part in value.items()) if isinstance(value, Mapping) else ""
