"""The jobs that evaluate models: one model on one dataset or task, and all evaluations compared."""

from typing import Any

import dagster as dg

from agml_assets.partitions import EVALUATE_MODELS


def evaluation_jobs() -> list[Any]:
    """Return `evaluate_models`, one partition a pair of a dataset or task and a model, and `model_report`."""
    return [
        dg.define_asset_job(
            EVALUATE_MODELS,
            selection=dg.AssetSelection.groups("evaluation"),
            description=(
                "One model's frozen features on one dataset or task: vectors, predictions of a probe, scores, run "
                "record. A dataset needs what `benchmark` stores: run that first."
            ),
        ),
        dg.define_asset_job(
            "model_report",
            selection=dg.AssetSelection.groups("model_report"),
            description="All evaluations compared: scores with intervals, ties, means, ImageNet's part.",
        ),
    ]
