"""Which training examples a few-shot score is fitted on: a class-balanced draw that a seed repeats."""

import numpy as np
from jaxtyping import Int, Shaped

from agml_assets.errors import UserError


def draw_few_shot(labels: Shaped[np.ndarray, " n"], n_train: int, seed: int) -> Int[np.ndarray, " n_train"]:
    """Draw examples so that all classes have as equal a number as they can.

    Each of the C classes that occur gives `n_train // C` examples; the `n_train % C` left over come from as
    many classes drawn at random, one from each. A class with too few gives all it has, and what is then missing is
    drawn at random from all examples not yet taken. The rule is BioBench's balanced sampler, whose draws no
    seed repeats.

    Args:
        labels: Class of each training example, of any type that sorts.
        n_train: Examples wanted, 1..n.
        seed: Of the draw; the same labels, number and seed give the same examples.

    Returns:
        int64 positions in `labels`, ascending, without repetition.

    Raises:
        UserError: `n_train` is below 1 or above n.
    """
    if not 1 <= n_train <= len(labels):
        raise UserError(
            f"n_train = {n_train} examples cannot be drawn from the {len(labels)} of the training split. "
            f"Give a number from 1 to {len(labels)}, or leave n_train out to train on all."
        )
    rng = np.random.default_rng(seed)
    _, codes = np.unique(labels, return_inverse=True)
    sizes = np.bincount(codes)
    wanted = np.full(len(sizes), n_train // len(sizes))
    wanted[rng.choice(len(sizes), n_train % len(sizes), replace=False)] += 1

    # In order of class, shuffled within: the first so many of each class are drawn.
    shuffled = rng.permutation(len(codes))
    by_class = shuffled[np.argsort(codes[shuffled], kind="stable")]
    place_in_class = np.arange(len(codes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    taken = place_in_class < wanted[codes[by_class]]
    drawn, rest = by_class[taken], by_class[~taken]
    return np.sort(np.r_[drawn, rng.choice(rest, n_train - len(drawn), replace=False)]).astype(np.int64)
