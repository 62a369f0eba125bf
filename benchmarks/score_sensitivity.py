"""How much the ranking of datasets hangs on choices of the score: weights, components, the other datasets.

`python benchmarks/score_sensitivity.py RESULTS_JSON`: a file of reports by name, such as the AgML site's
`results.json`. Prints both formulas' scores, then rank correlations with the ranking by the formula as it is.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import kendalltau, spearmanr

from agml_assets.quality.calibrated_score import COMPONENTS, calibrated_score
from agml_assets.quality.score import WEIGHTS, round_half_up, score

DRAWS = 2000
AXES = list(WEIGHTS)


def main(path: Path) -> None:
    """Print the tables."""
    reports = json.loads(path.read_text())
    published = {name: score(report["metrics"], report["phases_completed"]) for name, report in reports.items()}
    calibrated = {name: calibrated_score(report["metrics"], honest=False) for name, report in reports.items()}
    print_scores(published, calibrated)
    for formula, scores in (("agml-2026", published), ("calibrated-1", calibrated)):
        axes = np.array([[one["axes"][axis] for axis in AXES] for one in scores.values()])
        print_weights(formula, axes)
    print_components(calibrated)
    print_datasets(reports, calibrated)


def print_scores(published: Mapping[str, Any], calibrated: Mapping[str, Any]) -> None:
    """Print a row for each dataset, by falling `calibrated-1`: both scores and ranks, the axes of the latter."""
    rank = ranks([-one["overall"] for one in published.values()])
    order = sorted(calibrated, key=lambda name: -calibrated[name]["ranking_value"])
    print("| dataset | agml-2026 (rank) | calibrated-1 | " + " | ".join(AXES) + " |")
    for name in order:
        ours, theirs = calibrated[name], published[name]["overall"]
        axes = " | ".join(f"{round_half_up(ours['axes'][axis]):.1f}" for axis in AXES)
        at = rank[list(published).index(name)]
        print(f"| {name} | {theirs:.1f} ({at:.0f}) | {round_half_up(ours['ranking_value']):.1f} | {axes} |")


def print_weights(formula: str, axes: Float[np.ndarray, "n 4"]) -> None:
    """Print the rank correlation under random weights of the axes, all mixtures equally likely (Dirichlet 1)."""
    weights = np.array([*WEIGHTS.values()])
    drawn = np.random.default_rng(42).dirichlet(np.ones(len(AXES)), DRAWS)
    near = np.random.default_rng(42).dirichlet(weights * 50, DRAWS)
    for words, mixtures in (("any weights", drawn), ("weights about 0.06 away", near)):
        report(f"{formula}, {words}", axes @ weights, (axes @ mixtures.T).T)


def print_components(calibrated: Mapping[str, Any]) -> None:
    """Print the rank correlation with each component left out, its axis made of the others."""
    full = np.array([one["ranking_value"] for one in calibrated.values()])
    for axis, parts in COMPONENTS.items():
        for gone in parts:
            kept = {part: weight for part, weight in parts.items() if part != gone}
            weights = {name: weight for name, weight in WEIGHTS.items() if kept or name != axis}
            values = [
                sum(
                    weight * (mean(one["components"], kept) if name == axis else one["axes"][name])
                    for name, weight in weights.items()
                )
                for one in calibrated.values()
            ]
            report(f"calibrated-1 without {gone}", full, np.array([values]))


def print_datasets(reports: Mapping[str, Any], calibrated: Mapping[str, Any]) -> None:
    """Print the rank correlation of the others when one dataset is left out and all are scored anew."""
    lowest = 1.0
    for gone in reports:
        others = {name: report for name, report in reports.items() if name != gone}
        anew = [calibrated_score(one["metrics"], honest=False)["ranking_value"] for one in others.values()]
        before = [calibrated[name]["ranking_value"] for name in others]
        lowest = min(lowest, spearmanr(before, anew).statistic)
    print(f"calibrated-1, one dataset left out: lowest Spearman {lowest:.3f}")


def report(words: str, full: Float[np.ndarray, " n"], others: Float[np.ndarray, "d n"]) -> None:
    """Print Spearman's and Kendall's correlation of a ranking with others: median, and 5th percentile if many."""
    spearman = [spearmanr(full, other).statistic for other in others]
    kendall = [kendalltau(full, other).statistic for other in others]
    line = f"{words:<45} Spearman {np.median(spearman):.3f}, Kendall {np.median(kendall):.3f}"
    if len(others) > 1:
        line += f"; 5th percentile {np.quantile(spearman, 0.05):.3f}, {np.quantile(kendall, 0.05):.3f}"
    print(line)


def mean(components: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return the weighted mean of components."""
    return sum(components[name] * weight for name, weight in weights.items()) / sum(weights.values())


def ranks(values: list[float]) -> Float[np.ndarray, " n"]:
    """Return ranks from 1, equal values sharing the best."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(values, method="min"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
