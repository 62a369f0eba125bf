"""The job that gathers all finished datasets into the files of AgML's site."""

from typing import Any

import dagster as dg


def site_files_job() -> Any:
    """Return the job `site_files`: reports, UMAP points and shared images of whatever datasets are finished."""
    return dg.define_asset_job(
        "site_files",
        selection=dg.AssetSelection.groups("site"),
        description="results.json, UMAP files and shared images over all finished datasets, for AgML's site.",
    )
