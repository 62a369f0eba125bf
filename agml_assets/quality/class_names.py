"""Which class names look like one class under two names, or like a folder that is none.

Names alone are read. What it does to a dataset is said by `class_imbalance`.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from blake3 import blake3

from agml_assets.dataset.sources.base import SPLIT_NAMES

MAX_EXAMPLES = 50
"""Groups of alike names that a report lists; all are counted."""

MAX_EXAMPLE_NAMES = 20
"""Names that a report lists of one such group."""

SPELLING, SLIP, SUFFIX = (
    "the same but for case, spacing and punctuation",
    "one letter apart",
    "the same but for an author or a note in brackets",
)
"""What makes names alike, the strongest first."""

_LEAST_LETTERS = 5  # of a word in which one letter may be a slip: `rice` and `mice` are none
_LONGEST = 100  # characters up to which a name is compared letter by letter
_BETWEEN = re.compile(r"[\W_]+")
# `Papaver rhoeas L.` and `Papaver rhoeas`, `leaf spot (2019)` and `leaf spot`.
_NOTE = re.compile(r"[ _]+(\(.*\)|\S*\..*)$")


def alike_class_names(names: Sequence[str]) -> dict[str, Any]:
    """Return groups of class names that may mean one class.

    Names are alike when their words are the same in any case and with anything between them (Unicode NFKC, case
    folded); when one letter is added, left out, replaced or swapped with its neighbour in a word of at least five
    letters, none of them a digit; or when one is the other with an author or a note in brackets. It is a question
    to the curator: real classes can have such names.

    Args:
        names: Declared classes; all different.

    Returns:
        `groups`; `classes`, names in them; `examples`, the first `MAX_EXAMPLES` groups, each with its `size`,
        `classes` in the given order, at most `MAX_EXAMPLE_NAMES` of them, and the `reason`.
    """
    plain = [_plain(name) for name in names]
    without_notes = [_plain(_NOTE.sub("", " ".join(name.split()))) for name in names]
    # Equal spelling is equal without notes too; what only notes tell apart is what is left.
    noted = [(one, other) for one, other in _same(without_notes) if plain[one] != plain[other]]
    pairs = {SPELLING: [*_same(plain)], SLIP: [*_slips(plain)], SUFFIX: noted}
    groups = _join([pair for found in pairs.values() for pair in found], len(names))
    group_of = {label: number for number, group in enumerate(groups) for label in group}
    reasons: list[list[str]] = [[] for _ in groups]
    for reason, found in pairs.items():
        for number in {group_of[one] for one, _ in found}:
            reasons[number].append(reason)
    return {
        "groups": len(groups),
        "classes": len(group_of),
        "examples": [
            {
                "size": len(group),
                "classes": [names[label] for label in group[:MAX_EXAMPLE_NAMES]],
                "reason": "; ".join(why),
            }
            for group, why in zip(groups[:MAX_EXAMPLES], reasons, strict=False)
        ],
    }


def classes_called_like_splits(names: Sequence[str]) -> list[str]:
    """Return the class names that are names of splits, in which case folders may have been taken for classes."""
    return [name for name in names if name.strip().lower() in SPLIT_NAMES]


def _plain(name: str) -> str:
    return _BETWEEN.sub(" ", unicodedata.normalize("NFKC", name).casefold()).strip()


def _same(keys: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield pairs that chain the labels of equal, non-empty keys."""
    first: dict[str, int] = {}
    for label, key in enumerate(keys):
        if key and first.setdefault(key, label) != label:
            yield first[key], label


def _slips(plain: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield pairs of names that are one letter apart.

    Two such names are equal once a letter of each, or of one, is left out; so equal remainders are looked for
    (Garbe 2012, "symmetric delete"), which takes time in proportion to the letters and not to the pairs.
    """
    hashes, owners = [], []
    for label, name in enumerate(plain):
        for remainder in _remainders(name):
            hashes.append(int.from_bytes(blake3(remainder.encode("utf-8", "surrogatepass")).digest(8), "little"))
            owners.append(label)
    order = np.argsort(np.array(hashes, dtype=np.uint64), kind="stable").tolist()
    for _, run in groupby(order, key=hashes.__getitem__):
        labels = [owners[place] for place in run]
        for before, label in pairwise(labels):
            for other in {before, labels[0]}:
                if plain[other] != plain[label] and _is_slip(plain[other], plain[label]):
                    yield other, label


def _remainders(name: str) -> Iterator[str]:
    """Yield the name, and the name without each letter of each word in which a slip counts."""
    if len(name) > _LONGEST:
        return
    yield name
    for word in re.finditer(r"\S+", name):
        if _may_slip(word[0]):
            for place in range(*word.span()):
                yield name[:place] + name[place + 1 :]


def _may_slip(word: str) -> bool:
    return len(word) >= _LEAST_LETTERS and not any(letter.isdigit() for letter in word)


def _is_slip(one: str, other: str) -> bool:
    """Tell whether the names differ in one word, by one letter added, left out, replaced or swapped."""
    words = [(a, b) for a, b in zip(one.split(), other.split(), strict=False) if a != b]
    if len(one.split()) != len(other.split()) or len(words) != 1 or not all(map(_may_slip, words[0])):
        return False
    short, long = sorted(words[0], key=len)
    at = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(long) > len(short):
        return len(long) == len(short) + 1 and short[at:] == long[at + 1 :]
    swapped = short[at : at + 2] == long[at : at + 2][::-1] and short[at + 2 :] == long[at + 2 :]
    return swapped or short[at + 1 :] == long[at + 1 :]


def _join(pairs: Sequence[tuple[int, int]], n: int) -> list[tuple[int, ...]]:
    """Return the connected components of the pairs with two members or more, ascending."""
    parent = list(range(n))

    def root(label: int) -> int:
        while parent[label] != label:
            parent[label] = label = parent[parent[label]]
        return label

    for one, other in pairs:
        low, high = sorted((root(one), root(other)))
        parent[high] = low
    members: dict[int, list[int]] = {}
    for label in range(n):
        members.setdefault(root(label), []).append(label)
    return [tuple(group) for group in members.values() if len(group) > 1]
