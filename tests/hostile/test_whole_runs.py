"""Tiny datasets through the whole graph, models included."""

import json

import numpy as np
import pytest
from PIL import Image

from tests.tiny import run_in_process, write_registry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def benchmark(root, n, k, alike=False):
    """Benchmark `n` pictures of `k` classes; return the report."""
    rng = np.random.default_rng(n)
    picture = rng.integers(0, 255, (60, 80, 3), dtype=np.uint8)
    for i in range(n):
        folder = root / "images" / f"class {i % k}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / f"{i}.png")
        picture = picture if alike else rng.integers(0, 255, (60, 80, 3), dtype=np.uint8)
    write_registry(root / "datasets.yaml", root / "images")
    assert run_in_process(root).success
    assert (root / "results" / "tiny" / "report" / "card.html").stat().st_size > 0
    return json.loads((root / "results" / "tiny" / "result.json").read_text())


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (2, 2), (3, 2), (4, 2), (5, 2), (5, 5)])
def test_one_to_five_images_are_benchmarked_and_what_they_cannot_tell_has_its_reason(tmp_path, n, k):
    value = benchmark(tmp_path, n, k)
    assert value["phases_completed"] == [1, 2, 3]
    assert value["breaches"] == []
    assert value["reproducibility"]["num_images"] == n
    metrics = value["metrics"]
    assert all(metric["reason"] for metric in metrics.values() if metric.get("skipped"))
    if n == k:
        assert metrics["label_noise"]["skipped"]
        assert metrics["feature_separability"]["skipped"]


def test_a_dataset_of_one_picture_over_and_over_is_benchmarked(tmp_path):
    value = benchmark(tmp_path, 30, 3, alike=True)
    assert value["phases_completed"] == [1, 2, 3]
    assert value["metrics"]["exact_duplicate"]["blake3"]["redundant_images"] == 29
    assert value["metrics"]["near_duplicate"]["effective_images"] == 1
    assert value["metrics"]["feature_separability"]["skipped"]
    assert value["score"]["components"]["redundancy"] == 0
