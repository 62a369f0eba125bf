import inspect
import subprocess
import sys

import pytest

from agml_assets.quality.artifacts import METRIC_ARTIFACTS
from agml_assets.quality.metrics import METRICS
from agml_assets.settings import Settings

PUBLISHED_ORDER = [
    "class_imbalance",
    "exact_duplicate",
    "resolution_consistency",
    "metadata_coverage",
    "near_duplicate",
    "feature_separability",
    "intra_class_diversity",
    "dataset_cartography",
    "class_confusability",
    "label_noise",
]
OURS = ["image_health", "leakage"]


def test_metrics_stand_in_the_published_order_and_ours_after_them():
    assert [metric.name for metric in METRICS] == PUBLISHED_ORDER + OURS


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_each_function_takes_the_artifacts_that_the_table_names(metric):
    parameters = inspect.signature(metric.compute).parameters
    expected = {key.rpartition("/")[2] for key in metric.inputs} | ({"settings"} if metric.settings else set())
    assert set(parameters) == expected
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters.values())
    assert set(metric.settings) <= set(Settings.model_fields)
    assert metric.compute.__name__ == metric.name


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_headlines_are_plain_floats(metric, measured):
    value = measured.read(METRIC_ARTIFACTS[metric.name])
    assert not value.get("skipped")
    headline = {name: read(value) for name, read in metric.headline.items()}
    assert headline
    assert all(type(number) is float for number in headline.values())


def test_the_table_loads_without_heavy_libraries():
    code = (
        "import sys, agml_assets.quality.metrics, agml_assets.quality.score, agml_assets.quality.invariants;"
        "sys.exit(any(name in sys.modules for name in ('sklearn', 'torch', 'scipy', 'dagster', 'faiss')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
