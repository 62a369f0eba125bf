"""The artifacts of this room: one file per metric, and the score."""

from agml_assets.lineage import Artifact
from agml_assets.quality.metrics import METRICS

METRIC_ARTIFACTS = {
    metric.name: Artifact(
        f"quality/{metric.name}",
        ".json",
        inputs=metric.inputs,
        settings=metric.settings,
        code_version=metric.code_version,
    )
    for metric in METRICS
}

SCORE = Artifact("quality/score", ".json")
"""Reads whatever metrics are current, so its inputs are not fixed; its digest tells whether it changed."""

ARTIFACTS = (*METRIC_ARTIFACTS.values(),)
