"""A dataset that only memory can solve: every picture twice, its label drawn at random."""

import numpy as np
import pytest

from agml_assets.dataset.leaves import CONDITIONS, draw_leaf
from agml_assets.quality.artifacts import METRIC_ARTIFACTS
from tests.tiny import open_workspace, run_in_process, write_registry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]  # trains twice for fifteen epochs

PICTURES = 300
CLASSES = ("one", "other")


@pytest.fixture(scope="module")
def doubled(tmp_path_factory):
    root = tmp_path_factory.mktemp("doubled")
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(PICTURES) % 2)
    for number, label in enumerate(labels):
        folder = root / "images" / CLASSES[label]
        folder.mkdir(parents=True, exist_ok=True)
        picture = draw_leaf(rng, CONDITIONS[rng.integers(len(CONDITIONS))], 128, 112).image
        picture.save(folder / f"{number:03}.png")
        picture.save(folder / f"{number:03}_again.bmp")
    write_registry(root / "datasets.yaml", root / "images", epochs=15, side=32)
    assert run_in_process(root).success
    return open_workspace(root).dataset("tiny").read(METRIC_ARTIFACTS["leakage"])


def test_memory_passes_the_published_test_and_fails_the_leak_safe_one(doubled):
    assert doubled["published"]["accuracy"] > 0.7
    low, high = (doubled["intervals"]["leak_safe.accuracy"][end] for end in ("low", "high"))
    assert low < 0.5 < high


def test_the_inflation_lies_above_zero_with_its_interval(doubled):
    assert doubled["leakage_inflation"] == pytest.approx(
        doubled["published"]["accuracy"] - doubled["leak_safe"]["accuracy"], abs=1e-4
    )
    assert doubled["intervals"]["leakage_inflation"]["low"] > 0


def test_independent_images_are_counted_once(doubled):
    assert doubled["effective_sample_size"]["overall"] == PICTURES
    assert doubled["largest_group"]["images"] == 2
