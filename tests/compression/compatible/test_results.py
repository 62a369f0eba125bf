"""The files of a run: names, strict JSON, nothing half-written."""

import json
from datetime import datetime

import numpy as np
import pytest

from agml_assets.compression.compatible.results import (
    TaskResult,
    make_run_folder,
    unfinished,
    write_summary,
    write_task,
)
from agml_assets.compression.compatible.scores import score_folds
from agml_assets.errors import UserError

NOW = datetime(2026, 3, 4, 5, 6, 7)


def result(name, *folds):
    return TaskResult(name, "R2", score_folds(np.array(folds)), {"epochs": 2}, 50, {}, ("a note",))


def test_a_runs_folder_is_named_by_method_and_time_and_never_used_twice(tmp_path):
    names = [make_run_folder(tmp_path, "dev", "m", NOW).relative_to(tmp_path).as_posix() for _ in range(2)]
    assert names == ["dev/m_20260304_050607", "dev/m_20260304_050607_2"]


@pytest.mark.parametrize(
    ("phase", "method"), [("a/b", "m"), ("..", "m"), ("leaderboards", "m"), ("dev", "x/y"), ("dev", ""), ("", "m")]
)
def test_names_that_lead_elsewhere_are_refused(tmp_path, phase, method):
    with pytest.raises(UserError):
        make_run_folder(tmp_path, phase, method, NOW)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="output folder .*file cannot be used: Not a directory"):
        make_run_folder(tmp_path / "file", "dev", "m", NOW)


def test_a_tasks_file_has_the_published_keys_first_with_their_spelling(tmp_path):
    path = write_task(tmp_path, result("t", 0.7, 0.9), with_folds=True)
    assert path == tmp_path / "t/t_result.json"
    found = json.loads(path.read_text())
    assert list(found)[:5] == ["q_stat", "mean_score", "std_dev", "hyperparamaters", "q_t"]
    assert found["q_stat"] == pytest.approx(1.6 / 0.12)
    assert found["q_t"] == [0.7, 0.9]
    assert "q_t" not in json.loads(write_task(tmp_path, result("t", 0.7), with_folds=False).read_text())


def test_what_has_no_score_is_null(tmp_path):
    path = write_task(tmp_path, result("t", np.nan), with_folds=True)
    found = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert (found["q_stat"], found["mean_score"], found["std_dev"], found["q_t"]) == (None, None, None, [None])


def test_the_summary_holds_plain_means_over_tasks(tmp_path):
    folder = tmp_path / "m_20260304_050607"
    results = {"a": result("a", 0.7, 0.9), "b": result("b", 0.5)}
    found = write_summary(folder, results, {"k_folds": 2}, notes=[])
    assert json.loads((folder / "results_summary.json").read_text()) == found
    assert list(found) == [
        "experiment",
        "overall_q_score",
        "overall_acc_score",
        "task_q_scores",
        "task_acc_scores",
        "config",
        "notes",
    ]
    assert found["task_q_scores"] == pytest.approx({"a": 1.6 / 0.12, "b": 50})
    assert found["overall_q_score"] == pytest.approx((1.6 / 0.12 + 50) / 2)
    assert found["overall_acc_score"] == pytest.approx(0.65)
    assert found["experiment"] == "m_20260304_050607"


def test_a_file_that_an_error_ends_is_not_there(tmp_path):
    (tmp_path / "x.txt").write_text("old")
    with pytest.raises(RuntimeError), unfinished(tmp_path / "x.txt") as stage:
        stage.write_text("half")
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["x.txt"]
    assert (tmp_path / "x.txt").read_text() == "old"
