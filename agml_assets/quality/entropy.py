"""Shannon entropy of counts, as the balance and the coverage metric use it."""

from collections.abc import Collection
from math import log


def entropy(counts: Collection[int]) -> float:
    """Return the Shannon entropy of `counts` in nats: -sum(p ln p), at least 0; zero counts add nothing."""
    total = sum(counts)
    return abs(sum((count / total) * log(count / total) for count in counts if count))
