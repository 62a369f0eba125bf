"""Agents on tasks in the graph, one partition a pair, and the leaderboard over all. Thin: open, call, record."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import dagster as dg

from agml_assets.agents.artifacts import CODE_VERSIONS
from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXELS
from agml_assets.embeddings.artifacts import DUPLICATE_GROUPS, EMBEDDINGS
from agml_assets.errors import UserError
from agml_assets.partitions import agent_pair_of
from agml_assets.recording import OWNERS, asset_key, table
from agml_assets.registry.agents import load_agents
from agml_assets.store import PLATFORM, Sidecar
from agml_assets.workspace import Workspace

if TYPE_CHECKING:  # Inspect is loaded by the runs that need it, not with the graph
    from agml_assets.agents.steps import AgentRun

GROUP = "agents"
LEADERBOARD_GROUP = "agents_leaderboard"


def build_assets(pairs: dg.PartitionsDefinition) -> Sequence[dg.AssetsDefinition]:
    """Return the assets of this room for the given pairs of tasks and agents."""

    def agent_asset(name: str, description: str, kind: str, deps: Sequence[Any]) -> Any:
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

    # Deps-only: tasks made from a dataset read it from the store, and the others need none of it.
    upstream = [
        dg.AssetDep(asset_key(artifact), partition_mapping=dg.AllPartitionMapping())
        for artifact in (IMAGE_INDEX, PIXELS, EMBEDDINGS, DUPLICATE_GROUPS)
    ]

    @agent_asset(
        "run",
        "One agent on one task, all its seeds: every step, and what is left at the end.",
        "inspect",
        upstream,
    )
    def run(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
        """Run the agent; a run that was killed goes on where it stopped."""
        with _opened(context, workspace) as (steps, pair):
            made = steps.make_run(pair, context.log.info)
            rows = [
                (trial.seed, trial.ending, trial.score, len(trial.steps), round(trial.seconds / 60, 2))
                for trial in pair.trials()
            ]
            facts = {
                "trials_count": float(len(rows)),
                "trials": table(("seed", "ending", "score", "steps", "minutes"), rows),
            }
            return _result(pair, "run", made, facts)

    @agent_asset("evaluation", "How far the agent got: improvement, success, errors, cost.", "json", [run])
    def evaluation(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.MaterializeResult:
        """Judge the trials against the baseline, the starter's score; nothing is run again."""
        with _opened(context, workspace) as (steps, pair):
            made = steps.make_evaluation(pair)
            found = pair.read("evaluation")
            rows = [
                (one["seed"], one["ending"], one["raw"], one["improvement"], one["success"])
                for one in found["trials"]
            ]
            facts = {
                "trials_count": float(len(rows)),
                "successes_count": float(sum(bool(row[-1]) for row in rows)),
                "trials": table(("seed", "ending", found["metric"], "improvement", "success"), rows),
            }
            if found["baseline"]["value"] is not None:
                facts["baseline"] = found["baseline"]["value"]
            return _result(pair, "evaluation", made, facts)

    return [run, evaluation, _leaderboard_asset(evaluation)]


def _leaderboard_asset(evaluation: dg.AssetsDefinition) -> dg.AssetsDefinition:
    @dg.asset(
        key=[GROUP, "leaderboard"],
        deps=[dg.AssetDep(evaluation, partition_mapping=dg.AllPartitionMapping())],
        description="All agents compared over all tasks: success, improvement, failures, cost.",
        group_name=LEADERBOARD_GROUP,
        code_version="2",
        kinds={"json"},
        owners=OWNERS,
    )
    def leaderboard(workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
        """Compare the stored evaluations of however many agents and tasks there are."""
        from agml_assets.agents.steps import write_leaderboard

        try:
            written = write_leaderboard(workspace, load_agents())
        except UserError as error:
            raise dg.Failure(error.message, allow_retries=False) from None
        return dg.MaterializeResult(
            metadata={
                "agents_count": float(len(written.document["agents"])),
                "tasks_count": float(len(written.document["tasks"])),
                "cells": table(
                    ("task", "agent", "trials", "succeeded", "improvement", "no score"),
                    [
                        (
                            one["task"],
                            one["agent"],
                            one["n"],
                            one["success"]["successes"] if one["success"] else "cannot be told",
                            one["improvement"]["mean"],
                            one["n"] - one["scored"],
                        )
                        for one in written.document["cells"]
                    ],
                ),
                "left_out": table(("task and agent", "why"), written.document["left_out"].items()),
                "path": dg.MetadataValue.path(str(written.path)),
            },
            data_version=dg.DataVersion(written.digest),
        )

    return leaderboard


@contextmanager
def _opened(context: dg.AssetExecutionContext, workspace: Workspace) -> "Iterator[tuple[ModuleType, AgentRun]]":
    """Open the run's pair and hold it against other runs; a user's mistake is a permanent failure."""
    from agml_assets.agents import steps

    try:
        task, agent = agent_pair_of(context.run.tags)
        registry = load_agents()
        pair = steps.AgentRun(registry.task(task), registry.agent(agent), workspace)
        with pair.held(f"run {context.run.run_id}"):
            yield steps, pair
    except UserError as error:
        raise dg.Failure(error.message, allow_retries=False) from None


def _result(pair: "AgentRun", step: str, made: Sidecar, facts: dict[str, Any]) -> dg.MaterializeResult:
    path = pair.workspace.store.path(PLATFORM, pair.file(step))
    return dg.MaterializeResult(
        metadata={
            **facts,
            "path": dg.MetadataValue.path(str(path)),
            "size_mb": round(made.bytes / 1e6, 3),
            "duration_s": made.duration_s,
        },
        data_version=dg.DataVersion(made.digest),
    )
