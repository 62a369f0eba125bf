"""Control tasks: the same task with its targets dealt anew, so that nothing can be kept of them.

What a method scores on one is the floor that its score on the task is seen against.
"""

from collections.abc import Sequence

import numpy as np
from blake3 import blake3
from jaxtyping import Int, Shaped


def deal_anew(
    task: str, targets: Shaped[np.ndarray, "n *t"], seed: int, groups: Int[np.ndarray, " n"] | None = None
) -> Shaped[np.ndarray, "n *t"]:
    """Return the targets in random order; columns stay together, so how targets go with one another is kept.

    With groups, examples are put in order of group twice, groups drawn in another order each time, and targets go
    from the places of the one to the places of the other: neighbours stay neighbours, and what targets of a group
    have in common stays together but for where groups of different size meet.

    Args:
        task: Name; the order depends on it, the seed, and the order of the rows.
        targets: Of each example.
        seed: Of the order.
        groups: Group of each example; any ids.
    """
    rng = np.random.default_rng(int.from_bytes(blake3(f"{seed}/control/{task}".encode()).digest(8)))
    if groups is None:
        return targets[rng.permutation(len(targets))]
    _, members = np.unique(groups, return_inverse=True)
    orders: Sequence[np.ndarray] = [
        np.argsort(rng.permutation(int(members.max()) + 1)[members], kind="stable") for _ in range(2)
    ]
    dealt = np.empty_like(targets)
    dealt[orders[1]] = targets[orders[0]]
    return dealt
