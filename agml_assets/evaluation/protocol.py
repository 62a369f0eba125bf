"""How a model is judged on a dataset or task: the probe, its training examples, and the score."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from agml_assets.errors import UserError, did_you_mean
from agml_assets.evaluation.scores import (
    ACCURACY,
    BALANCED_ACCURACY,
    MACRO_F1,
    TRAIT_MACRO_F1,
    Score,
    user_loss_score,
)

METRICS = ("macro_f1", "accuracy", "balanced_accuracy", "trait_f1", "user_loss")


@dataclass(frozen=True)
class Protocol:
    """How a model is judged.

    Attributes:
        probe: One of `evaluation.ways.WAYS`: what is fitted, or how else the model answers.
        metric: One of `METRICS`.
        aggregate: How the vectors of an example's images become one; null where it has one image.
        n_train: Training examples drawn, class-balanced; null means all.
        seed: Of the draw and of the probe.
        poisonous: Class ids that `user_loss` holds for poisonous.
        by_subtask: Whether each `subtask` has a probe of its own.
    """

    probe: str
    metric: str
    aggregate: Literal["mean", "max"] | None = None
    n_train: int | None = None
    seed: int = 17
    poisonous: tuple[int, ...] = ()
    by_subtask: bool = False

    @property
    def score(self) -> Score:
        """The score that counts."""
        return score_of(self.metric, self.poisonous)


def score_of(metric: str, poisonous: Collection[int] = ()) -> Score:
    """Return a score by its name.

    Raises:
        UserError: There is none of that name.
    """
    if metric == "user_loss":
        return user_loss_score(poisonous)
    scores = {
        "macro_f1": MACRO_F1,
        "accuracy": ACCURACY,
        "balanced_accuracy": BALANCED_ACCURACY,
        "trait_f1": TRAIT_MACRO_F1,
    }
    if metric not in scores:
        raise UserError(
            f"There is no metric {metric!r}.{did_you_mean(metric, METRICS)} There are: {', '.join(METRICS)}."
        )
    return scores[metric]
