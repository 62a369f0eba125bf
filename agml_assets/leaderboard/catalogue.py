"""The site's dataset catalogue, `datasets.json` and `hf_datasets.json`, as its generator and its pages read it.

The files are never rewritten.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from agml_assets.errors import UserError, nearest
from agml_assets.leaderboard.javascript import collation_key, parse_json, to_number, trimmed

FILES = ("datasets.json", "hf_datasets.json")
"""In the order in which the first entry of a name counts."""

_VISION_LANGUAGE_TASK = "image-text-to-text"
_NOT_COUNTED = "iNatAg-mini"  # its images are those of iNatAg


@dataclass(frozen=True)
class CatalogueFacts:
    """What the site's generator takes of a dataset.

    Attributes:
        crop_types: Lower-cased, otherwise as given; null if none are.
        machine_learning_task: As given; null if blank.
    """

    crop_types: list[str] | None = None
    machine_learning_task: str | None = None


_NO_FACTS = CatalogueFacts()


@dataclass(frozen=True)
class CatalogueEntry:
    """A dataset as the site's catalogue page knows it; what is not known is null, false or empty."""

    name: str
    source: str | None = None
    machine_learning_task: str | None = None
    agricultural_task: str | None = None
    crop_types: tuple[str, ...] = ()
    locations: tuple[str, ...] = ()
    environment: str | None = None
    platforms: tuple[str, ...] = ()
    real_or_synthetic: str | None = None
    num_images: float | None = None
    augmented: str | None = None
    qa_types: tuple[str, ...] = ()
    task_dimensions: tuple[str, ...] = ()
    parent_dataset: str | None = None
    license: str | None = None
    documentation: str | None = None
    hf_link: str | None = None

    @property
    def is_vision_language(self) -> bool:
        """Whether it holds questions and answers on images."""
        return self.machine_learning_task == _VISION_LANGUAGE_TASK or bool(self.qa_types or self.task_dimensions)

    @property
    def is_child(self) -> bool:
        """Whether the page counts it under its parent."""
        return self.parent_dataset is not None and not self.is_vision_language


@dataclass(frozen=True)
class CatalogueStatistics:
    """Totals over the catalogue; children are counted with their parents."""

    datasets: int
    images: float
    task_types: int


@dataclass(frozen=True)
class Catalogue:
    """The catalogue.

    Attributes:
        raw: The entries as they stand in the files, one file after the other.
        found: Names of the files that there are.
    """

    raw: tuple[Mapping[str, Any], ...] = ()
    found: tuple[str, ...] = ()

    @cached_property
    def _facts_by_name(self) -> dict[str, CatalogueFacts]:
        facts: dict[str, CatalogueFacts] = {}
        for raw in self.raw:
            name = raw.get("name")
            if isinstance(name, str) and name and name not in facts:
                facts[name] = _facts(raw)
        return facts

    @cached_property
    def _nearest_by_name(self) -> dict[str, str | None]:
        return {}

    @cached_property
    def _entries_by_name(self) -> dict[str, CatalogueEntry]:
        entries: dict[str, CatalogueEntry] = {}
        for raw in self.raw:
            entry = _normalise(raw)
            if entry is not None:
                known = entries.get(entry.name)
                entries[entry.name] = entry if known is None else _merge(known, entry)
        return entries

    @cached_property
    def entries(self) -> tuple[CatalogueEntry, ...]:
        """One entry for each name, in the page's order."""
        return tuple(sorted(self._entries_by_name.values(), key=lambda entry: collation_key(entry.name)))

    def facts(self, dataset: str) -> CatalogueFacts:
        """Return what the generator takes of a dataset; nothing of one that is not in the catalogue."""
        return self._facts_by_name.get(dataset, _NO_FACTS)

    def entry(self, dataset: str) -> CatalogueEntry | None:
        """Return the entry of a dataset."""
        return self._entries_by_name.get(dataset)

    def knows(self, dataset: str) -> bool:
        """Return whether a dataset is in the catalogue."""
        return dataset in self._facts_by_name

    def nearest(self, dataset: str) -> str | None:
        """Return the name in the catalogue that looks most like `dataset`."""
        if dataset not in self._nearest_by_name:  # thousands of names are compared: once, not for every record
            self._nearest_by_name[dataset] = next(iter(nearest(dataset, self._facts_by_name, n=1)), None)
        return self._nearest_by_name[dataset]

    def statistics(self) -> CatalogueStatistics:
        """Return the totals that the site shows."""
        parents = [entry for entry in self.entries if not entry.is_child]
        counted = (entry.num_images or 0 for entry in parents if not entry.name.startswith(_NOT_COUNTED))
        tasks = {entry.machine_learning_task for entry in self.entries if entry.machine_learning_task}
        return CatalogueStatistics(len(parents), sum(counted), len(tasks))


def load_catalogue(folder: Path) -> Catalogue:
    """Read the catalogue files of a folder; those that are not there are left out.

    Raises:
        UserError: A file holds no JSON.
    """
    found = [name for name in FILES if (folder / name).is_file()]
    return Catalogue(tuple(raw for name in found for raw in _read(folder / name)), tuple(found))


def _read(path: Path) -> list[Mapping[str, Any]]:
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"The dataset catalogue {path} cannot be read: {error}.") from None
    values = document.values() if isinstance(document, Mapping) else document
    return [value for value in values if isinstance(value, Mapping)] if isinstance(values, Iterable) else []


def _facts(raw: Mapping[str, Any]) -> CatalogueFacts:
    crops, task = raw.get("crop_types"), raw.get("machine_learning_task")
    named = [crop.lower() for crop in crops if trimmed(crop)] if isinstance(crops, list) else []
    return CatalogueFacts(named or None, task if trimmed(task) else None)


def _normalise(raw: Mapping[str, Any]) -> CatalogueEntry | None:
    name = _text(raw, "name", "dataset", "slug", "id", "key")
    if name is None:
        return None
    augmented_images = _number(raw, "augmented_num_images", "augmented_n_images", "augmented_image_count")
    environment = _text(raw, "environment", "env", "image_environment")
    return CatalogueEntry(
        name=name,
        source=_text(raw, "source"),
        machine_learning_task=_text(raw, "machine_learning_task", "ml_task", "task"),
        agricultural_task=_text(raw, "agricultural_task", "ag_task"),
        crop_types=_crops(_first(raw, "crop_types", "cropType", "crop_type")),
        locations=_list(raw.get("country")) or _list(raw.get("location")),
        environment=environment.lower() if environment else None,
        platforms=_platforms(raw.get("platform")),
        real_or_synthetic=_text(raw, "real_or_synthetic", "real_synthetic"),
        num_images=_number(raw, "num_images", "n_images", "image_count"),
        augmented=_text(raw, "augmented_counterpart") or ("yes" if augmented_images is not None else "no"),
        qa_types=_list(raw.get("qa_type")),
        task_dimensions=_list(raw.get("task_dimensions")),
        parent_dataset=_text(raw, "parent_dataset", "parentDataset"),
        license=_text(raw, "license"),
        documentation=_text(raw, "documentation", "docs_url", "doc_url", "url"),
        hf_link=_text(raw, "hf_link", "huggingface_link", "hf_url"),
    )


def _merge(known: CatalogueEntry, other: CatalogueEntry) -> CatalogueEntry:
    """Return an entry with what is missing taken from another of the same name; platforms of both."""
    gaps = {f.name: getattr(other, f.name) for f in fields(known) if getattr(known, f.name) in (None, ())}
    gaps["platforms"] = tuple(dict.fromkeys((*known.platforms, *other.platforms)))
    return replace(known, **gaps)


def _first(raw: Mapping[str, Any], *names: str) -> Any:
    return next((raw[name] for name in names if raw.get(name) is not None), None)


def _text(raw: Mapping[str, Any], *names: str) -> str | None:
    return next((text for name in names if (text := trimmed(raw.get(name)))), None)


def _number(raw: Mapping[str, Any], *names: str) -> float | None:
    value = _first(raw, *names)
    return to_number(value.replace(",", "") if isinstance(value, str) else value)


def _list(value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(text for one in values if (text := trimmed(one)))


def _crops(value: Any) -> tuple[str, ...]:
    """Return lower-cased crops without those that only say that there are more."""
    crops = _list(value) if isinstance(value, list) else ()
    return tuple(dict.fromkeys(crop.lower() for crop in crops if not crop.startswith("+")))


def _platforms(value: Any) -> tuple[str, ...]:
    parts = (trimmed(part) for text in _list(value) for part in text.split(","))
    return tuple(dict.fromkeys(part.title() for part in parts if part))
