"""Models as the pages show them: scores by task and dataset, means, published rows beside.

The report computes every figure; here its parts become columns. What the page recomputes, it says so.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from agml_assets.evaluation.imagenet import STATISTICS
from agml_assets.evaluation.published import PublishedResults
from agml_assets.evaluation.ways import FINE_TUNE, FROZEN, ZERO_SHOT
from agml_assets.leaderboard.javascript import collation_key
from agml_assets.registry.datasets import default_key
from agml_assets.registry.models import ModelEntry
from agml_assets.registry.tasks import TaskEntry
from agml_assets.report.card_sections import bounds
from agml_assets.site.page_columns import number, numbers, shown, texts, web_address
from agml_assets.site.plots import plot_files

_Values = Mapping[str, Any]
TASK, PRIOR, DATASET = "task", "prior work", "dataset"
OWN, PUBLISHED = "evaluated here", "published"
HOW = {FROZEN: "frozen features", ZERO_SHOT: "zero-shot", FINE_TUNE: "fine-tuned"}
"""How models answer, in words. A model has a row for each."""
_FIRST = ("imagenet1k", "inat21", "newt")
"""Columns of prior work that come first, in the order of the published page."""


@dataclass(frozen=True)
class ModelResults:
    """What is known of models.

    Attributes:
        report: `evaluation/report.json`; None where it has not been made.
        runs: By dataset or task and model, as the report calls it: what `evaluation/scores` and
            `evaluation/run_record` hold.
        published: Results that others have published; None where no file is named.
        registered: Our entry by the published name of a model.
        tasks: Registered task by key.
        names: Name of a dataset on the site by its key.
    """

    report: _Values | None = None
    runs: Mapping[tuple[str, str], tuple[_Values, _Values]] = field(default_factory=dict)
    published: PublishedResults | None = None
    registered: Mapping[str, ModelEntry] = field(default_factory=dict)
    tasks: Mapping[str, TaskEntry] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)


def models_data(results: ModelResults, catalogue: Collection[str], cards: Mapping[str, str]) -> dict[str, Any]:
    """Return models, the columns of their table, and every score.

    Args:
        results: Our report, and published rows.
        catalogue: Names of the datasets that have a page.
        cards: Address of the card by name of the dataset, relative to the pages.

    Returns:
        `models` and `subjects`, in columns.
        `scores`: for each subject a list of `[model, score, tied, low, high]`, or `[model, score, tied, reason]`
        without an interval; model and reason are places, scores lie in [0, 1].
        `means`: for each set of subjects whose mean the report has, their places and such a list, of models that
        have them all. `agreement`: how well ImageNet accuracy predicts. `plots`: files of `plots.plot_files`.
    """
    report = results.report or {}
    rows = _rows(results)
    places = {(row["source"], row["id"]): place for place, row in enumerate(rows)}
    columns = _columns(results, catalogue, cards)
    reasons: dict[str, int] = {"": 0}

    def entry(source: str, model: str, score: Any, tied: bool, interval: Any) -> list[float | None]:
        limits = bounds(interval)
        ends = [number(end) for end in limits] if limits else [reasons.setdefault(_reason(interval), len(reasons))]
        return [places[source, model], number(score), int(tied), *ends]

    scores: list[list[list[float | None]]] = []
    for column in columns:
        own = (report.get("subjects") or {}).get(column["key"]) or {}
        found = [
            entry(OWN, one["model"], one["score"], one["tied"], one["interval"])
            for one in own.get("standings") or ()
        ]
        scores.append(found + _published_scores(results.published, column["key"], entry))
    of_keys = {column["key"]: place for place, column in enumerate(columns)}
    means = [
        {
            "subjects": [of_keys[key] for key in (*one[0]["tasks"], *one[0]["missing"])],
            "of": name,
            "scores": [
                entry(OWN, mean["model"], mean["score"], mean["standing"]["tied"], mean["interval"])
                for mean in one
                if mean["standing"] is not None
            ],
        }
        for name, one in _means(report)
    ]
    return {
        "models": {
            "id": [shown(row["id"]) for row in rows],
            **{name: texts(row[name] for row in rows) for name in ("source", "name", "family", "checkpoint")},
            "released": texts(row["released"] for row in rows),
            "own": texts(row["own"] for row in rows),
            "how": texts(row["how"] for row in rows),
            "parameters": numbers(row["parameters"] for row in rows),
            "resolution": numbers(row["resolution"] or None for row in rows),
        },
        "subjects": {
            "key": [shown(column["key"]) for column in columns],
            **{name: texts(column[name] for column in columns) for name in _OF_COLUMNS},
            "examples": numbers(column["examples"] for column in columns),
            "groups": numbers(column["groups"] for column in columns),
        },
        "scores": scores,
        "means": means,
        "reasons": [shown(reason) for reason in reasons],
        "agreement": _agreement(report.get("imagenet")),
        "plots": plot_files(results.report),
    }


def runs_data(results: ModelResults, data: _Values) -> dict[str, Any]:
    """Return what only the page of a model says of its runs, in the order of `scores` of `models_data`.

    Args:
        results: As for `models_data`.
        data: What that returned.

    Returns:
        For each subject a list with, for each of its scores, the place of a run, or -1; and the runs in columns.
        `others` holds, for each run, `[metric, score, low, high]` or `[metric, score]`.
    """
    runs: list[tuple[_Values, _Values]] = []
    places = []
    models = data["models"]
    for subject, scores in zip(data["subjects"]["key"], data["scores"], strict=True):
        of_subject = []
        for model, *_ in scores:
            own = models["source"]["texts"][models["source"]["at"][model]] == OWN
            run = results.runs.get((subject, models["id"][model])) if own else None
            of_subject.append(len(runs) if run else -1)
            runs += [run] if run else []
        places.append(of_subject)
    names = sorted({name for scores, _ in runs for name in scores.get("others") or {}})
    return {
        "places": places,
        "metrics": [shown(name.replace("_", " ")) for name in names],
        "others": [_others(names, scores) for scores, _ in runs],
        "probe": texts(_probe(scores) for scores, _ in runs),
        "split": texts(scores.get("split") for scores, _ in runs),
        "train": numbers(scores.get("n_train") for scores, _ in runs),
        "classes": numbers(scores.get("classes") for scores, _ in runs),
        "notes": texts(" ".join(scores.get("notes") or ()) or None for scores, _ in runs),
        "device": texts(record.get("device") for _, record in runs),
        "date": texts(str(record["timestamp"])[:10] if "timestamp" in record else None for _, record in runs),
        "seconds": numbers(record.get("inference_time_seconds_per_image") for _, record in runs),
        "fit": numbers((record.get("train_time_seconds") for _, record in runs), 3),
    }


_OF_COLUMNS = ("name", "kind", "kingdom", "modality", "metric", "dataset", "card", "home")


def _rows(results: ModelResults) -> list[dict[str, Any]]:
    """Return a row for each of our models and way of answering, and one for each published one, by name."""
    rows = [
        {
            **{name: of.get(name) for name in ("family", "checkpoint", "parameters", "resolution")},
            "id": key,
            "own": of.get("model") or key,  # reports of before there were other kinds name neither
            "how": HOW[of.get("kind") or FROZEN],
            "source": OWN,
            "name": of.get("display_name") or key,
            "released": str(of.get("release_date") or "")[:7] or None,
        }
        for key, of in ((results.report or {}).get("models") or {}).items()
    ]
    ours = {row["own"] for row in rows}
    for one in results.published.models if results.published else ():
        entry = results.registered.get(one.ckpt)
        released = datetime.fromtimestamp(one.release_ms / 1000, UTC) if one.release_ms is not None else None
        rows.append(
            {
                "id": one.ckpt,
                "own": entry.key if entry and entry.key in ours else None,
                "how": HOW[FROZEN],
                "source": PUBLISHED,
                "name": entry.display_name if entry else one.display,
                "family": entry.family if entry else one.family,
                "checkpoint": one.ckpt,
                "parameters": one.params or None,
                "resolution": one.resolution,
                "released": f"{released:%Y-%m}" if released else None,
            }
        )
    return sorted(rows, key=lambda row: (collation_key(row["name"]), row["source"], row["id"]))


def _columns(results: ModelResults, catalogue: Collection[str], cards: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return prior work, tasks, and datasets, in the order of the registry or by name."""
    subjects = (results.report or {}).get("subjects") or {}
    published = results.published
    prior = {task.name: task.display for task in published.prior_work_tasks} if published else {}
    counting = {task.name: task.display for task in published.benchmark_tasks} if published else {}
    pages = {default_key(name) if "/" in name else name: name for name in catalogue}
    columns = []
    for key in dict.fromkeys([*subjects, *prior, *counting]):
        task, own, name = results.tasks.get(key), subjects.get(key) or {}, results.names.get(key)
        if task is not None:
            kind = TASK if task.counts_in_mean else PRIOR
        else:
            kind = own.get("kind") or (TASK if key in counting else PRIOR)
        columns.append(
            {
                "key": key,
                "name": (task and task.display_name)
                or own.get("display_name")
                or counting.get(key)
                or prior.get(key),
                "kind": kind,
                "kingdom": task.kingdom if task else own.get("kingdom"),
                "modality": task.modality if task else own.get("modality"),
                "metric": own.get("metric") or (task.metric if task else None),
                "examples": own.get("test_examples"),
                "groups": own.get("independent_groups"),
                "dataset": pages.get(name) if name else None,
                "card": cards.get(name) if name else None,
                "home": web_address(task.homepage) if task else None,
            }
        )
    order = {key: place for place, key in enumerate(dict.fromkeys((*_FIRST, *results.tasks)))}
    kinds = (PRIOR, TASK, DATASET)

    def place(column: _Values) -> tuple[Any, ...]:
        return kinds.index(column["kind"]), order.get(column["key"], len(order)), collation_key(column["name"])

    return sorted(columns, key=place)


def _published_scores(published: PublishedResults | None, key: str, entry: Any) -> list[list[float | None]]:
    """Return published scores; their limits are not shown, see docs/model_report.md."""
    if published is None:
        return []
    ties = {best.task: {best.best, *best.ties} for best in published.bests}
    why = {"reason": "the published file's limits are of another kind"}
    return [
        entry(PUBLISHED, one.model, one.mean, one.model in ties.get(key, ()), why)
        for one in published.results
        if one.task == key
    ]


def _means(report: _Values) -> Iterable[tuple[str, Sequence[_Values]]]:
    """Return the means that the report has, each with what it is over."""
    yield from (
        (name, report[key])
        for key, name in (("mean_over_tasks", "all tasks"), ("mean_over_datasets", "all datasets"))
        if report.get(key)
    )
    for kind in ("by_kingdom", "by_modality"):
        yield from (report.get(kind) or {}).items()


def _agreement(imagenet: _Values | None) -> list[dict[str, Any]]:
    """Return how well ImageNet accuracy predicts, a row for each way of asking."""
    asked = (
        ("The mean over tasks", "aggregate"),
        ("The mean over tasks, models above 75 % on ImageNet", "aggregate_high"),
        ("Each task, averaged", "mean_of_tasks"),
        ("Each task, averaged, models above 75 % on ImageNet", "mean_of_tasks_high"),
    )
    found = [(name, (imagenet or {}).get(key)) for name, key in asked]
    return [
        {
            "of": name,
            "models": one["n_models"],
            **{
                statistic: [
                    number(one[statistic]),
                    *(number(x) for x in bounds(one["intervals"][statistic]) or ()),
                ]
                for statistic in STATISTICS
            },
        }
        for name, one in found
        if one
    ]


def _others(names: Sequence[str], scores: _Values) -> list[list[float | None]]:
    return [
        [names.index(name), number(one["score"]), *(number(end) for end in bounds(one["interval"]) or ())]
        for name, one in (scores.get("others") or {}).items()
    ]


def _probe(scores: _Values) -> str | None:
    probe = scores.get("probe") or {}
    settings = ", ".join(f"{name} {value}" for name, value in probe.items() if name != "estimator")
    return f"{probe['estimator']}{f' ({settings})' if settings else ''}" if "estimator" in probe else None


def _reason(interval: Any) -> str:
    return str((interval or {}).get("reason") or "")
