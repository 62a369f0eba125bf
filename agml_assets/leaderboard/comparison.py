"""Selected models side by side, as the site's leaderboard page computes it from `global.json`.

Its average rank is over the datasets that all selected share, zero-shot and fine-tuned pooled unless filtered. The
board with intervals and critical differences is in `board`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agml_assets.leaderboard.javascript import code_units, collation_key, to_number, trimmed, truthy
from agml_assets.leaderboard.metric_names import FAMILIES, Family
from agml_assets.leaderboard.site_rows import VARIANTS


@dataclass(frozen=True)
class SiteRecord:
    """An entry of `global.json` as the page takes it: texts trimmed, numbers read from texts too."""

    model: str
    dataset: str
    task: str | None
    scores: Mapping[Family, float | None]
    crop_types: tuple[str, ...]
    benchmark_id: float | None
    variant: str | None
    optimized: bool
    platform: str | None
    split_breakdown: str | None
    dataset_config: str | None
    notes: str | None

    @property
    def id(self) -> str:
        """The pair of model and task that the page compares."""
        return pair_id(self.model, self.task)


@dataclass(frozen=True)
class Filters:
    """What is compared: every filter that is set must hold, and holds where one of its values does.

    Attributes:
        tasks: Computer-vision tasks of the catalogue.
        datasets: Names; the page fills them with the datasets of the agricultural tasks that were chosen.
        crop_types: Crops, lower case.
        tuned: True for fine-tuned runs, false for all others; null for both.
        optimized: Whether inference was optimised; null for both.
        platforms: Hardware.
    """

    tasks: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    crop_types: tuple[str, ...] = ()
    tuned: bool | None = None
    optimized: bool | None = None
    platforms: tuple[str, ...] = ()

    def admits(self, record: SiteRecord) -> bool:
        """Return whether a record passes."""
        return (
            (not self.crop_types or any(crop in self.crop_types for crop in record.crop_types))
            and (not self.tasks or record.task in self.tasks)
            and (not self.datasets or record.dataset in self.datasets)
            and (not self.platforms or record.platform in self.platforms)
            and self.tuned in (None, record.variant == "fine-tuned")
            and self.optimized in (None, record.optimized)
        )


_ALL = Filters()


@dataclass(frozen=True)
class ModelOption:
    """A pair of model and task that can be selected, and on how many datasets it has been run."""

    id: str
    model: str
    task: str | None
    datasets: int


@dataclass(frozen=True)
class DatasetRank:
    """Score and rank of a pair on one dataset, among the selected; equal scores share the better rank."""

    dataset: str
    score: float
    rank: int


@dataclass(frozen=True)
class ComparedModel:
    """A selected pair and its average rank, 1 being the best."""

    id: str
    model: str
    task: str | None
    average_rank: float
    ranks: tuple[DatasetRank, ...]


@dataclass(frozen=True)
class Comparison:
    """The selected pairs by average rank over the datasets that all of them have a score on."""

    datasets: tuple[str, ...] = ()
    models: tuple[ComparedModel, ...] = ()


@dataclass(frozen=True)
class DatasetDetail:
    """The run of a pair that won a metric on a dataset, with the ranks of all its scores among the selected."""

    record: SiteRecord
    ranks: Mapping[Family, int | None]


def pair_id(model: str, task: str | None) -> str:
    """Return the site's name of a pair of model and task."""
    return f"{model}|||{task or ''}"


def read_site_records(document: Any) -> list[SiteRecord]:
    """Return what the page takes of `global.json`: entries with a model, a dataset and a percentile."""
    raws = document if isinstance(document, list) else []
    return [record for raw in raws if (record := _site_record(raw)) is not None]


def model_options(records: Iterable[SiteRecord], filters: Filters = _ALL) -> list[ModelOption]:
    """Return what can be selected: most datasets first, then by model and task."""
    datasets: dict[tuple[str, str | None], set[str]] = {}
    for record in records:
        if filters.admits(record):
            datasets.setdefault((record.model, record.task), set()).add(record.dataset)
    options = [ModelOption(pair_id(*pair), *pair, len(names)) for pair, names in datasets.items()]
    return sorted(
        options, key=lambda one: (-one.datasets, collation_key(one.model), collation_key(one.task or ""))
    )


def compare(
    records: Iterable[SiteRecord], selected: Sequence[str], filters: Filters = _ALL
) -> dict[Family, Comparison]:
    """Return the comparison of the selected pairs for each family of metrics.

    Args:
        records: All entries.
        selected: Ids of pairs, each once; fewer than two give no result.
        filters: What is left out before anything is compared.
    """
    mine = [record for record in records if record.id in set(selected) and filters.admits(record)]
    return {family: _compare(mine, selected, family) for family in FAMILIES}


def detail(
    records: Iterable[SiteRecord],
    pair: str,
    selected: Sequence[str],
    family: Family,
    comparisons: Mapping[Family, Comparison],
    filters: Filters = _ALL,
) -> list[DatasetDetail]:
    """Return the runs behind a pair's average rank, a dataset each.

    All scores of a dataset are those of the one run that won `family`, and their ranks are against the best of
    the other selected pairs.

    Args:
        records: All entries.
        pair: Id of the pair.
        selected: Ids of all pairs that are compared.
        family: The metric by which the runs won.
        comparisons: Of the same pairs with the same filters, see `compare`.
        filters: As in `compare`.
    """
    shared = set(comparisons[family].datasets)
    won: dict[str, tuple[float, SiteRecord]] = {}
    for record in records:
        score = record.scores[family]
        if record.id != pair or record.dataset not in shared or score is None or not filters.admits(record):
            continue
        if record.dataset not in won or score > won[record.dataset][0]:
            won[record.dataset] = score, record
    theirs = {
        name: {model.id: {one.dataset: one.score for one in model.ranks} for model in comparison.models}
        for name, comparison in comparisons.items()
    }

    def rank(record: SiteRecord, name: Family) -> int | None:
        own = record.scores[name]
        if own is None:
            return None
        others = (theirs[name].get(one, {}).get(record.dataset) for one in selected if one != pair)
        return 1 + sum(score is not None and score > own for score in others)

    ordered = sorted((record for _, record in won.values()), key=lambda record: collation_key(record.dataset))
    return [DatasetDetail(record, {name: rank(record, name) for name in FAMILIES}) for record in ordered]


def _site_record(raw: Any) -> SiteRecord | None:
    if not isinstance(raw, Mapping):
        return None
    model, dataset = trimmed(raw.get("model")), trimmed(raw.get("dataset"))
    percentiles, scores = _numbers(raw.get("percentiles")), _numbers(raw.get("scores"))
    if model is None or dataset is None or all(value is None for value in percentiles.values()):
        return None
    crops, variant = raw.get("crop_types"), raw.get("variant")
    return SiteRecord(
        model=model,
        dataset=dataset,
        task=trimmed(raw.get("machine_learning_task")),
        scores=scores,
        crop_types=tuple(crop for crop in crops if trimmed(crop)) if isinstance(crops, list) else (),
        benchmark_id=to_number(raw.get("benchmarkId")),
        variant=variant if variant in VARIANTS else None,
        optimized=truthy(raw.get("optimized")),
        platform=trimmed(raw.get("platform")),
        split_breakdown=trimmed(raw.get("splitBreakdown")),
        dataset_config=trimmed(raw.get("datasetConfig")),
        notes=trimmed(raw.get("notes")),
    )


def _numbers(raw: Any) -> dict[Family, float | None]:
    values = raw if isinstance(raw, Mapping) else {}
    return {name: to_number(values.get(name)) for name in FAMILIES}


def _compare(records: Iterable[SiteRecord], selected: Sequence[str], family: Family) -> Comparison:
    if len(selected) < 2:
        return Comparison()
    best: dict[str, dict[str, float]] = {pair: {} for pair in selected}
    pairs: dict[str, SiteRecord] = {}
    for record in records:
        pairs.setdefault(record.id, record)
        score = record.scores[family]
        if score is not None:
            scores = best[record.id]
            scores[record.dataset] = max(scores.get(record.dataset, score), score)
    datasets = sorted(set.intersection(*(set(scores) for scores in best.values())), key=code_units)
    if not datasets:
        return Comparison()
    models = []
    for pair in selected:
        ranks = tuple(
            _rank(name, best[pair][name], [scores[name] for scores in best.values()]) for name in datasets
        )
        average = sum(one.rank for one in ranks) / len(datasets)
        models.append(ComparedModel(pair, pairs[pair].model, pairs[pair].task, average, ranks))
    return Comparison(tuple(datasets), tuple(sorted(models, key=lambda model: model.average_rank)))


def _rank(dataset: str, score: float, all_scores: Sequence[float]) -> DatasetRank:
    return DatasetRank(dataset, score, 1 + sum(other > score for other in all_scores))
