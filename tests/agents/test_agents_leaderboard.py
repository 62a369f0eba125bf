"""Agents compared: a table worked out by hand, what counts against an agent, ties, and what is left out."""

import itertools
import json

import pytest
from scipy.stats import binomtest, fisher_exact

from agml_assets.agents.evaluation import Baseline, evaluate
from agml_assets.agents.leaderboard import build_leaderboard
from agml_assets.store import dump_json
from tests.agents.invented_trials import agent, document, task, trial


def cell(board, of="crop", by="react"):
    (found,) = [one for one in board["cells"] if (one["task"], one["agent"]) == (of, by)]
    return found


def standing(board, by):
    (found,) = [one for one in board["agents"] if one["agent"] == by]
    return found


def test_the_table_of_one_pair_is_that_worked_out_by_hand():
    made = document([0.6, 0.7, 0.5, "error", "time_limit", "no_submission"], baseline=0.5, reference=0.9)
    found = cell(build_leaderboard([made]))
    counts = {
        "n": 6, "submitted": 3, "scored": 3, "failed": 1, "timed_out": 1, "no_submission": 1, "invalid": 0,
    }  # fmt: skip
    assert {name: found[name] for name in counts} == counts
    # Scores 0.6, 0.7, 0.5: standard deviation 0.1, over the root of 3.
    assert found["raw"] == {"mean": pytest.approx(0.6), "error": pytest.approx(0.0577350269), "n": 3}
    assert found["improvement"] == {"mean": pytest.approx(0.2), "error": pytest.approx(0.1154700538), "n": 3}
    assert found["normalised"] == {"mean": pytest.approx(0.25), "error": pytest.approx(0.1443375673), "n": 3}
    wilson = binomtest(2, 6).proportion_ci(0.95, "wilson")
    assert found["success"] == {
        "successes": 2, "n": 6, "rate": pytest.approx(1 / 3), "low": pytest.approx(wilson.low),
        "high": pytest.approx(wilson.high),
    }  # fmt: skip
    assert [found["success_at"][at]["successes"] for at in ("0.05", "0.15", "0.20", "0.30")] == [2, 2, 1, 1]
    assert found["tokens"] == {"mean": 1100, "error": 0, "n": 6}
    assert found["minutes"]["mean"] == 2
    assert found["endings"] == {"error": 1, "no_submission": 1, "submitted": 3, "time_limit": 1}


def test_a_trial_without_a_score_is_counted_once():
    endings = ("error", "killed", "time_limit", "no_submission", "step_limit", "token_limit", "submitted")
    trials = [
        trial(None, seed=seed, ending=ending, submitted=sent)
        for seed, (ending, sent) in enumerate(itertools.product(endings, (True, False)), start=1)
    ]
    found = cell(build_leaderboard([evaluate(trials, task(), agent(), Baseline(0.5))]))
    assert [found[name] for name in ("failed", "timed_out", "no_submission", "invalid")] == [4, 2, 4, 4]
    assert (found["n"], found["success"]["successes"], found["at_limit"]) == (14, 0, 4)


def test_one_trial_has_no_standard_error():
    assert cell(build_leaderboard([document([0.6])]))["raw"] == {"mean": 0.6, "error": None, "n": 1}


def test_without_any_score_there_is_no_mean_and_the_rate_is_zero_of_all():
    found = cell(build_leaderboard([document(["error", "killed"])]))
    assert found["raw"] == {"mean": None, "error": None, "n": 0}
    assert (found["success"]["successes"], found["success"]["n"], found["failed"]) == (0, 2, 2)


def test_a_score_of_a_trial_that_ran_out_of_time_is_shown_and_not_counted():
    trials = [trial(0.9, ending="time_limit", submitted=False), trial(0.9, seed=2)]
    found = cell(build_leaderboard([evaluate(trials, task(), agent(), Baseline(0.5))]))
    assert (found["success"]["successes"], found["above_but_unfinished"], found["timed_out"]) == (1, 1, 1)
    assert (found["raw"]["n"], found["improvement_submitted"]["n"], found["no_submission"]) == (2, 1, 0)


def test_over_tasks_the_rates_count_alike_and_have_one_interval():
    documents = [
        document([0.6, 0.6, 0.5], of="crop", reference=1.0),
        document([0.6, 0.5, 0.5], of="soil", reference=0.6),
    ]
    found = standing(build_leaderboard(documents), "react")
    wilson = binomtest(3, 6).proportion_ci(0.95, "wilson")
    assert found["success"]["value"] == 0.5
    assert found["success"]["interval"] == {"low": pytest.approx(wilson.low), "high": pytest.approx(wilson.high)}
    assert found["success"]["other_tasks"]["kind"] == "none"
    # Normalised: 0.2, 0.2, 0 on the one and 1, 0, 0 on the other.
    assert found["normalised"]["mean"] == pytest.approx((0.4 / 3 + 1 / 3) / 2)
    errors = 0.2 / 3**0.5 * (1 / 3) ** 0.5, (1 / 3) ** 0.5 / 3**0.5
    assert found["normalised"]["error"] == pytest.approx((errors[0] ** 2 + errors[1] ** 2) ** 0.5 / 2)


def test_agents_that_chance_may_have_ordered_share_a_rank():
    good, poor = [0.9] * 8, [0.5] * 8
    documents = [
        document(good, by="best"),
        document([*good[:7], 0.5], by="close"),
        document(poor, by="worst"),
    ]
    board = build_leaderboard(documents)
    assert [(one["agent"], one["rank"], one["sharing"]) for one in board["agents"]] == [
        ("best", 1, 1), ("close", 1, 1), ("worst", 3, 0),
    ]  # fmt: skip
    pairs = {(one["first"], one["second"]): one for one in board["pairs"]}
    assert pairs["best", "close"]["p_holm"] == 1
    # Holm over three: times 3, 2 and 1 in the order of p, none below the one before.
    low, middle, high = sorted(one["p_value"] for one in pairs.values())
    assert [pairs["best", "worst"]["p_value"], pairs["close", "worst"]["p_value"]] == [low, middle]
    expected = [3 * low, max(3 * low, 2 * middle), max(3 * low, 2 * middle, high)]
    assert sorted(one["p_holm"] for one in pairs.values()) == pytest.approx(expected)
    assert low == pytest.approx(2 / 12870), "of all ways to deal 8 successes to 16 trials"
    assert pairs["best", "worst"]["difference"] == 1 and pairs["best", "worst"]["p_holm"] < 0.001


def test_three_trials_of_one_task_tell_no_one_apart():
    board = build_leaderboard([document([0.9] * 3, by="best"), document([0.5] * 3, by="worst")])
    assert [one["rank"] for one in board["agents"]] == [1, 1]


def test_only_what_most_agents_have_is_in_the_mean_and_who_lacks_it_has_no_rank():
    documents = [document([0.9], of=of, by=by) for of in ("crop", "soil") for by in ("a", "b")]
    documents += [document([0.9], of="crop", by="c"), document([0.9], of="leaf", by="a")]
    board = build_leaderboard(documents)
    assert {one["task"]: (one["in_mean"], one["missing"]) for one in board["tasks"]} == {
        "crop": (True, []), "soil": (True, ["c"]), "leaf": (False, ["b", "c"]),
    }  # fmt: skip
    last = board["agents"][-1]
    assert (last["agent"], last["rank"], last["success"], last["lacks"]) == ("c", None, None, ["soil"])
    assert (last["n"], last["tasks"]) == (1, 1)


def test_a_task_on_which_nothing_decides_success_is_shown_and_in_no_mean():
    board = build_leaderboard([document([0.9], of="none", baseline=0.0), document([0.9], of="crop")])
    tasks = {one["task"]: one for one in board["tasks"]}
    assert (tasks["none"]["in_mean"], tasks["none"]["success_by"]) == (False, None)
    assert "about 0" in tasks["none"]["undecidable"]
    found = cell(board, "none")
    assert (found["success"], found["success_at"], found["raw"]["mean"]) == (None, None, 0.9)
    assert standing(board, "react")["success"]["tasks"] == 1


def test_an_exposed_task_is_shown_with_its_scores_and_is_in_no_mean():
    why = "The labels lie among the public data."
    documents = [document([0.9] * 3, of="open", by=by, exposed=why) for by in ("a", "b")]
    documents += [document([score] * 3, of="crop", by=by) for by, score in (("a", 0.9), ("b", 0.5))]
    board = build_leaderboard(documents)
    assert {one["task"]: (one["in_mean"], one["why_not_in_mean"], one["exposed"]) for one in board["tasks"]} == {
        "crop": (True, "", ""), "open": (False, why, why),
    }  # fmt: skip
    assert cell(board, "open", "b")["success"]["successes"] == 3
    # b succeeded on the exposed task alone.
    found = {one["agent"]: one["success"] for one in board["agents"]}
    assert {by: (one["value"], one["tasks"], one["n"]) for by, one in found.items()} == {
        "a": (1, 1, 3), "b": (0, 1, 3),
    }  # fmt: skip
    (pair,) = board["pairs"]
    assert pair["difference"] == 1


def test_with_exposed_tasks_alone_there_is_no_mean():
    board = build_leaderboard([document([0.9], exposed="Scores can be made up.")])
    assert (board["agents"][0]["success"], board["agents"][0]["rank"], board["pairs"]) == (None, None, [])


def test_every_task_that_is_in_no_mean_says_why():
    documents = [document([0.9], by=by) for by in ("a", "b", "c")]
    documents += [document([0.9], of="leaf", by="a"), document([0.9], of="none", by="a", baseline=0.0)]
    why = {one["task"]: one["why_not_in_mean"] for one in build_leaderboard(documents)["tasks"]}
    assert why["crop"] == "" and why["leaf"] == "few agents have it" and "about 0" in why["none"]


def test_another_state_of_the_task_or_another_baseline_does_not_compare():
    documents = [
        *(document([0.9], by=by) for by in ("a", "b")),
        document([0.9] * 9, by="c", digest="d2"),
        document([0.9] * 9, by="d", baseline=0.4),
        document([0.9] * 9, by="f", reference=0.95),
    ]
    board = build_leaderboard(documents, {"crop/e": "not run yet"})
    assert [one["agent"] for one in board["agents"]] == ["a", "b"]
    assert board["left_out"] == {
        "crop/c": "worked on another state of the task than most: run it again",
        "crop/d": "held against another baseline or reference than most: evaluate it again",
        "crop/e": "not run yet",
        "crop/f": "held against another baseline or reference than most: evaluate it again",
    }


def test_repeats_without_chance_are_said_to_be_alike():
    assert cell(build_leaderboard([document([0.6] * 3)]))["all_alike"]
    assert not cell(build_leaderboard([document([0.6])]))["all_alike"]
    assert not cell(build_leaderboard([document([0.6, 0.6, "error"])]))["all_alike"]


def test_repeats_without_chance_count_once_unless_a_model_made_them():
    board = build_leaderboard([document([0.6] * 3), document([0.6] * 3, by="starter", kind="starter")])
    wilson = binomtest(1, 1).proportion_ci(0.95, "wilson")
    found = cell(board, by="starter")
    assert found["success"] == {"successes": 1, "n": 1, "rate": 1, "low": pytest.approx(wilson.low), "high": 1}
    assert found["raw"] == {"mean": 0.6, "error": None, "n": 1}
    assert (found["n"], found["scored"]) == (3, 3)
    assert cell(board)["success"]["n"] == 3
    # Four who succeed against one trial that does not: Fisher's exact test of 1 of 5.
    others = document([0.9, 0.9, 0.9, 0.8], by="react"), document([0.5] * 4, by="starter", kind="starter")
    (pair,) = build_leaderboard(others)["pairs"]
    assert pair["p_value"] == pytest.approx(fisher_exact([[4, 0], [0, 1]]).pvalue)


def test_the_order_of_the_documents_changes_nothing():
    documents = [document([0.9, 0.5], of=of, by=by) for of in ("crop", "soil") for by in ("a", "b")]
    documents.append(document([0.9, 0.5], by="c", digest="d2"))
    texts = {
        dump_json(build_leaderboard(order)) for order in itertools.islice(itertools.permutations(documents), 30)
    }
    assert len(texts) == 1
    assert json.loads(texts.pop())["threshold"] == 0.1


def test_without_evaluations_there_is_an_empty_board():
    board = build_leaderboard([], {"crop/react": "not run yet"})
    assert (board["tasks"], board["agents"], board["pairs"]) == ([], [], [])
    assert board["left_out"] == {"crop/react": "not run yet"}
