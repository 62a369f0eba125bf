"""Runs below a folder compared: one baseline for all, trials grouped over folders, nothing dropped in silence."""

import json

import pytest

from agml_assets.agents.described import Plan, write_described, write_plan
from agml_assets.agents.evaluation import Baseline
from agml_assets.agents.log_roots import compare_below
from agml_assets.agents.plots import draw_plot
from agml_assets.errors import UserError
from tests.agents.invented_trials import agent, document, task

NO_BASELINE = Baseline(None)


def lay(root, place, scores, *, key="react", kind="react", digest="d1", of="crop", limits=None, **others):
    """Write a finished run as `agml-assets agents run` leaves it; without scores, one that has begun."""
    folder = root / place
    one = agent(key, kind, **others).model_dump(mode="json")
    described = {"task": of, "agent": one, "seed": 1, "limits": limits or {"steps": None}, "work": "w"}
    write_described(folder, {**described, "sandbox": None, "python": "python", "device": None})
    if scores:
        found = document(scores, of=of, by=key, kind=kind, digest=digest, baseline=NO_BASELINE)
        for trial in found["trials"]:
            trial["started_at"] = place
        (folder / "evaluation.json").write_text(json.dumps(found))
    return folder


def compare(root, stored=NO_BASELINE):
    return compare_below(root, task, lambda *_: stored)


def cells(board):
    return {cell["agent"]: cell for cell in board["cells"]}


def test_the_mean_of_starter_runs_below_the_folder_is_the_baseline_of_all(tmp_path):
    lay(tmp_path, "starter/1", [0.4], key="starter", kind="starter")
    lay(tmp_path, "starter/2", [0.6], key="starter", kind="starter")
    lay(tmp_path, "react/1", [0.6])
    board = compare(tmp_path, stored=Baseline(0.1, "measured", 3))
    assert board["tasks"][0]["baseline"]["value"] == pytest.approx(0.5)
    assert board["tasks"][0]["baseline"]["n"] == 2
    found = cells(board)["react"]
    assert found["improvement"]["mean"] == pytest.approx(0.2)
    assert found["success"]["successes"] == 1
    assert found["best_improvement"]["mean"] == pytest.approx(0.2)


def test_without_a_scored_starter_run_the_stored_baseline_counts(tmp_path):
    lay(tmp_path, "starter/1", ["error"], key="starter", kind="starter")
    lay(tmp_path, "react/1", [0.6])
    board = compare(tmp_path, stored=Baseline(0.5, "measured", 3))
    assert cells(board)["react"]["improvement"]["mean"] == pytest.approx(0.2)
    assert cells(board)["starter"]["failed"] == 1


def test_without_any_starter_run_the_guess_that_some_run_knew_is_the_baseline(tmp_path):
    folder = lay(tmp_path, "react/1", [0.6])
    file = folder / "evaluation.json"
    document = json.loads(file.read_text())
    document["baseline"] = vars(Baseline(0.5, "guess", note="one label for all"))
    file.write_text(json.dumps(document))
    (found,) = compare(tmp_path)["tasks"]
    assert (found["baseline"]["value"], found["baseline"]["source"]) == (0.5, "guess")


def test_trials_of_an_agent_are_grouped_over_folders_and_failed_ones_count(tmp_path):
    lay(tmp_path, "starter/1", [0.5], key="starter", kind="starter")
    for place, scores in {"a/1": [0.6], "a/2": [0.5], "later/1": ["error"]}.items():
        lay(tmp_path, place, scores)
    found = cells(compare(tmp_path))["react"]
    assert (found["n"], found["failed"], found["success"]["successes"]) == (3, 1, 1)


def test_a_reference_that_one_folder_measured_counts_for_all(tmp_path):
    lay(tmp_path, "starter/1", [0.5], key="starter", kind="starter")
    folder = lay(tmp_path, "react/1", [0.6])
    found = json.loads((folder / "evaluation.json").read_text())
    found["reference"] = {"value": 0.7, "source": "measured"}
    (folder / "evaluation.json").write_text(json.dumps(found))
    board = compare(tmp_path)
    assert cells(board)["react"]["normalised"]["mean"] == pytest.approx(0.5)
    assert cells(board)["starter"]["normalised"]["mean"] == pytest.approx(0.0)


def test_agents_of_one_model_that_differ_in_limits_are_told_apart(tmp_path):
    lay(tmp_path, "a", [0.6], limits={"steps": 5})
    lay(tmp_path, "b", [0.7], limits={"steps": 50})
    assert set(cells(compare(tmp_path))) == {"react-steps-5", "react-steps-50"}


def test_what_is_not_finished_or_damaged_or_a_copy_is_named(tmp_path):
    lay(tmp_path, "done", [0.6])
    lay(tmp_path, "begun", [])
    lay(tmp_path, "other", [0.6], digest="d2")
    (lay(tmp_path, "broken", [0.6]) / "evaluation.json").write_text("{")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/run.json").write_text("{")
    copied = lay(tmp_path, "zcopy", [0.6])
    (copied / "evaluation.json").write_bytes((tmp_path / "done/evaluation.json").read_bytes())
    lay(tmp_path, "third", [0.7])
    write_plan(Plan("now", ("crop",), ("m",), 1, {}), tmp_path)
    board = compare(tmp_path)
    assert cells(board)["react"]["n"] == 2
    reasons = {name: reason.split(":")[0] for name, reason in board["left_out"].items()}
    assert reasons == {
        "begun": "not finished",
        "broken": "evaluation.json is damaged",
        "bad": "run.json is damaged",
        "other": "worked on another state of the task than most",
        "zcopy": "a copy of done",
        "m/now/crop/seed_1": "not begun, or ended before its first trial began",
    }


def test_files_that_an_agent_made_are_no_runs(tmp_path):
    real = lay(tmp_path, "done", [0.6])
    work = real / "workspace/crop"
    work.mkdir(parents=True)
    (work / "run.json").write_text(json.dumps({"task_digest": "d1"}))
    lay(work, "workspaces/seed_1/forged", [0.99])
    lay(real, "env_log/traces/step_0_files", [0.99])
    board = compare(tmp_path)
    assert cells(board)["react"]["n"] == 1
    assert not board["left_out"]


def test_the_same_folders_give_the_same_plots_and_an_empty_one_is_refused(tmp_path):
    lay(tmp_path / "logs", "starter/1", [0.5], key="starter", kind="starter")
    lay(tmp_path / "logs", "react/1", [0.6])
    board = compare(tmp_path / "logs")
    assert json.loads(json.dumps(board)) == board
    assert draw_plot(board, "final_improve", "svg") == draw_plot(
        compare(tmp_path / "logs"), "final_improve", "svg"
    )
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="No run of"):
        compare(tmp_path / "empty")
    with pytest.raises(UserError, match="is no folder"):
        compare(tmp_path / "nowhere")
