"""The jobs that measure compressed embeddings: one submission, and all of them compared."""

from typing import Any

import dagster as dg


def compression_jobs() -> list[Any]:
    """Return `compression`, one partition a submission, and `compression_leaderboard`."""
    return [
        dg.define_asset_job(
            "compression",
            selection=dg.AssetSelection.groups("compression"),
            description=(
                "One submission: its embeddings, what they score on every task, a summary. One that compresses a "
                "dataset's embeddings needs what `benchmark` stores: run that first."
            ),
        ),
        dg.define_asset_job(
            "compression_leaderboard",
            selection=dg.AssetSelection.groups("compression_leaderboard"),
            description="All submissions compared, phase by phase: ranks with ties, and how sure they are.",
        ),
    ]
