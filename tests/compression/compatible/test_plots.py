"""Figures: the counts they show, and that each is a picture of the published size."""

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import confusion_matrix

from agml_assets.compression.compatible.fitted import Fitted, Samples
from agml_assets.compression.compatible.plots import count_confusion, draw_curves, draw_folds
from agml_assets.compression.compatible.splits import draw_splits

pytest.importorskip("matplotlib")


def made(kind):
    rng = np.random.default_rng(0)
    targets = rng.random(30) if kind == "regression" else (rng.random(30) < 0.5).astype(float)
    samples = Samples("t", kind, np.zeros((30, 2), np.float32), targets, draw_splits(30, 2))
    curves = np.array([[1.0, np.nan], [0.5, np.inf]])
    fitted = Fitted(np.zeros(2), {}, curves, curves, "epoch", "loss", lambda _: 1 - targets, lambda: None)
    return samples, fitted


def test_counts_are_scikit_learns_confusion_matrix():
    rng = np.random.default_rng(0)
    truth, said = rng.integers(0, 2, (2, 50)).astype(float)
    np.testing.assert_array_equal(count_confusion(truth, said), confusion_matrix(truth, said))
    np.testing.assert_array_equal(count_confusion(np.ones(3), np.ones(3)), [[0, 0], [0, 3]])


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (
            "regression",
            ["t/regression_scatter/m_t_scatter_fold0.png", "t/regression_scatter/m_t_scatter_fold1.png"],
        ),
        ("classification", ["t/confusion_matrices/m_t_cm_fold0.png", "t/confusion_matrices/m_t_cm_fold1.png"]),
    ],
)
def test_each_fold_has_a_figure_in_the_published_place(tmp_path, kind, names):
    draw_folds(tmp_path, "m", *made(kind))
    found = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*"))
    assert found == names
    for name in names:
        with Image.open(tmp_path / name) as image:
            assert image.format == "PNG"
            assert image.info["dpi"] == pytest.approx((300, 300), abs=0.1)
            assert len(set(image.convert("L").resize((64, 48)).tobytes())) > 3


def test_curves_are_drawn_also_where_some_are_not_finite(tmp_path):
    draw_curves(tmp_path, "t", made("regression")[1])
    found = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.png"))
    assert found == ["t/loss_curves/t_train_loss_curves.png", "t/loss_curves/t_validation_loss_curves.png"]
