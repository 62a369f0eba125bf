"""One asset per metric, from the table in `metrics`, and the score."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from agml_assets.dataset.artifacts import ARTIFACTS as DATASET_ARTIFACTS
from agml_assets.embeddings.artifacts import ARTIFACTS as EMBEDDINGS_ARTIFACTS
from agml_assets.embeddings.artifacts import DUPLICATE_GROUPS, NEIGHBORS
from agml_assets.embeddings.neighbors import from_arrays
from agml_assets.quality.artifacts import METRIC_ARTIFACTS, SCORE
from agml_assets.quality.checks import concerns_checks, concerns_specs, consistent_check, consistent_spec
from agml_assets.quality.metrics import METRICS, Metric
from agml_assets.quality.summary import BEHIND_THE_SCORE, judge_dataset, score_dataset
from agml_assets.recording import Step, dataset_asset, step, table
from agml_assets.training.artifacts import ARTIFACTS as TRAINING_ARTIFACTS
from agml_assets.workspace import Workspace

_UPSTREAM = {
    artifact.key: artifact for artifact in (*DATASET_ARTIFACTS, *EMBEDDINGS_ARTIFACTS, *TRAINING_ARTIFACTS)
}


def build_assets(datasets: dg.PartitionsDefinition) -> Sequence[dg.AssetsDefinition]:
    """Return the assets of this room for the given dataset partitions."""
    return [*(_metric_asset(metric, datasets) for metric in METRICS), _score_asset(datasets)]


def _metric_asset(metric: Metric, datasets: dg.PartitionsDefinition) -> dg.AssetsDefinition:
    artifact = METRIC_ARTIFACTS[metric.name]
    summary = (metric.compute.__doc__ or metric.name).strip().splitlines()[0]

    @dataset_asset(
        artifact,
        f"{summary} Phase {metric.phase}.",
        datasets,
        kind="json",
        checks=concerns_specs(metric.name, artifact, datasets),
    )
    def compute_metric(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.MaterializeResult:
        """Read the metric's inputs, call its function, store the JSON value."""
        with step(context, workspace, artifact) as work:
            value = metric.compute(**_arguments(metric, work))
            work.checks += concerns_checks(metric.name, artifact, value)
            return work.done(value, _describe(metric, value))

    return compute_metric


def _arguments(metric: Metric, work: Step) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for key in metric.inputs:
        value = work.read(_UPSTREAM[key])
        arguments[key.rpartition("/")[2]] = from_arrays(value) if key == NEIGHBORS.key else value
    if metric.settings:
        arguments["settings"] = work.dataset.settings
    return arguments


def _describe(metric: Metric, value: dict[str, Any]) -> dict[str, Any]:
    if value.get("skipped"):
        return {"not_computable": str(value["reason"])}
    plain = [(k, v) for k, v in value.items() if isinstance(v, str | int | float | bool)]
    return {
        **{name: get(value) for name, get in metric.headline.items()},
        "values": table(("key", "value"), plain),
    }


def _score_asset(datasets: dg.PartitionsDefinition) -> dg.AssetsDefinition:
    @dataset_asset(
        SCORE,
        "Score of the dataset, 0 to 10 on four axes and overall, from the metrics that are current.",
        datasets,
        kind="json",
        checks=[consistent_spec(datasets)],
        deps=[artifact.key for artifact in (DUPLICATE_GROUPS, *BEHIND_THE_SCORE, *METRIC_ARTIFACTS.values())],
    )
    def score(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
        """Score whatever metrics are current in the store, and say which axes could not be measured."""
        with step(context, workspace, SCORE) as work:
            result, used = score_dataset(work.dataset, judge_dataset(work.dataset))
            work.making.inputs.update(used)
            work.checks.append(consistent_check(result["breaches"]))
            axes = {f"{axis}_0_to_10": v for axis, v in result["axes"].items() if v is not None}
            overall = {} if result["overall"] is None else {"overall_0_to_10": float(result["overall"])}
            rows = [
                (axis, "not measured: " + result["unavailable"].get(axis, "") if v is None else v)
                for axis, v in result["axes"].items()
            ]
            return work.done(result, {**overall, **axes, "axes": table(("axis", "score, 0 to 10"), rows)})

    return score
