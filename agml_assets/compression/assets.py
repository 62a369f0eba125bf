"""Submissions in the graph, one partition each, and the leaderboard over all. Thin: open, call, record."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import dagster as dg

from agml_assets.compression.artifacts import CODE_VERSIONS
from agml_assets.embeddings.artifacts import DUPLICATE_GROUPS, EMBEDDINGS
from agml_assets.errors import UserError
from agml_assets.recording import OWNERS, asset_key, table
from agml_assets.registry.submissions import load_submissions
from agml_assets.store import PLATFORM, Sidecar
from agml_assets.workspace import Workspace

if TYPE_CHECKING:  # probes and codecs are loaded by the runs that need them, not with the graph
    from agml_assets.compression.steps import SubmissionRun

GROUP = "compression"
LEADERBOARD_GROUP = "compression_leaderboard"


def build_assets(submissions: dg.PartitionsDefinition) -> Sequence[dg.AssetsDefinition]:
    """Return the assets of this room for the given submissions."""

    def submission_asset(name: str, description: str, kind: str, deps: Sequence[Any]) -> Any:
        return dg.asset(
            key=[GROUP, name],
            deps=deps,
            description=description,
            partitions_def=submissions,
            group_name=GROUP,
            code_version=CODE_VERSIONS[name],
            kinds={kind},
            owners=OWNERS,
        )

    # Deps-only: embeddings of a dataset are read from the store, and most submissions need none.
    upstream = [
        dg.AssetDep(asset_key(artifact), partition_mapping=dg.AllPartitionMapping())
        for artifact in (EMBEDDINGS, DUPLICATE_GROUPS)
    ]

    @submission_asset(
        "submission", "The embeddings, read or compressed: an id and float32 values.", "parquet", upstream
    )
    def submission(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.MaterializeResult:
        """Read the file, or compress what is named."""
        with _opened(context, workspace) as (steps, run):
            made = steps.make_submission(run)
            facts = {f"{name}_count": float(made.info[name]) for name in ("embeddings", "dimensions")}
            facts["bytes_per_embedding"] = float(made.info["bytes_per_embedding"])
            return _result(run, "submission", made, {**facts, **_notes(made.info["notes"])})

    @submission_asset(
        "task_scores", "What the embeddings score on every task, with intervals and floors.", "json", [submission]
    )
    def task_scores(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.MaterializeResult:
        """Fit probes to the embeddings, out of fold, at their optimum."""
        with _opened(context, workspace) as (steps, run):
            made = steps.make_task_scores(run)
            found = run.read("task_scores")
            rows = [
                (one["task"], one["metric"], one["score"]["value"], _limits(one["score"]["interval"]), one["kept"])
                for one in found["tasks"]
            ]
            left_out = [(one["task"], one["reason"]) for one in found["excluded"]] + [*found["refused"].items()]
            facts = {
                "tasks_count": float(len(rows)),
                "left_out_count": float(len(left_out)),
                "scores": table(("task", "metric", "score", "95 % interval", "kept"), rows),
                "left_out": table(("task", "why"), left_out),
            }
            return _result(run, "task_scores", made, facts)

    @submission_asset("summary", "The submission in a few numbers: size, mean, scores.", "json", [task_scores])
    def summary(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
        """Sum up the stored scores."""
        with _opened(context, workspace) as (steps, run):
            made = steps.make_summary(run)
            found = run.read("summary")
            facts = {
                "mean_kept": found["mean_kept"],
                "bytes_per_embedding": float(found["bytes_per_embedding"]),
                **_notes(found["notes"]),
            }
            return _result(run, "summary", made, facts)

    return [submission, task_scores, summary, _leaderboard_asset(summary)]


def _leaderboard_asset(summary: dg.AssetsDefinition) -> dg.AssetsDefinition:
    @dg.asset(
        key=[GROUP, "leaderboard"],
        deps=[dg.AssetDep(summary, partition_mapping=dg.AllPartitionMapping())],
        description="All submissions compared, phase by phase: ranks with ties, and how sure they are.",
        group_name=LEADERBOARD_GROUP,
        code_version="1",
        kinds={"json"},
        owners=OWNERS,
    )
    def leaderboard(workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
        """Compare the stored scores of however many submissions there are."""
        from agml_assets.compression.leaderboard import write_leaderboard

        try:
            written = write_leaderboard(workspace, load_submissions())
        except UserError as error:
            raise dg.Failure(error.message, allow_retries=False) from None
        rows = [
            (phase, one["rank"], one["display_name"], one["bytes_per_embedding"], one["mean"]["value"])
            for phase, board in written.document["phases"].items()
            for one in board["standings"]
        ]
        return dg.MaterializeResult(
            metadata={
                "phases_count": float(len(written.document["phases"])),
                "submissions_count": float(len(rows)),
                "standings": table(("phase", "rank", "submission", "bytes per embedding", "kept"), rows),
                "left_out": table(("submission", "why"), written.document["left_out"].items()),
                "path": dg.MetadataValue.path(str(written.path)),
            },
            data_version=dg.DataVersion(written.digest),
        )

    return leaderboard


@contextmanager
def _opened(
    context: dg.AssetExecutionContext, workspace: Workspace
) -> "Iterator[tuple[ModuleType, SubmissionRun]]":
    """Open the run's submission and hold it against other runs; a user's mistake is a permanent failure."""
    from agml_assets.compression import steps

    if not context.has_partition_key:
        raise dg.Failure(
            "Name the submission: a partition in the UI, --partition KEY, or for `dagster job execute` "
            """--tags '{"dagster/partition": "KEY"}'.""",
            allow_retries=False,
        )
    try:
        run = steps.SubmissionRun(load_submissions().get(context.partition_key), workspace)
        with run.held(f"run {context.run.run_id}"):
            yield steps, run
    except UserError as error:
        raise dg.Failure(error.message, allow_retries=False) from None


def _result(run: "SubmissionRun", step: str, made: Sidecar, facts: dict[str, Any]) -> dg.MaterializeResult:
    path = run.workspace.store.path(PLATFORM, run.file(step))
    return dg.MaterializeResult(
        metadata={
            **facts,
            "path": dg.MetadataValue.path(str(path)),
            "size_mb": round(made.bytes / 1e6, 3),
            "duration_s": made.duration_s,
        },
        data_version=dg.DataVersion(made.digest),
    )


def _notes(notes: Sequence[str]) -> dict[str, Any]:
    return {"notes": table(("note",), [(note,) for note in notes])} if notes else {}


def _limits(interval: dict[str, Any] | None) -> str:
    return "too few examples" if interval is None else f"{interval['low']:.3f} to {interval['high']:.3f}"
