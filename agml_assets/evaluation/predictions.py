"""A probe is fitted on the training examples, and what it says of every test example is kept."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float

from agml_assets.errors import UserError
from agml_assets.evaluation.probes.few_shot import draw_few_shot
from agml_assets.evaluation.probes.table import make_probe
from agml_assets.evaluation.subjects import Subject

MAX_CLASSES = 100
"""Classes up to which probabilities are kept: beyond, they would take more room than the features."""


@dataclass(frozen=True)
class Fitted:
    """What a probe gave.

    Attributes:
        predictions: One row per test example: `example`, `true`, `predicted` (null where the answer is no class),
            `group`, and `probabilities` where there are few classes and the probe gives them.
        n_train: Training examples.
        fit_s: Seconds to fit.
        predict_s: Seconds to predict.
        settings: Parameters of the probe, those that it chose itself included.
        training: Of a fine-tuned model, how its training went, as JSON values; None of others.
        device: What fitted and answered.
    """

    predictions: pl.DataFrame
    n_train: int
    fit_s: float
    predict_s: float
    settings: dict[str, Any]
    training: dict[str, Any] | None = None
    device: str = "cpu"

    @property
    def n_invalid(self) -> int:
        """Test examples that were answered with no class; they count as wrong."""
        return self.predictions["predicted"].null_count()


def fit_and_predict(subject: Subject, features: Float[np.ndarray, "e d"], device: str = "cpu") -> Fitted:
    """Fit the protocol's probe and predict the test examples.

    Args:
        subject: Its examples align to `features`.
        features: One vector per example.
        device: Where a probe that can use a GPU trains.

    Raises:
        UserError: There is nothing to train on, to test or to tell apart, features are not finite, or the probe
            is not made for such labels.
    """
    require_finite(subject, features)
    parts = [_fit(subject, rows, features, device) for rows in _subtasks(subject)]
    whole = parts[0]
    if len(parts) > 1:
        whole = Fitted(
            pl.concat([part.predictions for part in parts]),
            sum(part.n_train for part in parts),
            sum(part.fit_s for part in parts),
            sum(part.predict_s for part in parts),
            whole.settings,
        )
    return whole


def _subtasks(subject: Subject) -> Iterator[np.ndarray]:
    if not subject.protocol.by_subtask:
        yield np.arange(len(subject.examples))
        return
    names = subject.examples["subtask"]
    for name in names.unique(maintain_order=True):
        yield np.flatnonzero((names == name).to_numpy())


def _fit(subject: Subject, rows: np.ndarray, features: Float[np.ndarray, "e d"], device: str) -> Fitted:
    protocol, examples = subject.protocol, subject.examples[rows]
    split = examples["split"].to_numpy()
    alone = bool((split == "all").all())
    train = np.arange(len(rows)) if alone else np.flatnonzero(split == "train")
    test = train if alone else np.flatnonzero(split == "test")
    labels = np.array(examples["label"].to_list())
    if protocol.n_train is not None and not alone:
        strata = labels[train] if labels.ndim == 1 else np.zeros(len(train), np.int64)
        train = train[draw_few_shot(strata, protocol.n_train, protocol.seed)]
    _require_examples(subject, labels[train], test)
    probe = make_probe(protocol.probe, seed=protocol.seed, device=device)
    if alone and not hasattr(probe, "predict_leave_one_out"):
        raise UserError(
            f"{subject.key!r} has no training split: each example is predicted from all others, which probe "
            f"{protocol.probe!r} cannot do. Choose probe 'knn'."
        )
    if protocol.by_subtask and len(np.unique(labels[train])) < 2:
        from sklearn.dummy import DummyClassifier

        probe = DummyClassifier()  # nothing to learn there: the one label that there is
    groups = examples["group"].to_numpy()
    started = time.monotonic()
    try:
        probe.fit(features[rows[train]], labels[train], **_grouped(probe, groups[train]))
    except ValueError as error:  # what estimators say of data that are not theirs
        raise UserError(
            f"Probe {protocol.probe!r} cannot be fitted on {subject.key!r}: {error} Choose another probe, or "
            "more training examples."
        ) from error
    fitted = time.monotonic()
    predicted = probe.predict_leave_one_out() if alone else probe.predict(features[rows[test]])
    frame = pl.DataFrame(
        {
            "example": examples["example"][test],
            "true": labels[test].tolist(),
            "predicted": np.asarray(predicted).tolist(),
            "group": groups[test],
        }
    )
    ended = time.monotonic()
    few = labels.ndim == 1 and len(subject.class_names) <= MAX_CLASSES and not protocol.by_subtask
    if few and hasattr(probe, "predict_proba"):
        frame = frame.with_columns(
            probabilities=_probabilities(subject, probe, None if alone else features[rows[test]])
        )
    return Fitted(frame, len(train), fitted - started, ended - fitted, _settings(probe))


def _probabilities(subject: Subject, probe: Any, features: Float[np.ndarray, "m d"] | None) -> pl.Series:
    """Return a probability for every declared class, 0 for those that the probe has not seen."""
    found = np.asarray(probe.predict_proba(features), np.float32)
    every = np.zeros((len(found), len(subject.class_names)), np.float32)
    every[:, np.asarray(probe.classes_, np.int64)] = found
    return pl.Series(every.tolist(), dtype=pl.List(pl.Float32))


def _grouped(probe: Any, groups: np.ndarray) -> dict[str, np.ndarray]:
    """Return the groups for probes that divide their training examples: copies shall stay together there too."""
    import inspect

    return {"groups": groups} if "groups" in inspect.signature(probe.fit).parameters else {}


def _settings(probe: Any) -> dict[str, Any]:
    simple = (bool, int, float, str)
    given = {name: value for name, value in probe.get_params(deep=False).items() if isinstance(value, simple)}
    found = {name: float(getattr(probe, name)) for name in ("C_", "alpha_") if hasattr(probe, name)}
    return {"estimator": type(probe).__name__, **given, **found}


def require_finite(subject: Subject, features: Float[np.ndarray, "e d"]) -> None:
    """Raise a `UserError` that names examples whose vectors are not finite."""
    bad = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(bad):
        names = ", ".join(subject.examples["example"][bad[:5].tolist()].to_list())
        raise UserError(
            f"{len(bad)} examples of {subject.key!r} have features that are not finite, such as {names}. Encode "
            "them again; if that does not help, try precision: float32 in the model's entry."
        )


def _require_examples(subject: Subject, labels: np.ndarray, test: np.ndarray) -> None:
    if not len(test):
        raise UserError(f"{subject.key!r} has no test example. Choose another split, or add images.")
    if not len(labels):
        raise UserError(f"{subject.key!r} has no training example. Choose another split, or add images.")
    if labels.ndim == 1 and not subject.protocol.by_subtask and len(np.unique(labels)) < 2:
        raise UserError(
            f"The training examples of {subject.key!r} are all of one class: there is nothing to learn."
        )
