"""Repeated folds drawn from ids: whatever the order of rows and whatever other tasks there are.

Classes are spread over the folds and groups are kept whole. What is fitted on the folds is elsewhere.
"""

from collections.abc import Sequence

import numpy as np
from blake3 import blake3
from jaxtyping import Int


def make_folds(
    ids: Sequence[str],
    repeats: int,
    folds: int,
    seed: int,
    classes: Int[np.ndarray, " n"] | None = None,
    groups: Int[np.ndarray, " n"] | None = None,
) -> Int[np.ndarray, "r n"]:
    """Deal examples into folds, in each repeat anew.

    An example's lot in a repeat is the BLAKE3 digest of seed, repeat and id, so folds do not depend on the order
    of the rows, and examples common to two tasks without classes and with the same ids have the same folds.

    Without groups, examples are put in order of class, then lot, and dealt round: each class has in any two folds
    as many examples or one more, and so has the whole. Groups take their example with the smallest id for theirs,
    and the class that most of their examples have. From the largest to the smallest (by powers of two, so that
    repeats differ; then by lot) each goes into the fold with the fewest examples of its class, then the fewest of
    all (greedy; Graham 1969, doi:10.1137/0117039).

    Args:
        ids: Of the examples, all different.
        repeats: How often to deal.
        folds: In each repeat, 2 or more.
        seed: Of the lots.
        classes: Class of each example, 0 or more; without, all are of one.
        groups: Group of each example; any ids. Groups never straddle folds.

    Returns:
        int64, fold of each example in each repeat, 0..folds-1.

    Raises:
        ValueError: There are fewer examples or groups than folds.
    """
    codes = np.zeros(len(ids), np.int64) if classes is None else np.asarray(classes, np.int64)
    units = len(ids) if groups is None else len(np.unique(groups))
    if folds < 2 or units < folds:
        raise ValueError(f"{units} examples or groups cannot be dealt into {folds} folds")
    if groups is None:
        members, unit_ids, unit_codes = None, list(ids), codes
    else:
        members, unit_ids, unit_codes = _units(ids, codes, groups)
    dealt = np.empty((repeats, len(ids)), np.int64)
    for repeat in range(repeats):
        lots = _lots(unit_ids, seed, repeat)
        if members is None:
            dealt[repeat, np.lexsort((lots, codes))] = np.arange(len(ids)) % folds
        else:
            dealt[repeat] = _deal_groups(np.bincount(members), unit_codes, lots, folds)[members]
    return dealt


def _lots(ids: Sequence[str], seed: int, repeat: int) -> Int[np.ndarray, " n"]:
    """Return the rank of each id's lot; sixteen bytes, so that no two are the same."""
    prefix = f"{seed}/{repeat}/"
    digests = np.array([blake3((prefix + one).encode()).digest(16) for one in ids], dtype="S16")
    ranks = np.empty(len(ids), np.int64)
    # NumPy's bytes end at trailing zeros, which changes the order of none that differ.
    ranks[np.argsort(digests, kind="stable")] = np.arange(len(ids))
    return ranks


def _units(
    ids: Sequence[str], codes: Int[np.ndarray, " n"], groups: Int[np.ndarray, " n"]
) -> tuple[Int[np.ndarray, " n"], list[str], Int[np.ndarray, " g"]]:
    """Return the place of each example's group, and the name and class of each group."""
    _, members = np.unique(groups, return_inverse=True)
    n_groups = int(members.max()) + 1
    names: list[str] = [""] * n_groups
    for one in np.argsort(np.asarray(ids, dtype=object), kind="stable")[::-1].tolist():
        names[members[one]] = ids[one]
    counts = np.zeros((n_groups, int(codes.max()) + 1), np.int64)
    np.add.at(counts, (members, codes), 1)
    return members, names, counts.argmax(axis=1)


def _deal_groups(
    sizes: Int[np.ndarray, " g"], codes: Int[np.ndarray, " g"], lots: Int[np.ndarray, " g"], folds: int
) -> Int[np.ndarray, " g"]:
    dealt = np.zeros(len(sizes), np.int64)
    total = [0] * folds
    of_class: dict[int, list[int]] = {}
    order = np.lexsort((lots, codes, -np.floor(np.log2(sizes))))
    for one, code, size in zip(order.tolist(), codes[order].tolist(), sizes[order].tolist(), strict=True):
        counts = of_class.setdefault(code, [0] * folds)
        choice = min(range(folds), key=lambda fold: (counts[fold], total[fold]))
        dealt[one] = choice
        counts[choice] += size
        total[choice] += size
    return dealt
