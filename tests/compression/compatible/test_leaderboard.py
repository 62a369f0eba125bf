"""The leaderboard: against a table worked out by hand, SciPy's ranks, and old and broken results."""

import json
from datetime import datetime

import numpy as np
import polars as pl
import pytest
from scipy.stats import rankdata

from agml_assets.compression.compatible.leaderboard import competition_ranks, summarize_runs, task_weights
from agml_assets.errors import UserError

NOW = datetime(2026, 3, 4, 5, 6, 7)


def write(root, name, document, phase="dev"):
    folder = root / phase / name
    folder.mkdir(parents=True)
    text = document if isinstance(document, str) else json.dumps(document)
    (folder / "results_summary.json").write_text(text)


def summary(name, **q):
    means = {task: value / 100 for task, value in q.items()}
    return {
        "experiment": name,
        "overall_q_score": float(np.mean(list(q.values()))),
        "overall_acc_score": float(np.mean(list(means.values()))),
        "task_q_scores": q,
        "task_acc_scores": means,
        "config": {},
    }


def test_ranks_weights_and_order_are_those_worked_out_by_hand(tmp_path):
    for name, s, t in (("A", 10, 40), ("B", 20, 30), ("C", 30, 30)):
        write(tmp_path, f"{name}_1", summary(name, s=s, t=t))
    found = summarize_runs(tmp_path, "dev", NOW)
    # Deviations, divisor 2, of s: 10; of t, with mean 100/3: sqrt((400 + 100 + 100) / 9 / 2) = sqrt(100 / 3).
    s, t = 10, np.sqrt(100 / 3)
    assert found.weights == pytest.approx({"s": s / (s + t), "t": t / (s + t)})
    # Ranks of s: 3, 2, 1; of t: 1, 2, 2 (ties share the better).
    w, v = s / (s + t), t / (s + t)
    table = found.table
    assert table["experiment"].to_list() == ["C", "B", "A"]
    assert table["weighted_score"].to_list() == pytest.approx([w + 2 * v, 2, 3 * w + v])
    assert table["aggregated_rank"].to_list() == [1, 2, 3]
    assert table["mean_score"].to_list() == [30, 25, 25]
    assert found.path == tmp_path / "leaderboards/dev/leaderboard_20260304_050607.csv"
    written = pl.read_csv(found.path)
    assert written.columns == [
        "experiment",
        "mean_score",
        "weighted_score",
        "aggregated_rank",
        "q::s",
        "q::t",
        "acc::s",
        "acc::t",
        "overall_q_score",
        "overall_acc_score",
    ]
    assert written["acc::t"].to_list() == [0.3, 0.3, 0.4]
    assert written["overall_q_score"].to_list() == [30, 25, 25]


def test_a_leaderboard_never_overwrites_another(tmp_path):
    write(tmp_path, "A_1", summary("A", s=1))
    names = [summarize_runs(tmp_path, "dev", NOW).path.name for _ in range(2)]
    assert names == ["leaderboard_20260304_050607.csv", "leaderboard_20260304_050607_2.csv"]


def test_ranks_are_scipys_competition_ranks():
    scores = np.random.default_rng(0).integers(0, 5, 30).astype(float)
    np.testing.assert_array_equal(competition_ranks(scores), rankdata(-scores, method="min"))


@pytest.mark.parametrize("q", [[[3.0, 4.0]], [[0.1, 0.7], [0.1, 0.7], [0.1, 0.7]]], ids=["one run", "equal runs"])
def test_weights_are_equal_where_there_is_no_spread(q):
    assert task_weights(np.array(q)).tolist() == [0.5, 0.5]


def test_equal_runs_share_the_first_rank(tmp_path):
    for name in "BA":
        write(tmp_path, name, summary(name, s=5, t=7))
    table = summarize_runs(tmp_path, "dev", NOW).table
    assert (table["experiment"].to_list(), table["aggregated_rank"].to_list()) == (["A", "B"], [1, 1])


def test_a_run_without_all_tasks_is_left_out_and_named(tmp_path):
    write(tmp_path, "A_1", summary("A", s=1, t=2))
    write(tmp_path, "B_1", summary("B", s=3))
    write(tmp_path, "C_1", {**summary("C", s=3), "task_q_scores": {"s": 3, "t": None}})
    found = summarize_runs(tmp_path, "dev", NOW)
    assert found.table["experiment"].to_list() == ["A"]
    assert found.left_out == {"B": "it has no Q of t", "C": "it has no Q of t"}


def test_runs_of_the_old_format_are_ranked(tmp_path):
    write(tmp_path, "A_1", summary("A", s=1, t=2))
    write(tmp_path, "old", {"experiment": "old", "overall_score": 5.5, "task_results": {"s": 4.0, "t": 7.0}})
    write(
        tmp_path,
        "older",
        {"overall_score": 2, "task_result": {"s": {"q_stat": 0, "mean_score": 0.3}, "t": {"q_stat": 4}}},
    )
    table = summarize_runs(tmp_path, "dev", NOW).table.sort("experiment")
    assert table["experiment"].to_list() == ["A", "old", "older"]
    assert table["q::t"].to_list() == [2, 7, 4]
    assert table["acc::s"].to_list() == [0.01, None, 0.3]
    assert table["overall_q_score"].to_list() == [1.5, 5.5, 2]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"task_q_scores": 3}', "null"])
def test_a_broken_run_is_left_out_and_named(tmp_path, text):
    write(tmp_path, "A_1", summary("A", s=1))
    write(tmp_path, "B_1", text)
    found = summarize_runs(tmp_path, "dev", NOW)
    assert found.table["experiment"].to_list() == ["A"]
    assert "B_1" in found.left_out["B_1"]


def test_a_score_that_is_no_number_counts_as_missing(tmp_path):
    write(tmp_path, "A_1", summary("A", s=1))
    write(tmp_path, "B_1", '{"experiment": "B", "task_q_scores": {"s": NaN}}')
    assert summarize_runs(tmp_path, "dev", NOW).left_out == {"B": "it has no Q of s"}


def test_a_phase_without_runs_is_refused(tmp_path):
    with pytest.raises(UserError, match="no such folder of runs"):
        summarize_runs(tmp_path, "dev")
    (tmp_path / "dev").mkdir()
    with pytest.raises(UserError, match="it has no run"):
        summarize_runs(tmp_path, "dev")
    write(tmp_path, "A", summary("A", s=1))
    write(tmp_path, "B", summary("B", t=1))
    with pytest.raises(UserError, match=r"no run can be ranked \(A: it has no Q of t; B: it has no Q of s\)"):
        summarize_runs(tmp_path, "dev")
    with pytest.raises(UserError, match="cannot be called 'leaderboards'"):
        summarize_runs(tmp_path, "leaderboards")
