import inspect
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

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
]


def test_metrics_stand_in_the_published_order():
    assert [metric.name for metric in METRICS] == PUBLISHED_ORDER


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_each_function_takes_the_artifacts_that_the_table_names(metric):
    parameters = inspect.signature(metric.compute).parameters
    expected = {key.rpartition("/")[2] for key in metric.inputs} | ({"settings"} if metric.settings else set())
    assert set(parameters) == expected
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters.values())
    assert set(metric.settings) <= set(Settings.model_fields)
    assert metric.compute.__name__ == metric.name


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_headlines_are_plain_floats(metric, index, splits, neighbors, settings):
    rng = np.random.default_rng(0)
    n = 12
    labels = np.arange(n) % 3
    vectors = rng.normal(size=(n, 4))
    rows = pl.Series(range(n), dtype=pl.Int64)
    artifacts = {
        "image_index": index(labels.tolist(), ["a", "b", "c"]).with_columns(
            pl.lit(pl.Series("meta.site", ["x", "y"] * (n // 2)))
        ),
        "splits": splits(["train"] * 8 + ["val"] * 2 + ["test"] * 2),
        "pixel_hashes": pl.DataFrame({"row": rows, "md5_group": rows, "blake3_group": rows}),
        "neighbors": neighbors([]),
        "duplicate_groups": pl.DataFrame({"row": rows, "exact": rows, "near": rows, "joined": rows}),
        "embeddings": (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32),
        "labels": labels,
        "settings": settings,
    }
    names = inspect.signature(metric.compute).parameters
    value = metric.compute(**{name: artifacts[name] for name in names})
    headline = {name: read(value) for name, read in metric.headline.items()}
    assert headline
    assert all(type(number) is float for number in headline.values())


def test_the_table_loads_without_heavy_libraries():
    code = (
        "import sys, agml_assets.quality.metrics, agml_assets.quality.score, agml_assets.quality.invariants;"
        "sys.exit(any(name in sys.modules for name in ('sklearn', 'torch', 'scipy', 'dagster', 'faiss')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
