"""What a model's test predictions score: each score is a function of sums over test examples.

So one matrix of counts gives a score in every resample (resamples.py). Intervals and comparisons are elsewhere.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from agml_assets.errors import UserError
from agml_assets.quality.intervals import balanced_accuracy, class_counts, macro_f1

TRAITS = (
    "FeedingPath",
    "Tropical",
    "Temperate",
    "Subtropical",
    "Boreal",
    "Polar",
    "freshwater",
    "saltwater",
    "brackish",
)
"""FishNet's binary traits, in the order of its columns (Khan et al., ICCV 2023)."""

UNKNOWN = -1
"""FungiCLEF's label of a species that the training set does not hold."""

# Costs of FungiCLEF 2023 (Picek et al., CLEF 2023 working notes).
COST_SPECIES = 1.0
COST_UNKNOWN_NAMED = 10.0
COST_KNOWN_UNNAMED = 0.1
COST_POISONOUS_EATEN = 100.0
COST_EDIBLE_LEFT = 1.0


@dataclass(frozen=True)
class Score:
    """A score of test predictions, in [0, 1], higher is better.

    Attributes:
        name: As in registries and files.
        columns: Takes truth and predictions (n, or n by outputs) and returns what is summed: one row per example
            (n, c), dense or a SciPy sparse array.
        figure: Takes sums of these columns (b, c) and returns the score of each row (b).
        kind: `share`, of examples, whose first column is 1 where one counts; `macro_f1`; or `other`. It decides
            how its interval is made.
        declared: Of macro-F1, the classes that count with or without test examples.
    """

    name: str
    columns: Callable[[Int[np.ndarray, "n *t"], Int[np.ndarray, "n *t"]], Any]
    figure: Callable[[Float[np.ndarray, "b c"]], Float[np.ndarray, " b"]]
    kind: Literal["share", "macro_f1", "other"] = "other"
    declared: tuple[int, ...] = ()

    def __call__(self, true: Int[np.ndarray, "n *t"], predicted: Int[np.ndarray, "n *t"]) -> float:
        """Return the score of one model.

        Raises:
            UserError: Truth and predictions differ in shape, are empty or are no integers.
        """
        check_shapes(true, predicted)
        return float(self.figure(np.asarray(self.columns(true, predicted).sum(axis=0), np.float64)[None])[0])


def check_shapes(true: np.ndarray, predicted: np.ndarray, of: str = "The model") -> None:
    """Raise a `UserError` if predictions do not match the truth, example by example; `of` opens the sentence."""
    if true.shape != predicted.shape:
        raise UserError(
            f"{of} has predictions of shape {predicted.shape}, the truth has {true.shape}: give one for each test "
            "example, in the order of the truth."
        )
    if not len(true):
        raise UserError(f"{of} has no test example: there is nothing to score.")
    if not all(np.issubdtype(array.dtype, np.integer) for array in (true, predicted)):
        raise UserError(f"{of} has labels that are no integers: give class ids, not names or probabilities.")


def macro_f1_score(declared: Sequence[int] = ()) -> Score:
    """Return macro-F1: the mean over classes of 2 TP / (2 TP + FP + FN), as scikit-learn's `f1_score`.

    Classes are those of the truth and those declared; a class that is only predicted costs its examples' classes
    and is none of its own. A declared class without test examples scores 0.

    Args:
        declared: Classes that count with or without test examples; none, for those of the truth alone.
    """
    classes = tuple(declared)
    return Score(
        "macro_f1",
        lambda true, predicted: class_counts(true, predicted, classes),
        lambda sums: macro_f1(sums, every=bool(classes)),
        "macro_f1",
        classes,
    )


def user_loss_score(poisonous: Collection[int]) -> Score:
    """Return FungiCLEF's user loss as a score: 1 less the loss over the worst loss that the truth allows.

    Classification costs 1 for a known species taken for another, 10 for an unknown one (-1) that is named and 0.1
    for a known one that is not; poisoning costs 100 where a poisonous species is not taken for a poisonous one
    and 1 the other way round. The worst loss is that of an adversary: n + 9 unknown + 100 poisonous + others.
    In a resample, the worst loss is the resample's own.

    Args:
        poisonous: Class ids of the poisonous species.

    Raises:
        UserError: The unknown species is among them.
    """
    if UNKNOWN in poisonous:
        raise UserError(f"The poisonous species hold {UNKNOWN}, the unknown one: list known species only.")
    ids = np.asarray(sorted(poisonous), np.int64)

    def columns(true: Int[np.ndarray, " n"], predicted: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n 2"]:
        unknown, unnamed = true == UNKNOWN, predicted == UNKNOWN
        deadly, avoided = np.isin(true, ids), np.isin(predicted, ids)
        loss = np.select(
            [true == predicted, unknown, unnamed], [0.0, COST_UNKNOWN_NAMED, COST_KNOWN_UNNAMED], COST_SPECIES
        )
        loss += COST_POISONOUS_EATEN * (deadly & ~avoided) + COST_EDIBLE_LEFT * (~deadly & avoided)
        worst = np.where(unknown, COST_UNKNOWN_NAMED, COST_SPECIES)
        worst += np.where(deadly, COST_POISONOUS_EATEN, COST_EDIBLE_LEFT)
        return np.column_stack([loss, worst])

    return Score("user_loss", columns, lambda sums: 1 - sums[:, 0] / sums[:, 1])


def published_macro_f1(true: Int[np.ndarray, " n"], predicted: Int[np.ndarray, " n"]) -> float:
    """Return macro-F1 by the rule of BioBench's published results: over all of 0..M, M the largest id seen.

    Ids that neither truth nor predictions hold count as 0, so gaps in the numbering lower it. For comparison with
    published files only.

    Raises:
        UserError: As `Score`; or an id is negative.
    """
    check_shapes(true, predicted)
    if min(true.min(), predicted.min()) < 0:
        raise UserError("The published macro-F1 knows no negative class ids.")
    last = int(max(true.max(), predicted.max()))
    return macro_f1_score(range(last + 1))(true, predicted)


def _share_of(
    right: Callable[[Int[np.ndarray, "n *t"], Int[np.ndarray, "n *t"]], Bool[np.ndarray, " n"]],
) -> Callable[[Int[np.ndarray, "n *t"], Int[np.ndarray, "n *t"]], Float[np.ndarray, "n 2"]]:
    return lambda true, predicted: np.column_stack([right(true, predicted), np.ones(len(true))]).astype(float)


def _ratio(sums: Float[np.ndarray, "b 2"]) -> Float[np.ndarray, " b"]:
    return sums[:, 0] / sums[:, 1]


def _trait_columns(true: Int[np.ndarray, "n 9"], predicted: Int[np.ndarray, "n 9"]) -> Any:
    from scipy.sparse import hstack

    if true.shape[1:] != (len(TRAITS),) or not np.isin(true, (0, 1)).all():
        raise UserError(f"FishNet's truth must be 0 or 1 for each of {len(TRAITS)} traits, not {true.shape[1:]}.")
    return hstack(
        [class_counts(*one, declared=(0, 1)) for one in zip(true.T, predicted.T, strict=True)], format="csr"
    )


def _trait_figure(sums: Float[np.ndarray, "b 54"]) -> Float[np.ndarray, " b"]:
    return np.mean([macro_f1(trait, every=True) for trait in np.split(sums, len(TRAITS), axis=1)], axis=0)


ACCURACY = Score("accuracy", _share_of(lambda true, predicted: true == predicted), _ratio, "share")
"""Share of examples predicted right (micro accuracy)."""

ALL_TRAITS = Score(
    "all_traits_correct", _share_of(lambda true, predicted: (true == predicted).all(axis=1)), _ratio, "share"
)
"""Share of examples with every output right: stands beside FishNet's score, not for it."""

BALANCED_ACCURACY = Score("balanced_accuracy", class_counts, balanced_accuracy)
"""Mean recall of the classes of the truth, as scikit-learn's `balanced_accuracy_score`."""

MACRO_F1 = macro_f1_score()

TRAIT_MACRO_F1 = Score("trait_macro_f1", _trait_columns, _trait_figure)
"""FishNet: mean over its nine traits of macro-F1 over the classes 0 and 1."""
