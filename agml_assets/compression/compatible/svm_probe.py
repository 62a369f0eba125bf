"""NeuCo-Bench's SVM probe: machines with polynomial kernels at many settings, the best taken per fold.

The settings are seeded random draws from the published search space; the published search is scikit-optimize's.
"""

import os
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from agml_assets.compression.compatible.config import SvmParams
from agml_assets.compression.compatible.splits import Splits
from agml_assets.compression.labels import Kind


@dataclass(frozen=True)
class Setting:
    """One point of the search space.

    Attributes:
        C: Inverse penalty.
        degree: Of the kernel (gamma x'y + coef0)^degree.
        gamma: Null means 1 / (d times the variance of the values trained on), scikit-learn's `scale`.
        coef0: The kernel's constant.
        epsilon: Half the width of a regression's tube; null of a classification.
    """

    C: float
    degree: int
    gamma: float | None
    coef0: float
    epsilon: float | None


@dataclass(frozen=True)
class SearchedFolds:
    """What all settings came to on all folds.

    Attributes:
        settings: The settings tried.
        scores: Metric on the test split, R2 or F1; NaN where a fold cannot be trained.
        train_selection: Selection score (accuracy, or negative mean squared error) on the training split.
        test_selection: The same on the test split.
        best: Place of the setting with the best mean selection score over the folds' test splits.
    """

    settings: tuple[Setting, ...]
    scores: Float64[np.ndarray, "s f"]
    train_selection: Float64[np.ndarray, "s f"]
    test_selection: Float64[np.ndarray, "s f"]
    best: int

    @property
    def fold_scores(self) -> Float64[np.ndarray, " f"]:
        """Best score of each fold over the settings, each its own as published; NaN where it has none."""
        scored = np.where(np.isnan(self.scores), -np.inf, self.scores).max(axis=0)
        return np.where(np.isnan(self.scores).all(axis=0), np.nan, scored)


def draw_settings(kind: Kind, params: SvmParams) -> tuple[Setting, ...]:
    """Return `n_iter` seeded draws: C and gamma log-uniform, coef0 uniform, degree and epsilon any listed one."""
    from scipy.stats import loguniform, uniform

    rng = np.random.default_rng(params.random_state)
    settings = []
    for _ in range(params.n_iter):
        low_high = params.coef0
        settings.append(
            Setting(
                C=float(loguniform.rvs(*params.c, random_state=rng)),
                degree=int(rng.choice(params.degrees)),
                gamma=float(loguniform.rvs(*params.gamma, random_state=rng)) if params.gamma else None,
                coef0=float(uniform.rvs(low_high[0], low_high[1] - low_high[0], random_state=rng))
                if low_high
                else 0.0,
                epsilon=float(rng.choice(params.epsilons)) if kind == "regression" else None,
            )
        )
    return tuple(settings)


def search_folds(
    vectors: Float32[np.ndarray, "n d"],
    targets: Float[np.ndarray, " n"],
    kind: Kind,
    splits: Splits,
    params: SvmParams,
    tell: Callable[[int, int], None] | None = None,
) -> SearchedFolds:
    """Fit and score every setting on every fold.

    Equal to scikit-learn's `SVR` or `SVC` with `kernel="poly"`: the products of all rows are made once, every
    kernel is an elementwise function of them. Memory grows as 24 n^2 bytes.

    Args:
        vectors: Finite embeddings.
        targets: Labels; 0 and 1 of a classification.
        kind: Of the labels.
        splits: Rows of each fold.
        params: The search space.
        tell: Called with the settings done and all of them: fits are not limited, and some take very long.
    """
    wide = vectors.astype(np.float64)
    products = wide @ wide.T
    goals = _goals(kind, targets)
    scales = [scale_gamma(wide[train]) for train in splits.train]
    settings = draw_settings(kind, params)
    found = np.empty((len(settings), len(splits.train), 3))
    # libsvm lets go of the interpreter while it fits, and threads share the products.
    n_jobs = params.n_jobs if params.n_jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + params.n_jobs)
    with ThreadPoolExecutor(n_jobs) as threads:
        for place, setting in enumerate(settings):
            kernel = polynomial(products, setting, setting.gamma) if setting.gamma is not None else None
            fit = partial(_fit_and_score, kind, setting, products, kernel, goals)
            found[place] = list(threads.map(fit, splits.train, splits.test, scales))
            if tell is not None:
                tell(place + 1, len(settings))
    scores, train_selection, test_selection = np.moveaxis(found, -1, 0)
    means = np.array([one[~np.isnan(one)].mean() if (~np.isnan(one)).any() else -np.inf for one in test_selection])
    return SearchedFolds(settings, scores, train_selection, test_selection, int(means.argmax()))


def fit_on_all(
    vectors: Float32[np.ndarray, "n d"], targets: Float[np.ndarray, " n"], kind: Kind, setting: Setting
) -> Any:
    """Return scikit-learn's machine with a setting, fitted on all rows."""
    machine = _machine(kind, setting, kernel="poly", gamma=setting.gamma if setting.gamma is not None else "scale")
    return machine.fit(vectors.astype(np.float64), _goals(kind, targets))


def predict_fold(
    vectors: Float32[np.ndarray, "n d"],
    targets: Float[np.ndarray, " n"],
    kind: Kind,
    setting: Setting,
    train: Int64[np.ndarray, " m"],
) -> Float64[np.ndarray, " n"]:
    """Return what the machine fitted on some rows says of all, as labels are: 0 or 1 of a classification."""
    machine = fit_on_all(vectors[train], targets[train], kind, setting)
    said = machine.predict(vectors.astype(np.float64))
    return said if kind == "regression" else (said > 0).astype(np.float64)


def polynomial(products: Float64[np.ndarray, "m t"], setting: Setting, gamma: float) -> Float64[np.ndarray, "m t"]:
    """Return (gamma x'y + coef0)^degree of products x'y."""
    kernel = products * gamma
    kernel += setting.coef0
    base = kernel.copy()
    for _ in range(setting.degree - 1):
        kernel *= base
    return kernel


def scale_gamma(trained: Float64[np.ndarray, "m d"]) -> float:
    """Return scikit-learn's gamma `scale`: 1 / (d times the variance of all values), 1 where all are equal."""
    variance = float(trained.var())
    return 1 / (trained.shape[1] * variance) if variance else 1.0


def describe(machine: Any) -> dict[str, Any]:
    """Return all parameters of a fitted machine, as JSON values."""
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in machine.get_params().items()
    }


def _fit_and_score(
    kind: Kind,
    setting: Setting,
    products: Float64[np.ndarray, "n n"],
    kernel: Float64[np.ndarray, "n n"] | None,
    goals: Float64[np.ndarray, " n"],
    train: Int64[np.ndarray, " m"],
    test: Int64[np.ndarray, " t"],
    scale: float,
) -> tuple[float, float, float]:
    """Return metric on the test split, and selection scores on the training and on the test split."""
    from sklearn.metrics import accuracy_score, f1_score, mean_squared_error, r2_score

    if kind == "classification" and len(np.unique(goals[train])) < 2:
        return np.nan, np.nan, np.nan
    own = train[:, None], train
    other = test[:, None], train
    inner, outer = (
        (polynomial(products[own], setting, scale), polynomial(products[other], setting, scale))
        if kernel is None
        else (kernel[own], kernel[other])
    )
    machine = _machine(kind, setting, kernel="precomputed", gamma="scale").fit(inner, goals[train])
    said_train, said_test = machine.predict(inner), machine.predict(outer)
    if kind == "regression":
        with warnings.catch_warnings():  # of a constant test split, whose R2 is 0 or 1
            warnings.simplefilter("ignore")
            score = r2_score(goals[test], said_test)
        return score, -mean_squared_error(goals[train], said_train), -mean_squared_error(goals[test], said_test)
    score = f1_score(goals[test], said_test, pos_label=1, zero_division=0)
    return score, accuracy_score(goals[train], said_train), accuracy_score(goals[test], said_test)


def _machine(kind: Kind, setting: Setting, **kernel: Any) -> Any:
    from sklearn.svm import SVC, SVR

    shared = {"C": setting.C, "degree": setting.degree, "coef0": setting.coef0, **kernel}
    return SVR(epsilon=setting.epsilon, **shared) if kind == "regression" else SVC(**shared)


def _goals(kind: Kind, targets: Float[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    """Return what is fitted: the label; of a classification -1 for 0, as published."""
    wide = np.asarray(targets, np.float64)
    return wide if kind == "regression" else np.where(wide > 0, 1.0, -1.0)
