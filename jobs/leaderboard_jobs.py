"""The job that turns run records into the leaderboard's files."""

from typing import Any

import dagster as dg


def leaderboard_job() -> Any:
    """Return the job `leaderboard`: checked run records, the site's manifests and our board."""
    return dg.define_asset_job(
        "leaderboard",
        selection=dg.AssetSelection.groups("leaderboard"),
        description="Run records checked; index.json and global.json of AgML's site; our board of models.",
    )
