"""`croissant.json`: the dataset as measured, in Croissant 1.1, for search engines and data loaders.

What the report knows becomes JSON-LD: the tables that lie beside it, statistics as annotations, where the
images came from and what measured them (PROV-O), and responsible-AI notes in plain words. Nothing is measured
here, and nothing is said that the report does not know: no licence, no author, no date.

Terms: http://mlcommons.org/croissant/1.1 and http://mlcommons.org/croissant/RAI/1.0.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

import polars as pl

from agml_assets.dataset.artifacts import IMAGE_INDEX, SPLITS
from agml_assets.dataset.image_index import declared_classes, usable_images
from agml_assets.lineage import Artifact, Verdict
from agml_assets.quality.calibrated_score import calibrated_score
from agml_assets.quality.groups import SPLITS as SPLIT_NAMES
from agml_assets.quality.summary import MEASURED, current_metrics
from agml_assets.report.artifacts import CROISSANT, ISSUES
from agml_assets.workspace import DatasetWorkspace

_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "annotation": "cr:annotation",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "name": {"@container": "@language"},
    "parentField": "cr:parentField",
    "path": "cr:path",
    "prov": "http://www.w3.org/ns/prov#",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
    "wd": "http://www.wikidata.org/entity/",
}
_CARDINALITY = "wd:Q4049983"
_SPLIT_TYPES = {"train": "cr:TrainingSplit", "val": "cr:ValidationSplit", "test": "cr:TestSplit"}
_HASH_CHUNK = 1 << 24
_HUB = "https://huggingface.co/datasets/"
_LISTED = 5  # classes or reasons in a sentence

_FIELDS = {
    "source_row": "Position of the image in its source, from 0.",
    "row": "Position among the usable images, from 0; empty where the image was excluded.",
    "excluded_reason": "Why the image is not measured.",
    "file": "Name of the image's file, where it has one.",
    "label": "Number of the class, in the order of the declared classes.",
    "class_name": "Class of the image.",
    "native_split": "Split that the source puts the image in.",
    "width": "Pixels in the file's header, before any rotation that its EXIF data asks for.",
    "height": "Pixels in the file's header, before any rotation that its EXIF data asks for.",
    "bytes": "Size of the file.",
    "given_label": "Class of the image.",
    "suggested_label": "Class that a model which saw no copy of the image holds for more probable.",
    "split": "Split of the image by the recipe of the report.",
    "grouped_split": "Split of the image where copies never straddle.",
    "exact_group": "Smallest row with the same pixels.",
    "near_group": "Smallest row that a chain of near-duplicates leads to.",
    "joined_group": "Smallest row that a chain of exact and near-duplicates leads to.",
    "keep": "Whether a clean copy of the dataset keeps the image.",
    "drop_reason": "Why a clean copy of the dataset drops the image.",
}
"""What columns hold; those of one kind of issue are described by their name."""

Metrics = Mapping[str, Mapping[str, Any]]


def build_croissant(dataset: DatasetWorkspace, verdicts: Mapping[str, Verdict]) -> dict[str, Any]:
    """Return the Croissant description of a dataset from what is current in the store.

    Args:
        dataset: Whose report; its files are named relative to the folder that `croissant.json` lies in, with
            the SHA-256 of their stored bytes.
        verdicts: Judgement of its artifacts. The table of issues is described as it is stored.

    Returns:
        JSON-LD that `mlcroissant` accepts. Record sets: `classes` and `splits` with their numbers of images,
        `images` over the image index, `issues` over the table of issues; those of which nothing is current are
        left out. The images themselves stay where they are and are named as what the tables derive from: the
        checksum of a repository, which a file object needs, is not known.
    """
    metrics = {
        name: value for name, value in current_metrics(dataset, verdicts)[0].items() if not value.get("skipped")
    }
    index = _read_current(dataset, IMAGE_INDEX, verdicts)
    splits = _read_current(dataset, SPLITS, verdicts)
    files, record_sets = [], []
    if index is not None:
        record_sets.append(_describe_classes(index))
        if splits is not None:
            record_sets.append(_describe_splits(splits[dataset.settings.split_recipe]))
        files.append(_describe_file(dataset, IMAGE_INDEX, "One row for each image of the source."))
        record_sets.append(_describe_table(IMAGE_INDEX, "images", "source_row", index.schema, has_splits=False))
        record_sets[-1]["annotation"] = list(_statistics(index, metrics))
    if index is not None and dataset.store.sidecar(dataset.key, ISSUES.file) is not None:
        issues = dataset.read(ISSUES)
        files.append(_describe_file(dataset, ISSUES, "What was found about each usable image."))
        table = _describe_table(ISSUES, "issues", "row", issues.schema, has_splits=splits is not None)
        record_sets.append(table)
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": dataset.entry.name,
        "description": _describe(dataset, index),
        "conformsTo": ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"],
        **_provenance(dataset, verdicts),
        **_responsible_ai(dataset, index, metrics),
        "distribution": files,
        "recordSet": record_sets,
    }


def _read_current(dataset: DatasetWorkspace, artifact: Artifact, verdicts: Mapping[str, Verdict]) -> Any:
    return dataset.read(artifact) if verdicts[artifact.key].state == "current" else None


def _describe(dataset: DatasetWorkspace, index: pl.DataFrame | None) -> str:
    if index is None:
        return f"{dataset.entry.name}, of which no image was read yet. Licence and authors: see the source."
    return (
        f"{dataset.entry.name}: {index['row'].count()} labelled images of {len(declared_classes(index))} classes, "
        f"measured by agml-assets. These files describe the images, which are not part of them. "
        f"Licence and authors are not recorded here: see the source."
    )


def _describe_file(dataset: DatasetWorkspace, artifact: Artifact, description: str) -> dict[str, Any]:
    path = dataset.store.path(dataset.key, artifact.file)
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as handle:
        while chunk := handle.read(_HASH_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    room, _, name = artifact.file.rpartition("/")
    beside = room == CROISSANT.file.rpartition("/")[0]
    return {
        "@type": "cr:FileObject",
        "@id": path.name,
        "name": path.name,
        "description": description,
        "contentUrl": name if beside else f"../{artifact.file}",
        "contentSize": f"{size} B",
        "encodingFormat": "application/x-parquet",
        "sha256": digest.hexdigest(),
    }


def _describe_classes(index: pl.DataFrame) -> dict[str, Any]:
    """Return the record set of the declared classes, with how many images each has."""
    names = declared_classes(index)
    counts = dict(usable_images(index).group_by("label").len().iter_rows())
    fields: dict[str, tuple[str | list[str], str]] = {
        "name": ("sc:Text", "Name of the class."),
        "label": ("sc:Integer", "Number of the class."),
        "images": ("sc:Integer", "Usable images of the class."),
    }
    rows = [(name, label, counts.get(label, 0)) for label, name in enumerate(names)]
    return _inline("classes", "sc:Enumeration", "Declared classes, with and without images.", fields, rows)


def _describe_splits(split: pl.Series) -> dict[str, Any]:
    """Return the record set of the splits, with how many images each has."""
    fields: dict[str, tuple[str | list[str], str]] = {
        "name": ("sc:Text", "Name of the split."),
        "url": (["sc:URL", "cr:Split"], "What the split is for."),
        "images": ("sc:Integer", "Usable images in the split."),
    }
    rows = [(name, _SPLIT_TYPES[name], int((split == name).sum())) for name in SPLIT_NAMES]
    return _inline("splits", "cr:Split", "Splits by the recipe of the report.", fields, rows)


def _inline(
    name: str,
    kind: str,
    description: str,
    fields: Mapping[str, tuple[str | list[str], str]],
    rows: list[tuple[Any, ...]],
) -> dict[str, Any]:
    """Return a record set that carries its records, its first field being the key."""
    ids = [f"{name}/{field}" for field in fields]
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": description,
        "dataType": kind,
        "key": {"@id": ids[0]},
        "field": [
            {"@type": "cr:Field", "@id": one, "name": field, "description": text, "dataType": dtype}
            for one, (field, (dtype, text)) in zip(ids, fields.items(), strict=True)
        ],
        "data": [dict(zip(ids, row, strict=True)) for row in rows],
    }


def _describe_table(
    artifact: Artifact, name: str, key: str, schema: Mapping[str, pl.DataType], *, has_splits: bool
) -> dict[str, Any]:
    """Return the record set over the columns of a stored table."""
    ids = _field_ids(name, schema)
    fields = []
    for column, dtype in schema.items():
        field: dict[str, Any] = {
            "@type": "cr:Field",
            "@id": ids[column],
            "name": column,
            "description": _FIELDS.get(column, column.removeprefix("meta.").replace("_", " ")),
            "dataType": _data_type(dtype),
            "source": {"fileObject": {"@id": artifact.name + artifact.suffix}, "extract": {"column": column}},
        }
        if column in ("class_name", "given_label"):
            field |= {"dataType": ["sc:Text", "cr:Label"], "references": {"field": {"@id": "classes/name"}}}
        if column == "split" and has_splits:
            field |= {"dataType": ["sc:Text", "cr:Split"], "references": {"field": {"@id": "splits/name"}}}
        fields.append(field)
    return {"@type": "cr:RecordSet", "@id": name, "name": name, "key": {"@id": ids[key]}, "field": fields}


def _field_ids(name: str, columns: Mapping[str, Any]) -> dict[str, str]:
    """Return an identifier for each column: an IRI has no spaces, and two columns never the same."""
    ids: dict[str, str] = {}
    for column in columns:
        plain = f"{name}/{re.sub(r'[^A-Za-z0-9._-]', '_', column)}"
        number = sum(other == plain or other.startswith(f"{plain}~") for other in ids.values())
        ids[column] = f"{plain}~{number + 1}" if number else plain
    return ids


def _data_type(dtype: pl.DataType) -> str:
    if dtype == pl.Boolean:
        return "sc:Boolean"
    if dtype.is_integer():
        return "sc:Integer"
    return "sc:Float" if dtype.is_float() else "sc:Text"


_STATISTICS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "exact_duplicate_rate",
        ("exact_duplicate", "blake3", "duplicate_rate"),
        "Share of images with a copy.",
    ),
    (
        "near_duplicate_rate",
        ("near_duplicate", "near_duplicate_rate"),
        "Share of images with a near-duplicate, exact copies among them.",
    ),
    ("effective_images", ("near_duplicate", "effective_images"), "Images when each group of copies counts once."),
    (
        "normalized_entropy",
        ("class_imbalance", "normalized_entropy"),
        "Balance of the training classes, 0 to 1.",
    ),
    ("imbalance_ratio", ("class_imbalance", "imbalance_ratio"), "Largest over smallest class in training."),
    ("accuracy", ("leakage", "published", "accuracy"), "Test accuracy of the reference model."),
    (
        "leak_safe_accuracy",
        ("leakage", "leak_safe", "accuracy"),
        "The same without copies in training.",
    ),
    (
        "suspected_label_rate",
        ("label_noise", "leak_safe", "estimated_noise_rate"),
        "Share of labels that confident learning suspects, copies kept in one fold.",
    ),
    (
        "unhealthy_rate",
        ("image_health", "flagged_rate"),
        "Share of dark, blurred, odd, outlying images.",
    ),
)
"""Annotations of the images: name, where the report has the figure, what it says."""


def _statistics(index: pl.DataFrame, metrics: Metrics) -> Iterator[dict[str, Any]]:
    """Yield the figures of the dataset as annotations; those that could not be computed are left out."""
    yield _annotation("count", index.height, "Images in the source.", _CARDINALITY)
    yield _annotation("usable_count", index["row"].count(), "Images that are decoded and labelled.")
    for name, place, description in _STATISTICS:
        value = _figure(metrics, *place)
        if value is not None:
            yield _annotation(name, value, description)
    scored = calibrated_score(metrics, honest=True)
    for end, value in scored["overall"].items():
        text = f"{end.capitalize()} end of the overall score, 0 to 10, formula {scored['formula']}."
        yield _annotation(f"score_{end}", value, text)


def _annotation(name: str, value: float, description: str, *terms: str) -> dict[str, Any]:
    dtype = "sc:Integer" if isinstance(value, int) else "sc:Float"
    return {
        "@type": "cr:Field",
        "@id": f"images/statistics/{name}",
        "name": name,
        "description": description,
        "dataType": [dtype, *terms] if terms else dtype,
        "value": value,
    }


def _figure(metrics: Metrics, *place: str) -> Any:
    """Return one figure of the report, or None where it was not or could not be measured."""
    value: Any = metrics
    for key in place:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _provenance(dataset: DatasetWorkspace, verdicts: Mapping[str, Verdict]) -> dict[str, Any]:
    """Return where the images came from, and the software and settings that measured them."""
    entry = dataset.entry
    is_current = verdicts[IMAGE_INDEX.key].state == "current"
    resolved = dataset.sidecar(IMAGE_INDEX).info.get("resolved", {}) if is_current else {}
    url = f"{_HUB}{entry.name}" if entry.source == "hf" and entry.path is None else None
    revision = resolved.get("revision") if url else None
    origin = f"{url}/tree/{revision}" if revision else url or f"urn:agml-assets:{entry.source}:{entry.key}"
    names = sorted({name for artifact in MEASURED.values() for name in artifact.settings})
    facts = {"source": entry.source, "config": resolved.get("config"), "revision": revision}
    software = {"name": "agml-assets", "version": version("agml-assets")}
    return {
        **({"url": url} if url else {}),
        "prov:wasDerivedFrom": {
            "@id": origin,
            "@type": "prov:Entity",
            "prov:label": entry.name,
            "additionalProperty": _properties({k: v for k, v in facts.items() if v is not None}),
        },
        "prov:wasGeneratedBy": {
            "@type": "prov:Activity",
            "prov:label": f"Measurement of {entry.name}",
            "prov:used": {"@id": origin},
            "prov:wasAssociatedWith": {"@type": "prov:SoftwareAgent", **software},
            "additionalProperty": _properties(dataset.settings.used(names)),
        },
    }


def _properties(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    # Without a value of its own a property would be empty to a reader of JSON-LD.
    return [
        {"@type": "PropertyValue", "name": name, "value": "none" if value is None else value}
        for name, value in values.items()
    ]


def _responsible_ai(dataset: DatasetWorkspace, index: pl.DataFrame | None, metrics: Metrics) -> dict[str, Any]:
    """Return the responsible-AI notes that the report can fill, in plain words; empty ones are left out."""
    notes: dict[str, list[str]] = {
        "rai:dataCollectionMissingData": [] if index is None else list(_missing(index)),
        "rai:dataPreprocessingProtocol": [
            "For the measurements every image was rotated as its EXIF data asks, brought to RGB, resized so that "
            "the shortest side has 256 pixels, and cut to the central square. The source was not changed."
        ],
        "rai:dataAnnotationAnalysis": list(_annotation_notes(metrics)),
        "rai:dataBiases": list(_biases(metrics)),
        "rai:dataLimitations": list(_limitations(metrics, dataset.settings.split_recipe)),
    }
    texts: dict[str, Any] = {name: lines for name, lines in notes.items() if lines}
    if "rai:dataCollectionMissingData" in texts:
        texts["rai:dataCollectionMissingData"] = " ".join(texts["rai:dataCollectionMissingData"])
    return texts


def _missing(index: pl.DataFrame) -> Iterator[str]:
    reasons = index["excluded_reason"].drop_nulls().value_counts()
    excluded = int(reasons["count"].sum())
    if excluded:
        listed = reasons.sort("count", "excluded_reason", descending=[True, False]).iter_rows()
        kinds = _some([f"{reason} ({count})" for reason, count in listed], "; ")
        yield f"{excluded} of {index.height} images of the source could not be used: {kinds}."
    present = set(usable_images(index)["class_name"])
    empty = [name for name in declared_classes(index) if name not in present]
    if empty:
        yield f"{len(empty)} declared classes have no image: {_some(empty)}."


def _annotation_notes(metrics: Metrics) -> Iterator[str]:
    noise = _figure(metrics, "label_noise", "leak_safe")
    if noise and "estimated_noise_rate" in noise:
        yield (
            f"Confident learning suspects {noise['n_noisy_samples']} of {noise['n_total_samples']} labels "
            f"({noise['estimated_noise_rate']:.2%}), by models that saw no copy of the judged image. A suspicion "
            "is not an error; the table of issues lists them."
        )
        adjusted = metrics["label_noise"]["adjusted_noise_rate"]
        if "low" in adjusted:
            yield (
                f"Calibrated on labels that were flipped on purpose, that share is explained by "
                f"{adjusted['low']:.2%} to {adjusted['high']:.2%} wrong labels."
            )
    conflicts = _figure(metrics, "exact_duplicate", "blake3", "label_conflicts")
    if conflicts and conflicts["groups"]:
        images, groups = conflicts["images"], conflicts["groups"]
        yield f"{images} images in {groups} groups of exact copies carry different labels."


def _biases(metrics: Metrics) -> Iterator[str]:
    balance = metrics.get("class_imbalance")
    if balance and balance["imbalance_ratio"] > 1:
        yield (
            f"In training the largest class ({balance['most_frequent_class']}) has {balance['imbalance_ratio']:g} "
            f"times the images of the smallest ({balance['least_frequent_class']})."
        )
    guesses = _figure(metrics, "image_health", "label_correlations")
    for guess in (guesses or {}).get("properties", ()):
        if guess["property"] in guesses["correlated"]:
            yield (
                f"The label can be guessed from {guess['property'].replace('_', ' ')} alone: right for "
                f"{guess['accuracy']:.1%} of the images; naming the largest class, for "
                f"{guesses['baseline_accuracy']:.1%}."
            )
    for kind, issue in (_figure(metrics, "image_health", "issues") or {}).items():
        if issue["widespread"]:
            yield f"{issue['count']} images ({issue['rate']:.1%}) are {kind.replace('_', ' ')}: {issue['rule']}"


def _limitations(metrics: Metrics, recipe: str) -> Iterator[str]:
    near, exact = metrics.get("near_duplicate"), metrics.get("exact_duplicate")
    if near:
        yield (
            f"{near['near_duplicate_count']} of {near['total_images']} images have a near-duplicate (cosine at "
            f"least {near['threshold']:g}); counting each group of copies once, {near['effective_images']} remain."
        )
        if near["cross_split_near_duplicates"]:
            yield (
                f"{near['cross_split_near_duplicates']} of them lie in groups that straddle the splits (recipe "
                f"{recipe}), so accuracy measured on these splits is too high."
            )
    elif exact and exact["blake3"]["duplicate_count"]:
        yield f"{exact['blake3']['duplicate_count']} of {exact['total_images']} images have an exact copy."
    inflation = _figure(metrics, "leakage", "leakage_inflation")
    if inflation is not None:
        published = _figure(metrics, "leakage", "published", "accuracy")
        safe = _figure(metrics, "leakage", "leak_safe", "accuracy")
        yield (
            f"The reference model is right for {published:.1%} of the test images, and for {safe:.1%} where no "
            "test image has a copy in training."
        )
    warning = _figure(metrics, "leakage", "small_class_warning", "published")
    if warning:
        yield warning


def _some(items: list[str], separator: str = ", ") -> str:
    more = len(items) - _LISTED
    return separator.join(items[:_LISTED]) + (f" and {more} more" if more > 0 else "")
