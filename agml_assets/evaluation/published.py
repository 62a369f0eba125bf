"""BioBench's `results.json`: reading it, and writing our own scores in its shape, key by key.

What the numbers mean is in docs/model_report.md; here is only the file.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from agml_assets.errors import UserError
from agml_assets.evaluation.resamples import ALPHA
from agml_assets.evaluation.summary import TaskScores

SCHEMA = 1


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Meta(_Entry):
    """How the file came about.

    Attributes:
        generated: Milliseconds since 1970.
        git_commit: 40 hexadecimal digits.
    """

    schema_: int
    generated: int
    git_commit: str
    seed: int
    alpha: float
    n_bootstraps: int

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, alias_generator=lambda name: name.rstrip("_")
    )


class Model(_Entry):
    """One model; `resolution` in pixels, `release_ms` in milliseconds since 1970 or null."""

    ckpt: str
    display: str
    family: str
    resolution: int
    params: int
    release_ms: int | None


class Task(_Entry):
    """One task."""

    name: str
    display: str


class Result(_Entry):
    """One model's score on one task, in [0, 1]; the limits are null where no interval can be given."""

    task: str
    model: str
    mean: float
    bootstrap_mean: float
    ci_low: float | None
    ci_high: float | None


class Best(_Entry):
    """The best model of a task, and all that may be as good, by name."""

    task: str
    best: str
    ties: list[str]


class PublishedResults(_Entry):
    """The whole file; keys in the order of the fields."""

    meta: Meta
    models: list[Model]
    benchmark_tasks: list[Task]
    prior_work_tasks: list[Task]
    results: list[Result]
    bests: list[Best]

    def scores(self) -> dict[tuple[str, str], float]:
        """Return the point scores by task and model."""
        return {(result.task, result.model): result.mean for result in self.results}


def read_results(path: Path) -> PublishedResults:
    """Read a file of published results.

    Raises:
        UserError: The file is absent, no JSON, or of another shape; the first difference is named.
    """
    try:
        return PublishedResults.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise UserError(
            f"{path} is no results.json as BioBench publishes it: {place}: {first['msg']}. Compare it with the "
            "published file."
        ) from error


def results_text(results: PublishedResults) -> str:
    """Return the text of the file: indented by 4, no line break at the end, as published."""
    return json.dumps(results.model_dump(by_alias=True), indent=4, allow_nan=False)


def make_results(
    models: Sequence[Model],
    benchmark_tasks: Sequence[Task],
    prior_work_tasks: Sequence[Task],
    scored: Sequence[TaskScores],
    *,
    generated: int,
    git_commit: str,
    seed: int,
    alpha: float = ALPHA,
) -> PublishedResults:
    """Return our scores in the published shape.

    `mean` is the point score and `bootstrap_mean` the mean over resamples, as published; `ci_low` and `ci_high`
    are the limits of our interval, `ties` the models that our tests do not tell from the best
    (docs/model_report.md).

    Args:
        models: Listed in the file; scores of others are an error.
        benchmark_tasks: Tasks that count for the mean.
        prior_work_tasks: Tasks that stand beside.
        scored: In the order of the file, one for each task that has scores, all by as many resamples.
        generated: Milliseconds since 1970.
        git_commit: 40 hexadecimal digits.
        seed: Of the run.
        alpha: Level of the ties.

    Raises:
        UserError: A task or a model with scores is not listed, or tasks differ in their resamples.
    """
    listed = {task.name for task in [*benchmark_tasks, *prior_work_tasks]}
    known = {model.ckpt for model in models}
    for one in scored:
        if one.task not in listed:
            raise UserError(f"Task {one.task} has scores and is not listed: add it to the tasks.")
        if unknown := sorted({result.model for result in one.results} - known):
            raise UserError(f"Task {one.task}: {', '.join(unknown)} have scores and are not listed as models.")
    numbers = {len(one.replicates) for one in scored}
    if len(numbers) > 1:
        raise UserError(f"The tasks were resampled {sorted(numbers)} times: take the same number for all.")
    return PublishedResults(
        meta=Meta(
            schema=SCHEMA,
            generated=generated,
            git_commit=git_commit,
            seed=seed,
            alpha=alpha,
            n_bootstraps=max(numbers, default=0),
        ),
        models=list(models),
        benchmark_tasks=list(benchmark_tasks),
        prior_work_tasks=list(prior_work_tasks),
        results=[
            Result(
                task=one.task,
                model=result.model,
                mean=result.score,
                bootstrap_mean=result.bootstrap_mean,
                ci_low=result.interval.get("low"),
                ci_high=result.interval.get("high"),
            )
            for one in scored
            for result in sorted(one.results, key=lambda result: result.model)
        ],
        bests=[
            Best(
                task=one.task,
                best=one.standings[0].model,
                ties=sorted(standing.model for standing in one.standings if standing.tied),
            )
            for one in scored
        ],
    )
