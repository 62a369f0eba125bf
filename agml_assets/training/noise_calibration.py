"""How well flagged labels can be trusted: labels are flipped on purpose, and the flags are counted.

Also the one rule by which a label is flagged. What the counts mean for a dataset is said by `label_noise`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from agml_assets.device import use_device
from agml_assets.training.out_of_fold import LOOSE_TOLERANCE, CrossFittedRegression, check_features

LEVELS = (0.01, 0.05, 0.10)
"""Shares of the images whose labels are flipped."""

SEEDS = 5
MAX_ROWS = 20_000

MIN_CLASS_GROUPS = 3
"""A class needs as many groups of copies for train, validation and test to have one each."""

MIN_GROUPS = 20
"""With fewer groups of copies, 1 and 5 % are the same one group."""

KINDS = ("uniform", "by_confusion")


def judged_rows(labels: Int[np.ndarray, " n"], probabilities: Float[np.ndarray, "n k"]) -> Bool[np.ndarray, " n"]:
    """Return which labels can be judged: those whose class occurs in the other folds.

    A class that the model never saw has probability exactly 0; that says nothing against the label.
    """
    return probabilities[np.arange(len(labels)), labels] > 0


def flag_labels(labels: Int[np.ndarray, " n"], probabilities: Float[np.ndarray, "n k"]) -> Int[np.ndarray, " m"]:
    """Return the rows whose label is probably wrong, most suspicious (lowest self-confidence) first.

    Confident learning as `cleanlab.filter.find_label_issues` does it by default (Northcutt et al. 2021,
    doi:10.1613/jair.1.12125); labels that cannot be judged are left out. None where fewer than two classes
    remain.

    Args:
        labels: Given class of each image.
        probabilities: Out-of-fold probabilities of the declared classes.
    """
    rows = np.flatnonzero(judged_rows(labels, probabilities))
    # The classes become 0..K-1 without gaps, as cleanlab asks.
    present, compact = np.unique(labels[rows], return_inverse=True)
    if len(present) < 2:
        return np.zeros(0, dtype=np.int64)
    from cleanlab.filter import find_label_issues

    issues = find_label_issues(
        compact,
        probabilities[np.ix_(rows, present)].astype(np.float64),
        return_indices_ranked_by="self_confidence",
        n_jobs=1,
    )
    return rows[np.asarray(issues, dtype=np.int64)]


def count_class_groups(
    labels: Int[np.ndarray, " n"], groups: Int[np.ndarray, " n"], n_classes: int
) -> Int[np.ndarray, " k"]:
    """Return in how many groups of copies each class occurs."""
    pairs = np.unique(np.column_stack([labels, groups]), axis=0)
    return np.bincount(pairs[:, 0], minlength=n_classes)


def noise_calibration(
    embeddings: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    groups: Int[np.ndarray, " n"],
    folds: Int[np.ndarray, " n"],
    n_classes: int,
    seed: int = 42,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Flip labels, compute the out-of-fold probabilities anew, and count what is flagged.

    Flips are drawn by groups of copies in random order until the level's share of the images is reached; a
    group that would go beyond is passed over, yet there is always one. All images of a group are flipped alike:
    `uniform` moves every class to another, each equally likely; `by_confusion` draws the other class
    by the mean probability that the clean out-of-fold probabilities give it for images of this class.

    Classes in fewer than `MIN_CLASS_GROUPS` groups are left out. Beyond `MAX_ROWS` images, a sample of whole
    groups is used, by class in proportion, at least `MIN_CLASS_GROUPS` groups of each class while they fit.

    Args:
        embeddings: Features of each image, all finite.
        labels: Class of each image, 0..n_classes-1.
        groups: Group of copies of each image; any ids.
        folds: Fold of each image; copies share one.
        n_classes: Declared classes.
        seed: Of sample and flips.
        progress: Called with the fits done and all fits.

    Returns:
        `levels`, `seeds`; `rows`, `groups`, `classes` used; `flagged`, the share flagged before any
        flip; for each kind (`uniform`, `by_confusion`) a list with, for each level, `level` and for
        each seed `injected`, the images flipped; `r`, the share of them flagged; `f`, the share of the untouched
        images flagged, an upper bound for false alarms, as their labels have errors too. Shares are
        of the labels that can be judged; null where there are none.

        Skipped where fewer than two classes or `MIN_GROUPS` groups remain, or all of them lie in one fold.

    Raises:
        UserError: An embedding is not finite; the rows are named.
        ValueError: The arguments have different lengths, or a label is not below `n_classes`.
    """
    check_features(embeddings, labels, folds, n_classes)
    rows = _sample(labels, groups, n_classes, seed)
    labels, folds = labels[rows], folds[rows]
    present, labels = np.unique(labels, return_inverse=True)
    groups = np.unique(groups[rows], return_inverse=True)[1]
    n_groups = len(np.unique(groups))
    if reason := _unfit(len(present), n_groups, len(np.unique(folds))):
        return {"skipped": True, "reason": reason, "rows": len(rows), "groups": n_groups, "classes": len(present)}

    cases = [(kind, level, run) for kind in KINDS for level in LEVELS for run in range(SEEDS)]
    total = (len(cases) + 1) * len(np.unique(folds))
    found = {}
    with use_device("calibration of label noise") as device:
        regression = CrossFittedRegression(embeddings[rows], folds, len(present), device)
        clean = regression.fit(labels[None], progress=_part(progress, 0, total))
        confusion = _confusion(labels, clean.probabilities[0])
        draws = {
            (level, run): _Draw(groups, level, np.random.default_rng([seed, step, run]))
            for step, level in enumerate(LEVELS)
            for run in range(SEEDS)
        }
        for start in range(0, len(cases), regression.labellings_at_once):
            batch = cases[start : start + regression.labellings_at_once]
            flipped = np.stack([draws[case[1:]].flip(labels, case[0], confusion) for case in batch])
            part = _part(progress, (1 + start) * len(np.unique(folds)), total)
            fits = regression.fit(flipped, clean.weights, LOOSE_TOLERANCE, part)
            for case, given, probabilities in zip(batch, flipped, fits.probabilities, strict=True):
                found[case] = _count(given, probabilities, given != labels)
    return {
        "levels": list(LEVELS),
        "seeds": SEEDS,
        "rows": len(rows),
        "groups": n_groups,
        "classes": len(present),
        "flagged": _share(_flags(labels, clean.probabilities[0]), judged_rows(labels, clean.probabilities[0])),
        **{
            kind: [
                {"level": level, **_by_seed([found[kind, level, run] for run in range(SEEDS)])} for level in LEVELS
            ]
            for kind in KINDS
        },
    }


class _Draw:
    """Which groups are flipped at a level, and a number in [0, 1) for each, that picks the class."""

    def __init__(self, groups: Int[np.ndarray, " n"], level: float, rng: np.random.Generator) -> None:
        sizes = np.bincount(groups)
        limit = max(round(level * len(groups)), int(sizes.min()))
        chosen = np.zeros(len(sizes), dtype=bool)
        room = limit
        for group in rng.permutation(len(sizes)):
            if sizes[group] <= room:
                chosen[group] = True
                room -= sizes[group]
        self._flipped = chosen[groups]
        self._picks = rng.random(len(sizes))[groups]

    def flip(
        self, labels: Int[np.ndarray, " n"], kind: str, confusion: Float[np.ndarray, "k k"]
    ) -> Int[np.ndarray, " n"]:
        """Return the labels with the drawn ones flipped; copies of one label get the same new one."""
        k = len(confusion)
        flipped, rows = labels.copy(), np.flatnonzero(self._flipped)
        if kind == "uniform":
            flipped[rows] = (labels[rows] + 1 + (self._picks[rows] * (k - 1)).astype(np.int64)) % k
            return flipped
        for row in rows:
            # The given class adds nothing to the sum, so no pick falls on it.
            steps = np.cumsum(confusion[labels[row]])
            flipped[row] = np.searchsorted(steps, self._picks[row] * steps[-1], side="right")
        return flipped


def _sample(
    labels: Int[np.ndarray, " n"], groups: Int[np.ndarray, " n"], n_classes: int, seed: int
) -> Int[np.ndarray, " m"]:
    """Return at most `MAX_ROWS` rows of classes with enough groups, as whole groups, ascending."""
    enough = count_class_groups(labels, groups, n_classes) >= MIN_CLASS_GROUPS
    rows = np.flatnonzero(enough[labels])
    if len(rows) <= MAX_ROWS:
        return rows
    _, first, dense, sizes = np.unique(groups[rows], return_index=True, return_inverse=True, return_counts=True)
    # A group counts for the class of its first image; groups of a class follow one another at equal steps.
    classes = labels[rows][first]
    shuffled = np.random.default_rng(seed).permutation(len(sizes))
    by_class = shuffled[np.argsort(classes[shuffled], kind="stable")]
    per_class = np.bincount(classes, minlength=n_classes)
    place = np.arange(len(sizes)) - (np.cumsum(per_class) - per_class)[classes[by_class]]
    turn = np.where(place < MIN_CLASS_GROUPS, -1.0, (place + 0.5) / per_class[classes[by_class]])
    kept, room = np.zeros(len(sizes), dtype=bool), MAX_ROWS
    for group in by_class[np.argsort(turn, kind="stable")]:
        if sizes[group] <= room:
            kept[group] = True
            room -= sizes[group]
    return rows[kept[dense]]


def _unfit(n_classes: int, n_groups: int, n_folds: int) -> str | None:
    if n_classes < 2:
        return f"{n_classes} classes have at least {MIN_CLASS_GROUPS} groups of copies; flips need two."
    if n_groups < MIN_GROUPS:
        return f"{n_groups} groups of copies; at least {MIN_GROUPS} are needed."
    return "All images lie in one fold." if n_folds < 2 else None


def _confusion(labels: Int[np.ndarray, " n"], probabilities: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "k k"]:
    """Return, for each class, the mean probability of each other class; all other equal where there is none."""
    k = probabilities.shape[1]
    sums = np.zeros((k, k))
    np.add.at(sums, labels, probabilities)
    np.fill_diagonal(sums, 0)
    empty = sums.sum(axis=1) == 0
    sums[empty] = 1 - np.eye(k)[empty]
    return sums / sums.sum(axis=1, keepdims=True)


def _flags(labels: Int[np.ndarray, " n"], probabilities: Float[np.ndarray, "n k"]) -> Bool[np.ndarray, " n"]:
    flags = np.zeros(len(labels), dtype=bool)
    flags[flag_labels(labels, probabilities)] = True
    return flags


def _count(
    given: Int[np.ndarray, " n"], probabilities: Float[np.ndarray, "n k"], flipped: Bool[np.ndarray, " n"]
) -> dict[str, Any]:
    flags, judged = _flags(given, probabilities), judged_rows(given, probabilities)
    return {
        "injected": int(flipped.sum()),
        "r": _share(flags, judged & flipped),
        "f": _share(flags, judged & ~flipped),
    }


def _share(flags: Bool[np.ndarray, " n"], among: Bool[np.ndarray, " n"]) -> float | None:
    return round(float(flags[among].mean()), 4) if among.any() else None


def _by_seed(counts: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {key: [count[key] for count in counts] for key in counts[0]}


def _part(progress: Callable[[int, int], None] | None, done: int, total: int) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda now, _: progress(done + now, total)
