"""Which models are as good as the best, though the best was picked by looking.

Works on scores in shared resamples, of one task or of a mean over tasks; where they come from is elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from agml_assets.errors import UserError
from agml_assets.evaluation.resamples import ALPHA
from agml_assets.quality.intervals import MIN_GROUPS


@dataclass(frozen=True)
class Standing:
    """How one model stands to the best of its list.

    Attributes:
        model: Its name.
        score: Its point score.
        behind: Point score of the best less its own, at least 0.
        p_value: Of the hypothesis that no model of the list is better; not corrected for the number of models.
        p_holm: Corrected by Holm's method over all models of the list.
        tied: The hypothesis is not rejected: the model may be as good as the best. Always true of the best.
    """

    model: str
    score: float
    behind: float
    p_value: float
    p_holm: float
    tied: bool


def compare_with_best(
    models: Sequence[str],
    points: Float[np.ndarray, " m"],
    replicates: Float[np.ndarray, "b m"],
    n_groups: float,
    alpha: float = ALPHA,
) -> tuple[Standing, ...]:
    """Return the standing of every model, best point score first, equal ones by name.

    A test of a model against the one with the best point score alone rejects too often, because the best was
    picked for having been lucky: of two equally good models it rejects one in 9 % of cases at alpha = 5 %, of ten
    in a fifth. So the hypothesis about model j is that no model of the list is better than j, whichever has come
    out best. Its statistic is the largest of the differences (s_k - s_j) / se_kj over all other models k (Hsu's
    multiple comparisons with the best, Hsu 1984, doi:10.1214/aos/1176346732); se_kj is the standard deviation of
    that difference over the resamples. Its distribution under the hypothesis is that of the largest of the same
    differences in the resamples, less their means: as if all were equally good, the least favourable case. With
    p = (count + 1) / (B + 1), count the resamples that reach the statistic (Davison and Hinkley 1997, section
    4.2.5), and Holm's correction over all models (Holm 1979), the probability that any model is called worse that
    is as good as the best is at most about alpha, whatever the other models are.

    Args:
        models: Names.
        points: Score of each.
        replicates: Score of each in the same resamples.
        n_groups: Independent groups of test examples, of equal weight; with fewer than `MIN_GROUPS` no model is
            told from another (all p-values are 1).
        alpha: Level of the family.

    Raises:
        UserError: There are too few resamples for any p-value to reach Holm's strictest level.
    """
    n_resamples, n_models = replicates.shape
    if n_models / (n_resamples + 1) > alpha:
        raise UserError(
            f"{n_resamples} resamples cannot tell {n_models} models apart at {alpha}: take at least "
            f"{round(n_models / alpha)}."
        )
    p_values = np.ones(n_models)
    if n_groups >= MIN_GROUPS:
        # The variance over resamples of g groups is (g - 1) / g of an unbiased one.
        wider = np.sqrt(n_groups / (n_groups - 1))
        for own in range(n_models):
            p_values[own] = _p_value(own, points, replicates, wider)
    corrected = holm(p_values)
    best = points.max(initial=-np.inf)
    order = sorted(range(n_models), key=lambda place: (-points[place], models[place]))
    return tuple(
        Standing(
            models[place],
            float(points[place]),
            float(best - points[place]),
            float(p_values[place]),
            float(corrected[place]),
            bool(corrected[place] > alpha),
        )
        for place in order
    )


def holm(p_values: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    """Return p-values corrected by Holm's method (Holm 1979, Scandinavian Journal of Statistics 6:65)."""
    order = np.argsort(p_values, kind="stable")
    steps = p_values[order] * np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(1, np.maximum.accumulate(steps))
    return corrected


def _p_value(
    own: int, points: Float[np.ndarray, " m"], replicates: Float[np.ndarray, "b m"], wider: float
) -> float:
    others = np.arange(len(points)) != own
    if not others.any():
        return 1.0
    ahead = points[others] - points[own]
    differences = replicates[:, others] - replicates[:, [own]]
    differences -= differences.mean(axis=0)
    error = differences.std(axis=0, ddof=1)
    varies = error > 1e-12  # scores are in [0, 1]: less is rounding
    # A difference that no resample changes is certain.
    if (ahead[~varies] > 1e-12).any():
        return 1 / (len(replicates) + 1)
    if not varies.any():
        return 1.0
    statistic = (ahead[varies] / error[varies]).max() / wider
    count = ((differences[:, varies] / error[varies]).max(axis=1) >= statistic).sum()
    return float((count + 1) / (len(replicates) + 1))
