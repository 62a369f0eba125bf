"""Models on datasets and tasks in the graph, one partition a pair. Thin: open the pair, call, record."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg

from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXEL_HASHES, PIXELS, SPLITS
from agml_assets.embeddings.artifacts import DUPLICATE_GROUPS
from agml_assets.errors import UserError
from agml_assets.evaluation import evaluate as steps
from agml_assets.evaluation.evaluate import CODE_VERSIONS, Evaluation
from agml_assets.evaluation.open import open_evaluation
from agml_assets.evaluation.report import write_report
from agml_assets.partitions import pair_of
from agml_assets.progress import Progress
from agml_assets.recording import OWNERS, asset_key, table
from agml_assets.store import Sidecar
from agml_assets.training.artifacts import GROUPED_SPLITS
from agml_assets.workspace import Workspace

GROUP = "evaluation"
_UPSTREAM = (IMAGE_INDEX, PIXEL_HASHES, PIXELS, SPLITS, DUPLICATE_GROUPS, GROUPED_SPLITS)


def build_assets(pairs: dg.PartitionsDefinition) -> Sequence[dg.AssetsDefinition]:
    """Return the assets of this room for the given pairs of datasets or tasks and models."""

    def evaluation_asset(name: str, description: str, kind: str, deps: Sequence[Any]) -> Any:
        return dg.asset(
            key=[GROUP, name],
            deps=deps,
            description=description,
            partitions_def=pairs,
            group_name=GROUP,
            code_version=CODE_VERSIONS[name],
            kinds={kind},
            owners=OWNERS,
        )

    # Deps-only: what a dataset's graph has stored is read from the store, and a task needs none of it.
    upstream = [
        dg.AssetDep(asset_key(artifact), partition_mapping=dg.AllPartitionMapping()) for artifact in _UPSTREAM
    ]

    @evaluation_asset(
        "features", "A vector of every example from a frozen model; float32 (E, D).", "pytorch", upstream
    )
    def features(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.MaterializeResult:
        """Encode what the cache lacks."""
        with _pair(context, workspace) as pair:
            if "features" not in pair.steps:
                # Downstream is not skipped: predictions of a fine-tuned model are made from images.
                return dg.MaterializeResult(
                    metadata={"not_needed": f"{pair.subject.protocol.probe} sees the images themselves"},
                    data_version=dg.DataVersion("not needed"),
                )
            made = steps.make_features(pair, Progress("images encoded", context.log.info))
            facts = {
                "examples_count": float(made.info["examples"]),
                "dimensions_count": float(made.info["dimensions"]),
                "encoded_images_count": float(made.info["encoded_images"]),
                "cache": made.info["cache"],
                "device": made.info["device"],
            }
            return _result(pair, "features", made, facts)

    @evaluation_asset(
        "predictions",
        "What a probe on the features, or the model itself, says of every test example.",
        "parquet",
        [features],
    )
    def predictions(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.MaterializeResult:
        """Fit the probe, without loading the model; ask a zero-shot model's text half; or train the model."""
        with _pair(context, workspace) as pair:
            made = steps.make_predictions(pair, tell=Progress("training images seen", context.log.info))
            frame = pair.read("predictions")
            facts = {
                "train_examples_count": float(made.info["n_train"]),
                "test_examples_count": float(len(frame)),
                "fit_s": made.info["fit_s"],
                "invalid_count": float(made.info["invalid"]),
                "probe": made.info["probe"]["estimator"],
            }
            return _result(pair, "predictions", made, facts)

    @evaluation_asset("scores", "Scores of the predictions, with intervals.", "json", [predictions])
    def scores(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
        """Score the stored predictions."""
        with _pair(context, workspace) as pair:
            made = steps.make_scores(pair)
            found = pair.read("scores")
            rows = [(found["metric"], found["score"], _limits(found["interval"]))]
            rows += [(name, one["score"], _limits(one["interval"])) for name, one in found["others"].items()]
            facts = {found["metric"]: found["score"], "scores": table(("metric", "score", "95 % interval"), rows)}
            return _result(pair, "scores", made, facts)

    @evaluation_asset("run_record", "The evaluation in the leaderboard's published format.", "json", [scores])
    def run_record(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.MaterializeResult:
        """Write the record; the job `leaderboard` takes it up."""
        with _pair(context, workspace) as pair:
            made = steps.make_record(pair)
            record = pair.read("run_record")
            rows = [(name, str(value)) for name, value in record.items() if not isinstance(value, dict)]
            return _result(pair, "run_record", made, {"record": table(("field", "value"), rows)})

    return [features, predictions, scores, run_record, _report_asset(run_record)]


def _report_asset(run_record: dg.AssetsDefinition) -> dg.AssetsDefinition:
    @dg.asset(
        key=[GROUP, "report"],
        deps=[dg.AssetDep(run_record, partition_mapping=dg.AllPartitionMapping())],
        description="All evaluations compared: scores with intervals, ties, means over tasks, ImageNet's part.",
        group_name="model_report",
        code_version="1",
        kinds={"json"},
        owners=OWNERS,
    )
    def report(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
        """Compute everything again from the stored predictions, of however many evaluations there are."""
        try:
            written = write_report(workspace)
        except UserError as error:
            raise dg.Failure(error.message, allow_retries=False) from None
        rows = [
            (subject, one["metric"], one["standings"][0]["model"], one["standings"][0]["score"], _tied(one))
            for subject, one in written.report["subjects"].items()
        ]
        return dg.MaterializeResult(
            metadata={
                "subjects_count": float(len(rows)),
                "models_count": float(len(written.report["models"])),
                "left_out": table(("evaluation", "why"), written.report["left_out"].items()),
                "best": table(("dataset or task", "metric", "best", "score", "as good"), rows),
                "path": dg.MetadataValue.path(str(written.path)),
            },
            data_version=dg.DataVersion(written.digest),
        )

    return report


def _tied(subject: dict[str, Any]) -> str:
    return ", ".join(one["model"] for one in subject["standings"][1:] if one["tied"]) or "none"


@contextmanager
def _pair(context: dg.AssetExecutionContext, workspace: Workspace) -> Iterator[Evaluation]:
    """Open the run's pair and hold it against other runs; a user's mistake is a permanent failure."""
    try:
        dataset, model = pair_of(context.run.tags)
        evaluation = open_evaluation(workspace, dataset, model)
        with evaluation.held(f"run {context.run.run_id}"):
            try:
                yield evaluation
            finally:
                evaluation.encoder.close()
    except UserError as error:
        raise dg.Failure(error.message, allow_retries=False) from None


def _result(pair: Evaluation, step: str, made: Sidecar, facts: dict[str, Any]) -> dg.MaterializeResult:
    path = pair.store.path(pair.subject.key, pair.file(step))
    return dg.MaterializeResult(
        metadata={
            **facts,
            "path": dg.MetadataValue.path(str(path)),
            "size_mb": round(made.bytes / 1e6, 3),
            "duration_s": made.duration_s,
        },
        data_version=dg.DataVersion(made.digest),
    )


def _limits(interval: dict[str, Any]) -> str:
    return f"{interval['low']:.3f} to {interval['high']:.3f}" if "low" in interval else interval.get("reason", "")
