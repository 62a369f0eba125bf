"""The job that evaluates a model on a dataset or task."""

from typing import Any

import dagster as dg


def evaluation_job() -> Any:
    """Return the job `evaluate_models`, one partition a pair of a dataset or task and a model."""
    return dg.define_asset_job(
        "evaluate_models",
        selection=dg.AssetSelection.groups("evaluation"),
        description=(
            "One model's frozen features on one dataset or task: vectors, predictions of a probe, scores, run "
            "record. A dataset needs what `benchmark` stores: run that first."
        ),
    )
