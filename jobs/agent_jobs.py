"""The jobs that measure ML agents: one agent on one task, and all of them compared."""

from typing import Any

import dagster as dg

from agml_assets.partitions import RUN_AGENTS


def agent_jobs() -> list[Any]:
    """Return `agents`, one partition a pair of a task and an agent, and `agents_leaderboard`."""
    return [
        dg.define_asset_job(
            RUN_AGENTS,
            selection=dg.AssetSelection.groups("agents"),
            description=(
                "One agent on one task, with all its seeds: the run, its evaluation. Measure the agent `starter` "
                "first: its score is the baseline of all others."
            ),
        ),
        dg.define_asset_job(
            "agents_leaderboard",
            selection=dg.AssetSelection.groups("agents_leaderboard"),
            description="All agents compared over all tasks: success, improvement, failures, cost.",
        ),
    ]
