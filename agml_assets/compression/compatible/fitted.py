"""A task fitted by either probe, in one form: scores, curves, predictions of each fold, and what is stored."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Float64

from agml_assets.compression.compatible.config import Config, LinearParams
from agml_assets.compression.compatible.linear_probe import train_folds, train_on_all
from agml_assets.compression.compatible.splits import Splits
from agml_assets.compression.compatible.svm_probe import describe, fit_on_all, predict_fold, search_folds
from agml_assets.compression.labels import Kind
from agml_assets.progress import Progress


@dataclass(frozen=True)
class Samples:
    """What a task's probes are fitted on.

    Attributes:
        task: Name of the task.
        kind: Of the targets.
        vectors: Embeddings, finite.
        targets: Labels, brought to [0, 1] where the configuration says so; 0 and 1 of a classification.
        splits: Rows of each fold.
    """

    task: str
    kind: Kind
    vectors: Float32[np.ndarray, "n d"]
    targets: Float64[np.ndarray, " n"]
    splits: Splits


@dataclass(frozen=True)
class StoredProbe:
    """A probe fitted on all samples, as arrays and JSON values.

    Attributes:
        arrays: What it is made of.
        metadata: What they mean.
    """

    arrays: Mapping[str, np.ndarray]
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class Fitted:
    """What a probe of a task came to.

    Attributes:
        fold_scores: R2 or F1 of each fold; NaN where it has none.
        hyperparameters: Of the probe, JSON values.
        train_curves: A value per step, epoch or setting, and fold, of training splits.
        test_curves: Those of test splits.
        step: What a step is.
        curve: What the value is.
        predict: Returns what a fold's probe says of all samples, as targets are.
        store: Returns the probe fitted on all samples.
    """

    fold_scores: Float64[np.ndarray, " f"]
    hyperparameters: Mapping[str, Any]
    train_curves: Float64[np.ndarray, "e f"]
    test_curves: Float64[np.ndarray, "e f"]
    step: str
    curve: str
    predict: Callable[[int], Float[np.ndarray, " n"]]
    store: Callable[[], StoredProbe]


def fit(samples: Samples, config: Config, device: str) -> Fitted:
    """Fit the probe that the configuration names on every fold."""
    if isinstance(config.probe_params, LinearParams):
        return _fit_linear(samples, config.probe_params, device)
    return _fit_svm(samples, config)


def _fit_linear(samples: Samples, params: LinearParams, device: str) -> Fitted:
    kind, vectors, goals = samples.kind, samples.vectors, samples.targets.astype(np.float32)
    trained = train_folds(vectors, goals, kind, samples.splits, params, samples.task, device)

    def predict(fold: int) -> Float[np.ndarray, " n"]:
        outputs = trained.best[fold].outputs(vectors)
        return outputs if kind == "regression" else (outputs > 0).astype(np.float64)

    def store() -> StoredProbe:
        probe = train_on_all(vectors, goals, kind, params, samples.task, device)
        arrays = {"weight": probe.weight[None], "bias": np.array([probe.bias], np.float32)}
        return StoredProbe(
            arrays,
            {
                "task": samples.task,
                "task_type": kind,
                "probe_type": "linear",
                "input_dim": vectors.shape[1],
                "output_dim": 1,
                "output": "x @ weight.T + bias"
                + ("" if kind == "regression" else "; the logit of class 1, predicted where it is above 0"),
            },
        )

    return Fitted(
        trained.fold_scores,
        {"epochs": params.epochs, "learning_rate": params.learning_rate, "batch_size": params.batch_size},
        trained.train_loss,
        trained.test_loss,
        "epoch",
        "mean squared error" if kind == "regression" else "binary cross-entropy",
        predict,
        store,
    )


def _fit_svm(samples: Samples, config: Config) -> Fitted:
    assert not isinstance(config.probe_params, LinearParams)
    kind, vectors, targets = samples.kind, samples.vectors, samples.targets
    tell = Progress(f"settings of the SVM probe tried on task {samples.task!r}")
    searched = search_folds(vectors, targets, kind, samples.splits, config.probe_params, tell)
    best = searched.settings[searched.best]
    machine = fit_on_all(vectors, targets, kind, best)

    def store() -> StoredProbe:
        arrays = {
            "support_vectors": machine.support_vectors_,
            "dual_coef": machine.dual_coef_,
            "intercept": machine.intercept_,
        }
        return StoredProbe(
            arrays,
            {
                "task": samples.task,
                "task_type": kind,
                "probe_type": "svm",
                "input_dim": vectors.shape[1],
                "degree": best.degree,
                "gamma": float(machine._gamma),
                "coef0": best.coef0,
                "output": "(gamma * x @ support_vectors.T + coef0) ** degree @ dual_coef.T + intercept"
                + ("" if kind == "regression" else "; class 1 is predicted where it is above 0"),
                "scikit_learn_parameters": describe(machine),
            },
        )

    return Fitted(
        searched.fold_scores,
        describe(machine),
        searched.train_selection,
        searched.test_selection,
        "setting",
        "negative mean squared error" if kind == "regression" else "accuracy",
        lambda fold: predict_fold(vectors, targets, kind, best, samples.splits.train[fold]),
        store,
    )
