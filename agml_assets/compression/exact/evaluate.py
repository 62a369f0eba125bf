"""What one embedding keeps: every task scored in exact mode, with interval, floor and what was left out.

Takes arrays; files are read elsewhere. Methods are compared in ranking.py, every formula is in
docs/compression_exact.md.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Any, Literal

import numpy as np
from blake3 import blake3
from jaxtyping import Float, Int, Shaped

from agml_assets.compression.exact import logistic, ridge
from agml_assets.compression.exact.controls import deal_anew
from agml_assets.compression.exact.folds import make_folds
from agml_assets.compression.exact.scores import (
    Scored,
    accuracy,
    f1,
    guessing_f1,
    macro_f1,
    mean_r2,
    over_repeats,
)
from agml_assets.compression.exact.uncertainty import (
    LEVEL,
    Interval,
    Spread,
    corrected_interval,
    interval_of,
)
from agml_assets.errors import UserError

Kind = Literal["regression", "classification"]

MIN_UNITS = 20
"""Fewer examples, or groups, than this give no interval that deserves the name (as in quality/intervals.py)."""

_SHOWN = 5  # ids, or classes, named in a message


@dataclass(frozen=True)
class ExactTask:
    """A task on some of the vectors.

    Attributes:
        name: Of the task.
        kind: What is predicted: numbers by ridge regression, classes by logistic regression.
        ids: Of the examples, all different. Folds are drawn from them.
        targets: Numbers (n,) or (n, t); or classes, int64 (n,), 0 or more.
        rows: Row of the vectors of each example; by default 0..n-1.
        groups: Group of each example, any integers: copies, or blocks on the map. Groups never straddle folds.
        class_names: Of classes 0, 1, ...; by default their numbers. In a task of two classes the second is the
            positive one.
    """

    name: str
    kind: Kind
    ids: Sequence[str]
    targets: Shaped[np.ndarray, "n *t"]
    rows: Int[np.ndarray, " n"] | None = None
    groups: Int[np.ndarray, " n"] | None = None
    class_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExactSettings:
    """How tasks are evaluated.

    Attributes:
        repeats: How often folds are drawn.
        folds: In each repeat, 3 or more.
        seed: Of folds and controls.
        ridge_penalties: To choose from, per training example.
        logistic_penalties: To choose from, per training example.
        control_repeats: Repeats of a control task of classes, of which each costs as much as one of the task;
            those of numbers cost next to nothing and have as many as the task.
        level: Of intervals, in (0, 1).
    """

    repeats: int = 4
    folds: int = 10
    seed: int = 42
    ridge_penalties: tuple[float, ...] = ridge.PENALTIES
    logistic_penalties: tuple[float, ...] = logistic.PENALTIES
    control_repeats: int = 1
    level: float = LEVEL

    def __post_init__(self) -> None:
        if self.repeats < 1 or self.control_repeats < 1 or self.folds < 3:
            raise UserError("Exact mode: give at least 1 repeat (also of controls) and at least 3 folds.")
        if not 0 < self.level < 1:
            raise UserError(f"Exact mode: level = {self.level}; give one between 0 and 1, such as 0.95.")
        for name in ("ridge_penalties", "logistic_penalties"):
            values = getattr(self, name)
            if not values or not all(math.isfinite(one) and one > 0 for one in values):
                raise UserError(f"Exact mode: {name} = {values}; give one or more positive numbers.")


@dataclass(frozen=True)
class Estimate:
    """A score and how sure it is.

    Attributes:
        value: Mean over repeats of the score of all out-of-fold predictions of a repeat.
        interval: Of R2 by the jackknife, of scores of classes by the corrected resampled t; null where there are
            too few units.
        corrected_resampled: By the corrected resampled t (Nadeau and Bengio), whatever the score, for comparison
            with figures of others; null likewise.
    """

    value: float
    interval: Interval | None
    corrected_resampled: Interval | None


@dataclass(frozen=True)
class Control:
    """The task with its targets dealt anew: the floor.

    Attributes:
        score: Of the task's metric.
        repeats: How many it comes from.
    """

    score: Estimate
    repeats: int


@dataclass(frozen=True)
class TaskResult:
    """What an embedding scores on a task.

    Attributes:
        task: Its name.
        kind: What is predicted.
        metric: Headline score: `r2` (mean over outputs) or `macro_f1`.
        score: On this metric.
        others: Other scores by name: `r2[i]` of each of several outputs; `accuracy`, and of two classes `f1`, that
            of the second.
        reference: What the metric is without any information, from the targets alone: 0 for R2, for macro-F1
            that of guessing each class equally often.
        kept: (score - reference) / (1 - reference): 0 is nothing, 1 everything.
        control: The floor; null where dealing anew left folds without a class.
        n: Examples.
        units: Examples, or groups.
        dimensions: Of the vectors that vary over the examples.
        examples: Digest of ids, targets and folds. Only results with the same can be compared.
        ids: Of the examples, ascending; all that follows is in this order.
        true: Targets: (n,) or (n, t) numbers; or classes, 0 upwards in the order of `class_names`.
        predicted: Out of fold, in the first repeat, shaped likewise.
        class_names: Of the classes evaluated.
        fold_scores: float64 (r, k), plain metric of each fold; NaN where it is not defined. For plots: the score
            is not their mean.
        penalties: Chosen, per training example: (r, k, t) or (r, k).
        spread: What moves the score.
        contributions: float64 (n,), of each example to the score (scores.py), mean over repeats.
        exclusions: What of the task was left out, a sentence each.
    """

    task: str
    kind: Kind
    metric: str
    score: Estimate
    others: dict[str, Estimate]
    reference: float
    kept: float
    control: Control | None
    n: int
    units: int
    dimensions: int
    examples: str
    ids: tuple[str, ...]
    true: Shaped[np.ndarray, "n *t"]
    predicted: Shaped[np.ndarray, "n *t"]
    class_names: tuple[str, ...]
    fold_scores: Float[np.ndarray, "r k"]
    penalties: Float[np.ndarray, "r k *t"]
    spread: Spread
    contributions: Float[np.ndarray, " n"]
    exclusions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Excluded:
    """A task without a number.

    Attributes:
        task: Its name.
        reason: A sentence.
    """

    task: str
    reason: str


@dataclass(frozen=True)
class ExactResult:
    """What an embedding scores on all tasks.

    Attributes:
        settings: As evaluated.
        tasks: By name.
        excluded: Tasks without a number, by name.
    """

    settings: ExactSettings
    tasks: tuple[TaskResult, ...]
    excluded: tuple[Excluded, ...] = ()


def to_json(value: Any) -> Any:
    """Return a result as plain dictionaries, lists and numbers; what is not finite is null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: to_json(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, dict):
        return {key: to_json(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return to_json(value.tolist())
    if isinstance(value, list | tuple):
        return [to_json(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def evaluate_exact(
    vectors: Float[np.ndarray, "n d"], tasks: Sequence[ExactTask], settings: ExactSettings | None = None
) -> ExactResult:
    """Score an embedding on tasks by probes at their optimum.

    A task's result depends on the vectors and targets of its examples, their ids and groups, its name (controls)
    and the settings: on no order of rows, and on no other task (but for rounding, as tasks of numbers with the
    same examples and groups are solved together).

    Args:
        vectors: float (n, d), finite where a task has an example.
        tasks: Of different names.
        settings: By default those of `ExactSettings`.

    Raises:
        UserError: A task is malformed (names, shapes, ids, rows), or a vector or target is not finite. What can
            happen to well-formed tasks (too few examples, one class, equal targets...) excludes the task, or an
            output or a class of it, with a sentence in the result.
    """
    settings = settings or ExactSettings()
    if vectors.ndim != 2:
        raise UserError(f"The vectors are an array of shape {vectors.shape}; give one of examples by dimensions.")
    repeated = [name for name, count in Counter(task.name for task in tasks).items() if count > 1]
    if repeated:
        raise UserError(f"Tasks of the same name: {', '.join(sorted(repeated))}. Rename all but one of each.")
    prepared: list[_Prepared] = []
    excluded: list[Excluded] = []
    for task in tasks:
        _check(task, vectors)
        found = _prepare(task, vectors, settings)
        if isinstance(found, Excluded):
            excluded.append(found)
        else:
            prepared.append(found)
    results = [_classify(one, vectors, settings) for one in prepared if one.kind == "classification"]
    together: dict[bytes, list[_Prepared]] = {}
    for one in prepared:
        if one.kind == "regression":
            together.setdefault(one.key, []).append(one)
    for some in together.values():
        results += _regress(some, vectors, settings)
    return ExactResult(
        settings,
        tuple(sorted(results, key=lambda one: one.task)),
        tuple(sorted(excluded, key=lambda one: one.task)),
    )


@dataclass(frozen=True)
class _Prepared:
    """A task whose examples are in order of id, without what cannot be evaluated."""

    name: str
    kind: Kind
    ids: tuple[str, ...]
    rows: Int[np.ndarray, " n"]
    targets: Shaped[np.ndarray, "n *t"]
    groups: Int[np.ndarray, " n"] | None
    folds: Int[np.ndarray, "r n"]
    class_names: tuple[str, ...]
    exclusions: tuple[str, ...]
    outputs: tuple[int, ...] = field(default=())

    @property
    def key(self) -> bytes:
        """Same for tasks that can be solved together."""
        groups = b"" if self.groups is None else np.ascontiguousarray(self.groups).tobytes()
        return blake3(self.rows.tobytes() + b"/" + self.folds.tobytes() + b"/" + groups).digest()

    @property
    def examples(self) -> str:
        """Digest of what a comparison of methods needs to be the same."""
        digest = blake3("\0".join(self.ids).encode())
        for array in (self.targets, self.folds):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest(16)

    @property
    def units(self) -> int:
        return len(self.ids) if self.groups is None else len(np.unique(self.groups))


def _check(task: ExactTask, vectors: Float[np.ndarray, "n d"]) -> None:
    n, targets, said = len(task.ids), np.asarray(task.targets), f"Task {task.name}"
    if task.kind not in ("regression", "classification"):
        raise UserError(f"{said}: kind is {task.kind!r}; give 'regression' or 'classification'.")
    if targets.ndim not in (1, 2) or len(targets) != n or (targets.ndim == 2 and not targets.shape[1]):
        raise UserError(
            f"{said}: {n} ids, targets of shape {targets.shape}; give one target, or row, for each id."
        )
    for name, some in (("rows", task.rows), ("groups", task.groups)):
        if some is not None and np.shape(some) != (n,):
            raise UserError(f"{said}: {n} ids, {name} of shape {np.shape(some)}; give one for each id.")
    repeated = [one for one, count in Counter(task.ids).items() if count > 1]
    if repeated:
        raise UserError(f"{said}: {_some(repeated)} more than once. Keep one row of each id.")
    rows = np.arange(n) if task.rows is None else np.asarray(task.rows)
    if n and (rows.min() < 0 or rows.max() >= len(vectors)):
        raise UserError(f"{said}: rows {rows.min()} to {rows.max()}; there are {len(vectors)} vectors.")
    _check_targets(task, targets)
    bad = ~np.isfinite(vectors[rows].sum(axis=1, dtype=np.float64))
    if bad.any():
        named = _some(task.ids[place] for place in np.flatnonzero(bad).tolist())
        raise UserError(f"{said}: the vector is not finite: {named}. Mend or remove these rows.")


def _check_targets(task: ExactTask, targets: Shaped[np.ndarray, "n *t"]) -> None:
    n, said = len(task.ids), f"Task {task.name}"
    if task.kind == "classification":
        if targets.ndim != 1 or not np.issubdtype(targets.dtype, np.integer) or (n and targets.min() < 0):
            raise UserError(f"{said}: classes must be one column of integers, 0 or more.")
        if task.class_names and n and targets.max() >= len(task.class_names):
            raise UserError(f"{said}: class {targets.max()}, but {len(task.class_names)} class names.")
    else:
        bad = ~np.isfinite(np.asarray(targets, np.float64)).reshape(n, -1 if n else 1).all(axis=1)
        if bad.any():
            named = _some(task.ids[place] for place in np.flatnonzero(bad).tolist())
            raise UserError(f"{said}: the label is not a finite number: {named}. Mend or remove these rows.")


def _some(ids: Iterable[str]) -> str:
    named = list(ids)
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return f"id {', '.join(repr(one) for one in named[:_SHOWN])}{more}"


def _prepare(task: ExactTask, vectors: Float[np.ndarray, "n d"], settings: ExactSettings) -> _Prepared | Excluded:
    """Put a task in order and take out what cannot be evaluated."""
    order = np.argsort(np.asarray(task.ids, dtype=object), kind="stable")
    rows = np.asarray(order if task.rows is None else np.asarray(task.rows)[order], np.int64)
    targets, groups = np.asarray(task.targets)[order], None
    if task.groups is not None:
        groups = np.asarray(task.groups, np.int64)[order]
    kept = np.ones(len(order), bool)
    said: list[str] = []
    names: tuple[str, ...] = ()
    outputs: tuple[int, ...] = ()
    if task.kind == "classification":
        present = np.unique(targets)
        all_names = task.class_names or tuple(str(one) for one in range(int(targets.max(initial=0)) + 1))
        rare = [one for one in present.tolist() if _count(targets == one, groups) < settings.folds]
        kept = ~np.isin(targets, rare)
        what = "examples" if groups is None else "groups"
        said += [
            f"Class {all_names[one]!r} has {_count(targets == one, groups)} {what}, {settings.folds} folds need "
            f"as many: its {int((targets == one).sum())} examples are left out."
            for one in rare[:_SHOWN]
        ]
        if more := rare[_SHOWN:]:
            said.append(f"So are {int(np.isin(targets, more).sum())} examples of {len(more)} further classes.")
        present = np.setdiff1d(present, rare)
        if len(present) < 2:
            left = f"Only class {all_names[present[0]]!r} is left" if len(present) else "No class is left"
            return Excluded(task.name, " ".join([*said, f"{left}; two or more are needed."]))
        names = tuple(all_names[one] for one in present.tolist())
        targets = np.searchsorted(present, targets)
    else:
        targets = targets.astype(np.float64)
    targets, rows, order = targets[kept], rows[kept], order[kept]
    groups = None if groups is None else groups[kept]
    units = _count(np.ones(len(rows), bool), groups)
    if units < settings.folds:
        what = "examples" if groups is None else "groups"
        return Excluded(task.name, f"{units} {what}; {settings.folds} folds need at least {settings.folds}.")
    if task.kind == "regression":
        columns = targets.reshape(len(targets), -1)
        varies = columns.max(axis=0) > columns.min(axis=0)
        said += [f"Output {one} is the same for all examples: left out." for one in np.flatnonzero(~varies)]
        if not varies.any():
            return Excluded(task.name, "All targets are equal: there is nothing to predict.")
        outputs = tuple(np.flatnonzero(varies).tolist())
        targets = columns[:, varies]
    used = vectors[rows]
    if not len(used.T) or not (used.max(axis=0) > used.min(axis=0)).any():
        return Excluded(task.name, "All vectors are equal: there is nothing to predict from.")
    ids = tuple(task.ids[place] for place in order.tolist())
    classes = targets if task.kind == "classification" else None
    folds = make_folds(ids, settings.repeats, settings.folds, settings.seed, classes, groups)
    if classes is not None and logistic.lacks_class(classes, len(names), folds):
        reason = "Some two folds hold all examples of a class, as groups are large: there is none to train on."
        return Excluded(task.name, " ".join([*said, reason]))
    return _Prepared(task.name, task.kind, ids, rows, targets, groups, folds, names, tuple(said), outputs)


def _count(which: Shaped[np.ndarray, " n"], groups: Int[np.ndarray, " n"] | None) -> int:
    return int(which.sum()) if groups is None else len(np.unique(groups[which]))


def _regress(
    tasks: Sequence[_Prepared], vectors: Float[np.ndarray, "n d"], settings: ExactSettings
) -> list[TaskResult]:
    """Evaluate tasks of the same examples, groups and folds, and their controls, as one problem."""
    one, features = tasks[0], np.asarray(vectors[tasks[0].rows], np.float64)
    controls = [deal_anew(task.name, task.targets, settings.seed, task.groups) for task in tasks]
    columns = np.concatenate([task.targets for task in tasks] + controls, axis=1)
    fitted = ridge.predict_out_of_fold(features, columns, one.folds, settings.ridge_penalties, one.groups)
    ends = np.cumsum([0, *(task.targets.shape[1] for task in tasks), *(part.shape[1] for part in controls)])
    dimensions = _varying(features)
    results = []
    for place, (task, dealt) in enumerate(zip(tasks, controls, strict=True)):
        own = slice(ends[place], ends[place + 1])
        floor = slice(ends[len(tasks) + place], ends[len(tasks) + place + 1])
        several = task.targets.shape[1] > 1
        score, spread, contributions = _r2(task, task.targets, fitted, own, settings)
        others = {
            f"r2[{output}]": _r2(
                task, task.targets[:, [at]], fitted, slice(own.start + at, own.start + at + 1), settings
            )[0]
            for at, output in enumerate(task.outputs)
            if several
        }
        control, _, _ = _r2(task, dealt, fitted, floor, settings)
        predicted = fitted.predicted[:, :, own]
        results.append(
            TaskResult(
                task.name,
                "regression",
                "r2",
                score,
                others,
                0.0,
                score.value,
                Control(control, settings.repeats),
                len(task.ids),
                task.units,
                dimensions,
                task.examples,
                task.ids,
                task.targets if several else task.targets[:, 0],
                predicted[0] if several else predicted[0, :, 0],
                (),
                _fold_scores(
                    task.folds,
                    lambda repeat, rows, t=task, p=predicted: _plain_r2(t.targets[rows], p[repeat, rows]),
                ),
                fitted.penalties[:, :, own],
                spread,
                contributions,
                task.exclusions,
            )
        )
    return results


def _r2(
    task: _Prepared,
    true: Float[np.ndarray, "n t"],
    fitted: ridge.RidgePredictions,
    columns: slice,
    settings: ExactSettings,
) -> tuple[Estimate, Spread, Float[np.ndarray, " n"]]:
    predicted, pulls = fitted.predicted[:, :, columns], fitted.pulls[:, :, columns]
    repeated = over_repeats(task.folds, lambda repeat: mean_r2(true, predicted[repeat]))
    # What an example adds by being there to be predicted, and by being trained on.
    influence = (repeated.contributions + (pulls.mean(axis=0) / true.var(axis=0)).mean(axis=1)) / len(true)
    if task.groups is not None:
        influence = np.bincount(np.unique(task.groups, return_inverse=True)[1], influence)
    spread = Spread(influence, repeated.by_repeat, repeated.by_fold)
    return _estimate(repeated.value, spread, task.units, settings), spread, repeated.contributions


def _plain_r2(true: Float[np.ndarray, "p t"], predicted: Float[np.ndarray, "p t"]) -> float:
    return mean_r2(true, predicted).value if (true.max(axis=0) > true.min(axis=0)).all() else math.nan


def _classify(task: _Prepared, vectors: Float[np.ndarray, "n d"], settings: ExactSettings) -> TaskResult:
    features = np.asarray(vectors[task.rows], np.float64)
    n_classes, codes = len(task.class_names), task.targets
    fitted = logistic.predict_out_of_fold(features, codes, n_classes, task.folds, settings.logistic_penalties)

    def headline(true: Int[np.ndarray, " p"], predicted: Int[np.ndarray, " p"]) -> Scored:
        return macro_f1(true, predicted, n_classes)

    score, spread, contributions = _of_classes(task, task.folds, codes, fitted, headline, settings)
    others = {"accuracy": _of_classes(task, task.folds, codes, fitted, accuracy, settings)[0]}
    if n_classes == 2:
        others["f1"] = _of_classes(task, task.folds, codes, fitted, lambda t, p: f1(t, p, 1), settings)[0]
    control = None
    dealt = deal_anew(task.name, codes, settings.seed, task.groups)
    repeats = min(settings.control_repeats, settings.repeats)
    folds = make_folds(task.ids, repeats, settings.folds, settings.seed, dealt, task.groups)
    if not logistic.lacks_class(dealt, n_classes, folds):
        floor = logistic.predict_out_of_fold(features, dealt, n_classes, folds, settings.logistic_penalties)
        control = Control(_of_classes(task, folds, dealt, floor, headline, settings)[0], repeats)
    reference = guessing_f1(codes, n_classes)
    return TaskResult(
        task.name,
        "classification",
        "macro_f1",
        score,
        others,
        reference,
        (score.value - reference) / (1 - reference),
        control,
        len(codes),
        task.units,
        _varying(features),
        task.examples,
        task.ids,
        codes,
        fitted.predicted[0],
        task.class_names,
        _fold_scores(task.folds, lambda repeat, rows: headline(codes[rows], fitted.predicted[repeat, rows]).value),
        fitted.penalties,
        spread,
        contributions,
        task.exclusions,
    )


def _of_classes(
    task: _Prepared,
    folds: Int[np.ndarray, "r n"],
    true: Int[np.ndarray, " n"],
    fitted: logistic.LogisticPredictions,
    score: Any,
    settings: ExactSettings,
) -> tuple[Estimate, Spread, Float[np.ndarray, " n"]]:
    repeated = over_repeats(folds, lambda repeat: score(true, fitted.predicted[repeat]))
    spread = Spread(None, repeated.by_repeat, repeated.by_fold)
    return _estimate(repeated.value, spread, task.units, settings), spread, repeated.contributions


def _estimate(value: float, spread: Spread, units: int, settings: ExactSettings) -> Estimate:
    if units < MIN_UNITS:
        return Estimate(value, None, None)
    return Estimate(
        value,
        interval_of(value, spread, settings.level),
        corrected_interval(value, spread.by_fold, settings.level),
    )


def _fold_scores(folds: Int[np.ndarray, "r n"], score: Any) -> Float[np.ndarray, "r k"]:
    n_folds = int(folds.max()) + 1
    return np.array([[score(repeat, row == fold) for fold in range(n_folds)] for repeat, row in enumerate(folds)])


def _varying(features: Float[np.ndarray, "n d"]) -> int:
    return int((features.max(axis=0) > features.min(axis=0)).sum())
