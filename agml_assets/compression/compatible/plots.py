"""NeuCo-Bench's figures: loss curves of a task, and each fold's predictions, scattered or counted."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int64

from agml_assets.compression.compatible.fitted import Fitted, Samples
from agml_assets.compression.compatible.results import unfinished

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DPI = 300
_STYLE = "ggplot"
_SIDES = ("train", "test")


def draw_curves(folder: Path, task: str, fitted: Fitted) -> None:
    """Draw a curve per fold of training and of test splits.

    `loss_curves/<task>_train_loss_curves.png` and `loss_curves/<task>_validation_loss_curves.png`.
    """
    for name, curves in (("train", fitted.train_curves), ("validation", fitted.test_curves)):
        path = folder / task / "loss_curves" / f"{task}_{name}_loss_curves.png"
        with _figure(path, 1) as (axes,):
            axes.plot(np.arange(1, len(curves) + 1), np.where(np.isfinite(curves), curves, np.nan), linewidth=0.8)
            axes.set(title=f"{task}, {name}", xlabel=fitted.step, ylabel=fitted.curve)


def draw_folds(folder: Path, submission: str, samples: Samples, fitted: Fitted) -> None:
    """Draw what each fold's probe says of its training and test samples, a figure per fold, folds from 0.

    `regression_scatter/<submission>_<task>_scatter_fold<i>.png`, predictions over labels with the line of
    equality, or `confusion_matrices/<submission>_<task>_cm_fold<i>.png`.
    """
    task = samples.task
    kind = "scatter" if samples.kind == "regression" else "cm"
    place = folder / task / ("regression_scatter" if kind == "scatter" else "confusion_matrices")
    draw = _draw_scatter if kind == "scatter" else _draw_confusion
    for fold, rows in enumerate(zip(samples.splits.train, samples.splits.test, strict=True)):
        said = fitted.predict(fold)
        draw(
            place / f"{submission}_{task}_{kind}_fold{fold}.png",
            samples.targets,
            said,
            rows,
            f"{task}, fold {fold}",
        )


def count_confusion(
    labels: Float[np.ndarray, " n"], predictions: Float[np.ndarray, " n"]
) -> Int64[np.ndarray, "2 2"]:
    """Return how many of each label, 0 and 1, a row each, are predicted as 0 and as 1."""
    counts = np.zeros((2, 2), dtype=np.int64)
    np.add.at(counts, (labels.astype(np.int64), predictions.astype(np.int64)), 1)
    return counts


def _draw_scatter(
    path: Path, targets: np.ndarray, said: np.ndarray, rows: tuple[np.ndarray, np.ndarray], title: str
) -> None:
    with _figure(path, 1) as (axes,):
        for some, name in zip(rows, _SIDES, strict=True):
            axes.scatter(targets[some], said[some], s=6, alpha=0.5, label=name)
        ends = [targets.min(), targets.max()]
        axes.plot(ends, ends, color="black", linewidth=0.8, linestyle="--", label="equal")
        axes.set(title=title, xlabel="label", ylabel="prediction")
        axes.legend()


def _draw_confusion(
    path: Path, targets: np.ndarray, said: np.ndarray, rows: tuple[np.ndarray, np.ndarray], title: str
) -> None:
    with _figure(path, 2) as panels:
        for axes, some, name in zip(panels, rows, _SIDES, strict=True):
            counts = count_confusion(targets[some], said[some])
            axes.imshow(counts, cmap="Blues")
            axes.grid(visible=False)
            for (row, column), count in np.ndenumerate(counts):
                color = "white" if count > counts.max() / 2 else "black"
                axes.text(column, row, f"{count:,}", ha="center", va="center", color=color)
            axes.set(title=f"{title}, {name}", xlabel="prediction", ylabel="label", xticks=[0, 1], yticks=[0, 1])


@contextmanager
def _figure(path: Path, panels: int) -> "Iterator[list[Axes]]":
    # No pyplot: figures that belong to nobody, no display asked for.
    import matplotlib.style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.style.context(_STYLE):
        figure = Figure(layout="tight")
        FigureCanvasAgg(figure)
        yield list(figure.subplots(1, panels, squeeze=False)[0])
        with unfinished(path) as stage:
            figure.savefig(stage, dpi=DPI, format="png", metadata={"Software": None})
