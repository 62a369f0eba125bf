"""The board: ties are ties, what differs in kind is kept apart, and what is not known is said."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from upath import UPath

from agml_assets.leaderboard.board import build_board, percentile, rank
from agml_assets.leaderboard.catalogue import Catalogue
from agml_assets.leaderboard.record_files import RecordFile
from agml_assets.leaderboard.run_records import check_files
from tests.leaderboard.records import file_of, odd_records, record, scored, tuned

NONE = Catalogue()


@pytest.fixture
def board(tmp_path):
    def build(*files, catalogue=NONE):
        return build_board(check_files(files, catalogue), catalogue, [UPath(tmp_path)])

    return build


def standings(board, place=0):
    """Model, rank and percentile of each entry of a board."""
    runs = board["runs"]
    return [
        (runs[one["run"]]["model"], one["rank"], one["percentile"]) for one in board["boards"][place]["entries"]
    ]


def test_ties_share_rank_and_percentile(board):
    found = board(file_of(scored("a", 0.5), scored("b", 0.9), scored("c", 0.5), scored("d", 0.1)))
    assert standings(found) == [("b", 1, 100), ("a", 2, 50), ("c", 2, 50), ("d", 4, 0)]


def test_two_equal_models_are_both_in_the_middle_and_one_alone_has_no_percentile():
    assert [percentile(0.5, [0.5, 0.5])] * 2 == [50, 50]
    assert percentile(0.5, [0.5]) is None
    assert rank(0.0, [0.0, 0.0]) == 1


def test_zero_shot_and_fine_tuned_are_kept_apart(board):
    found = board(file_of(scored("a", 0.5), tuned("a", 0.9), tuned("b", 0.8)))
    assert [(one["variant"], len(one["entries"])) for one in found["boards"]] == [
        ("fine-tuned", 2),
        ("zero-shot", 1),
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"dataset_config": "augmented"},
        {"metrics": {"accuracy": 0.9}},
        {"task": "detection", "metrics": {"map": 0.9}},
    ],
)
def test_other_configurations_metrics_and_tasks_are_kept_apart(board, other):
    found = board(file_of(scored("a", 0.5), record("b", **{"metrics": {"f1": 0.9}, **other})))
    assert [len(one["entries"]) for one in found["boards"]] == [1, 1]


def test_a_models_best_run_counts_and_says_of_how_many(board):
    found = board(file_of(scored("a", 0.5), scored("a", 0.7), scored("a", 0.2)))
    (run,) = found["runs"]
    assert (run["scores"]["f1"], run["position"], run["of_runs"], run["lowest_score"]) == (0.7, 2, 3, 0.2)


def test_all_scores_of_a_model_are_of_one_run(board):
    low, high = {"f1": 0.5, "recall": 0.9}, {"f1": 0.6, "recall": 0.1}
    (run,) = board(file_of(record("a", metrics=low), record("a", metrics=high)))["runs"]
    assert run["scores"] == high


def test_a_run_without_the_tasks_first_metric_loses_to_one_with_it(board):
    runs = board(file_of(record("a", metrics={"accuracy": 0.9}), scored("a", 0.5)))["runs"]
    assert [run["scores"] for run in runs] == [{"f1": 0.5}]


def test_samples_and_skipped_ones_are_stated(board):
    (run,) = board(file_of(record("a", metrics={"f1": 0.5, "skipped_samples": 30})))["runs"]
    assert (run["samples"], run["skipped"], run["skip_rate"]) == (200, 30, 0.15)


def test_a_board_says_whether_all_saw_the_same_samples(board):
    same = board(file_of(scored("a", 0.5), scored("b", 0.6)))
    other = board(file_of(scored("a", 0.5), scored("b", 0.6, split="test")))
    unsaid = [
        board(file_of(scored("a", 0.5), scored("b", 0.6, **{name: None}))) for name in ("split", "num_samples")
    ]
    assert [one["boards"][0]["same_samples"] for one in (same, other, *unsaid)] == [True, False, None, None]


def test_what_is_said_to_differ_differs_whatever_else_is_not_said(board):
    found = board(file_of(scored("a", 0.5, split=None), scored("b", 0.6, split=None, num_samples=7)))
    assert found["boards"][0]["same_samples"] is False


def test_what_is_no_score_is_not_ranked(board):
    found = board(file_of(scored("a", 0.5), record("b", metrics={"loss": 3.2, "epochs": 4})))
    assert found["unranked"] == [
        {"dataset": "beans", "position": 2, "reason": "none of its metrics is a score: loss, epochs"}
    ]
    assert [run["model"] for run in found["runs"]] == ["a"]


@pytest.mark.parametrize("far", [41.2, -0.1, 1.7e308, -1.7e308])
def test_a_score_outside_its_range_ranks_nobody_and_is_listed(board, far):
    found = board(
        file_of(scored("a", 0.9), scored("b", far)), *(file_of(scored("b", 0.1), dataset=d) for d in "cdefgh")
    )
    assert standings(found) == [("a", 1, None)]
    assert found["unranked"] == [
        {"dataset": "beans", "position": 2, "reason": f"not between 0 and 1: f1 = {far:g}"}
    ]


def test_the_scores_of_a_run_that_lie_in_range_still_rank_it(board):
    found = board(file_of(record("a", metrics={"f1": 41.2, "recall": 0.5}), scored("b", 0.5)))
    assert [run["scores"] for run in found["runs"]] == [{"recall": 0.5}, {"f1": 0.5}]
    assert [one["position"] for one in found["unranked"]] == [1]


def test_numbers_at_the_end_of_the_doubles_do_not_stop_the_board(board):
    sets = [file_of(scored("a", 1e200 * n), scored("b", 0.1), dataset=f"d{n}") for n in range(6)]
    json.dumps(board(*sets), allow_nan=False)


def test_a_run_that_lacks_the_metric_of_its_models_best_run_is_listed(board):
    later = record("a", metrics={"accuracy": 0.95}, timestamp="2026-08-12")
    found = board(file_of(scored("a", 0.3), later, record("b", metrics={"accuracy": 0.5})))
    assert [run["scores"] for run in found["runs"]] == [{"f1": 0.3}, {"accuracy": 0.5}]
    reason = "it has no f1, by which another run of the model is its best here"
    assert found["unranked"] == [{"dataset": "beans", "position": 2, "reason": reason}]


def test_a_run_is_found_again_by_its_content(board):
    one, other = scored("a", 0.5), scored("a", 0.4)
    (first,), (second,) = board(file_of(one, other))["runs"], board(file_of(other, one))["runs"]
    assert (first["position"], second["position"]) == (1, 2)
    assert first["digest"] == second["digest"]


def test_comparisons_name_their_datasets_and_the_coverage(board):
    files = [file_of(scored("a", 0.5), scored("b", 0.6), dataset=f"d{n}") for n in range(3)]
    found = board(*files, file_of(scored("a", 0.5), scored("c", 0.1), dataset="e"))
    (comparison,) = found["comparisons"]
    assert comparison["coverage"] == {"a": 4, "b": 3, "c": 1}
    assert comparison["datasets"] == 4
    (ranking,) = comparison["rankings"]
    assert (ranking["datasets"], ranking["average_ranks"]) == (("d0", "d1", "d2"), {"b": 1.0, "a": 2.0})
    assert [(one["first"], one["second"], one["datasets"]) for one in comparison["pairs"]] == [
        ("a", "b", 3),
        ("a", "c", 1),
    ]


def test_datasets_carry_what_the_catalogue_knows(board):
    known = Catalogue(({"name": "beans", "ag_task": "disease_classification", "crop_types": ["Bean"]},))
    found = board(file_of(record()), file_of(record(), dataset="peas"), catalogue=known)
    assert found["datasets"]["beans"]["crop_types"] == ["bean"]
    assert found["datasets"]["peas"]["known"] is False


def test_refused_records_are_counted_and_on_no_board(board):
    found = board(file_of(scored("a", 0.5), {"model": "b"}), RecordFile("peas", None, "it is not valid JSON"))
    assert found["counts"] == {"datasets": 1, "models": 1, "accepted": 1, "with_warnings": 0, "refused": 2}
    assert [run["model"] for run in found["runs"]] == ["a"]


def test_no_records_no_boards(board):
    assert board()["boards"] == []


@settings(max_examples=50, deadline=None)
@given(values=st.lists(odd_records, max_size=6), data=st.data())
def test_no_record_crashes_the_board_and_their_order_does_not_matter(tmp_path_factory, values, data):
    def facts(records):
        found = build_board(check_files([file_of(*records)], NONE), NONE, [UPath(tmp_path_factory.getbasetemp())])
        for one in (*found["runs"], *found["unranked"]):
            one.pop("position")
        found["unranked"].sort(key=lambda one: one["reason"])
        return json.dumps(found, allow_nan=False)

    assert facts(values) == facts(data.draw(st.permutations(values)))
