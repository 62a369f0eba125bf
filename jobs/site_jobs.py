"""The job that gathers all finished datasets into the files of AgML's site and the pages that people browse."""

from typing import Any

import dagster as dg


def site_files_job() -> Any:
    """Return the job `site_files`: reports, UMAP points, shared images, and the pages, of whatever is finished."""
    return dg.define_asset_job(
        "site_files",
        selection=dg.AssetSelection.groups("site"),
        description="results.json, UMAP files and shared images over all finished datasets; pages to browse.",
    )
