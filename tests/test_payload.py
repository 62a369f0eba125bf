"""The payload of a heavy step: what it is asked, what it answers, and runs whose heavy steps are subprocesses."""

import ast
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from agml_assets import handover, payload
from agml_assets.embeddings.artifacts import EMBEDDINGS
from agml_assets.errors import UserError
from agml_assets.faults import is_transient
from agml_assets.handover import (
    Failed,
    Record,
    Request,
    Result,
    clear_record,
    hold_step,
    identity_of,
    may_be_at_work,
    read_outcome,
    read_record,
    verified,
    write_record,
)
from agml_assets.heavy import STEP_NAMES
from agml_assets.store import ArtifactStore
from agml_assets.training.artifacts import DYNAMICS, OUT_OF_FOLD, OUT_OF_FOLD_GROUPED, TEST_PREDICTIONS
from agml_assets.training.steps import FIT_FOLDS
from resources.compute import Compute
from resources.workspace import _remove_finished_work
from tests.tiny import open_workspace, run_in_process


def pipes(tell=lambda line: None):
    """Return what stands in for the connection to the run."""
    return SimpleNamespace(log=SimpleNamespace(info=tell))


@pytest.fixture
def bench(copy_of_finished):
    return open_workspace(copy_of_finished).dataset("tiny")


def request_for(bench, step="out_of_fold", artifacts=("training/out_of_fold",), **changes):
    values = {"step": step, "artifacts": artifacts, "entry": bench.entry, "settings": bench.settings}
    return Request(**{**values, "root": str(bench.store.root), "submission": "s1", **changes})


def result_for(bench, **changes):
    digest = bench.sidecar(OUT_OF_FOLD).digest
    values = {"submission": "s1", "dataset": "tiny", "step": "out_of_fold", "host": "node", "job": None}
    values |= {"digests": {OUT_OF_FOLD.key: digest}, "facts": {OUT_OF_FOLD.key: {}}, "peak_memory_mb": 1.0}
    return Result(**{**values, **changes})


def test_every_heavy_step_has_its_function():
    assert tuple(payload.STEPS) == STEP_NAMES
    for step in payload.STEPS.values():
        for artifact in step.artifacts:
            assert {upstream.key for upstream in step.reads} >= set(artifact.inputs)


def test_the_payload_never_loads_dagster_nor_reads_the_registry():
    code = "import sys, agml_assets.payload; print([m for m in ('dagster', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    names = {
        node.id for node in ast.walk(ast.parse(Path(payload.__file__).read_text())) if isinstance(node, ast.Name)
    }
    assert "load_registry" not in names


def test_the_payload_refuses_to_start_without_a_run_and_an_unknown_step():
    for arguments in (["out_of_fold"], ["out_of_fould"], []):
        done = subprocess.run(
            [sys.executable, "-m", "agml_assets.payload", *arguments], capture_output=True, text=True
        )
        assert done.returncode == 2
        assert "agml-assets run" in done.stderr or "out_of_fold" in done.stderr


def test_a_request_is_told_and_understood_again_as_json(bench):
    asked = request_for(bench)
    assert Request.model_validate_json(json.dumps(asked.model_dump(mode="json"))) == asked


def test_the_payload_makes_the_bytes_that_the_run_has_made(bench):
    before = bench.store.path("tiny", OUT_OF_FOLD.file).read_bytes()
    write_record(bench, "out_of_fold", Record("s1", "any"))
    bench.store.path("tiny", OUT_OF_FOLD.file).unlink()
    result = payload.make(request_for(bench), "out_of_fold", pipes())
    assert bench.store.path("tiny", OUT_OF_FOLD.file).read_bytes() == before
    assert result.digests == {OUT_OF_FOLD.key: bench.sidecar(OUT_OF_FOLD).digest}
    assert result.facts[OUT_OF_FOLD.key]["folds_count"] == 5.0
    assert 50 < result.peak_memory_mb < 20_000


@pytest.mark.parametrize(
    "changes",
    [
        {"step": "embeddings"},
        {"artifacts": ("training/dynamics",)},
        {"artifacts": ()},
        {"artifacts": ("training/out_of_fold", "../../etc/passwd")},
    ],
)
def test_the_payload_refuses_what_its_step_does_not_make(bench, changes):
    write_record(bench, "out_of_fold", Record("s1", "any"))
    with pytest.raises(UserError, match="started as out_of_fold"):
        payload.make(request_for(bench, **changes), "out_of_fold", pipes())


@pytest.mark.parametrize("record", [None, Record("another", "any")])
def test_a_request_that_was_given_up_writes_nothing(bench, record):
    before = bench.sidecar(OUT_OF_FOLD)
    if record is not None:
        write_record(bench, "out_of_fold", record)
    with pytest.raises(UserError, match="was given up"):
        payload.make(request_for(bench), "out_of_fold", pipes())
    assert bench.sidecar(OUT_OF_FOLD) == before


def test_a_step_that_is_given_up_while_it_works_ends_before_it_writes(bench):
    before = bench.sidecar(OUT_OF_FOLD)
    write_record(bench, "out_of_fold", Record("s1", "any"))

    gives_up = pipes(lambda line: clear_record(bench, "out_of_fold"))
    with pytest.raises(UserError, match="was given up"):
        payload.make(request_for(bench), "out_of_fold", gives_up)
    assert bench.sidecar(OUT_OF_FOLD) == before


def test_a_result_is_taken_where_the_store_agrees(bench):
    [made] = verified(bench, FIT_FOLDS, [OUT_OF_FOLD], result_for(bench))
    assert made.sidecar == bench.sidecar(OUT_OF_FOLD)
    assert made.facts["host"] == "node"


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset": "other"},
        {"step": "out_of_fold_grouped"},
        {"digests": {}},
        {"digests": {OUT_OF_FOLD_GROUPED.key: "0"}},
        {"digests": {OUT_OF_FOLD.key: "0" * 64}},
        {"facts": {}},
        {"facts": {OUT_OF_FOLD.key: {}, "more": {}}},
    ],
)
def test_a_result_of_something_else_is_refused(bench, monkeypatch, changes):
    monkeypatch.setattr(handover, "_SETTLE_S", 0.0)
    with pytest.raises(UserError, match="Nothing was recorded"):
        list(verified(bench, FIT_FOLDS, [OUT_OF_FOLD], result_for(bench, **changes)))


def test_a_result_whose_file_is_not_the_one_that_was_written_is_refused(bench, monkeypatch):
    monkeypatch.setattr(handover, "_SETTLE_S", 0.0)
    result, file = result_for(bench), Path(bench.store.path("tiny", OUT_OF_FOLD.file).path)
    rows = np.load(file)
    np.save(file, np.roll(rows, 1, axis=0))
    assert bench.sidecar(OUT_OF_FOLD).bytes == file.stat().st_size
    with pytest.raises(UserError, match="Nothing was recorded"):
        list(verified(bench, FIT_FOLDS, [OUT_OF_FOLD], result))


def test_a_result_made_from_other_inputs_than_todays_is_refused(bench):
    result = result_for(bench)
    file = bench.store.path("tiny", "embeddings/labels.npy.meta.json")
    file.write_text(file.read_text().replace(json.loads(file.read_text())["digest"], "f" * 64))
    with pytest.raises(UserError, match="other inputs"):
        list(verified(bench, FIT_FOLDS, [OUT_OF_FOLD], result))


def test_a_result_is_waited_for_while_this_machine_does_not_see_the_file_yet(bench, monkeypatch):
    result, real, unseen = result_for(bench), ArtifactStore.sidecar, [OUT_OF_FOLD.file, OUT_OF_FOLD.file]

    def late(store, dataset, file):
        if file in unseen:
            unseen.remove(file)
            return None
        return real(store, dataset, file)

    monkeypatch.setattr(ArtifactStore, "sidecar", late)
    [made] = verified(bench, FIT_FOLDS, [OUT_OF_FOLD], result)
    assert made.artifact == OUT_OF_FOLD
    assert not unseen


def test_the_identity_of_a_job_changes_with_its_inputs_and_settings_alone(bench, copy_of_finished):
    first = identity_of(bench, FIT_FOLDS, [OUT_OF_FOLD])
    assert first == identity_of(open_workspace(copy_of_finished).dataset("tiny"), FIT_FOLDS, [OUT_OF_FOLD])
    other_folds = type(bench)(bench.entry, bench.settings.override({"cv_folds": 3}, "a test"), bench.store)
    assert identity_of(other_folds, FIT_FOLDS, [OUT_OF_FOLD]) != first
    unused = type(bench)(bench.entry, bench.settings.override({"backbone": "other/model"}, "a test"), bench.store)
    assert identity_of(unused, FIT_FOLDS, [OUT_OF_FOLD]) == first
    file = bench.store.path("tiny", "embeddings/labels.npy.meta.json")
    file.write_text(file.read_text().replace(json.loads(file.read_text())["digest"], "f" * 64))
    assert identity_of(bench, FIT_FOLDS, [OUT_OF_FOLD]) != first


def test_only_the_last_outcome_of_the_own_submission_is_read(bench, tmp_path):
    file = tmp_path / "messages.jsonl"
    assert read_outcome(file, "s1") is None
    told = [
        result_for(bench, host="first"),
        Failed(submission="s1", message="no", passes=False, by_user=True),
        result_for(bench, host="second"),
        result_for(bench, submission="s2", host="another"),
    ]
    lines = [
        json.dumps({"method": "report_custom_message", "params": {"payload": one.model_dump(mode="json")}})
        for one in told
    ]
    file.write_text("\n".join(['{"method": "opened", "params": {}}', *lines, "not JSON", lines[0][:40]]))
    assert read_outcome(file, "s1").host == "second"
    assert read_outcome(file, "s3") is None


def test_a_damaged_record_lets_nobody_write(bench):
    write_record(bench, "out_of_fold", Record("s1", "any", "/folder", 7))
    assert read_record(bench, "out_of_fold") == Record("s1", "any", "/folder", 7)
    bench.store.path("tiny", ".work/jobs/out_of_fold.json").write_text("{")
    assert read_record(bench, "out_of_fold") is None


@pytest.mark.parametrize(
    "forged",
    [{"job_id": "1; touch x #"}, {"job_id": "7"}, {"job_id": -1}, {"job_id": True}, {"folder": 7}, {"more": "x"}],
)
def test_a_forged_record_is_no_record(bench, forged):
    values = {"submission": "s1", "identity": "any", "folder": "/folder", "job_id": 7, **forged}
    write_record(bench, "out_of_fold", Record("s1", "any"))
    bench.store.path("tiny", ".work/jobs/out_of_fold.json").write_text(json.dumps(values))
    assert read_record(bench, "out_of_fold") is None


@pytest.mark.parametrize(
    ("folder", "step"),
    [
        ("embeddings", "embeddings"),
        ("reference", "reference_training"),
        ("reference_grouped", "leak_safe_training"),
    ],
)
def test_the_work_of_a_job_that_may_live_stays_and_that_of_a_killed_run_goes(bench, folder, step):
    file = bench.work_folder(folder) / "half"
    file.touch()
    write_record(bench, step, Record("s1", "any", "/its/folder", 7))
    _remove_finished_work(bench)
    assert file.exists(), "a job has the record"
    clear_record(bench, step)
    with hold_step(bench, step, "job 7"):
        _remove_finished_work(bench)
        assert file.exists(), "a process holds the lock"
    write_record(bench, step, Record("s1", "any"))
    _remove_finished_work(bench)
    assert not file.exists(), "a subprocess ends with its run"


def test_a_step_in_the_runs_own_process_is_held_against_jobs_of_killed_runs(bench):
    held = []

    def make(works):
        held.append(may_be_at_work(bench, "out_of_fold"))
        yield "made"

    write_record(bench, "out_of_fold", Record("s1", "any", "/its/folder", 7))
    works = {OUT_OF_FOLD: SimpleNamespace(dataset=bench)}
    assert list(Compute().make(SimpleNamespace(run_id="r"), FIT_FOLDS, works, make)) == ["made"]
    assert held == [True]
    assert not may_be_at_work(bench, "out_of_fold")


@pytest.mark.parametrize("error", [UserError("wrong"), TimeoutError("slow"), ValueError("bug")])
def test_a_failure_tells_whether_another_try_is_worth_it(error):
    told = payload._failure(error, "s1")
    assert (told.passes, told.by_user) == (is_transient(error), isinstance(error, UserError))
    assert str(error) in told.message


def test_a_run_with_subprocesses_gives_the_bytes_of_the_run_in_one_process(copy_of_finished, monkeypatch):
    folder = copy_of_finished / "results" / "tiny"
    files = [*(folder / "embeddings").glob("embeddings.npy"), *(folder / "training").glob("*.np?")]
    before = {file: file.read_bytes() for file in files}
    monkeypatch.setenv("AGML_COMPUTE", "subprocess")
    shutil.rmtree(copy_of_finished / "results" / "_platform")
    for file in files:
        file.unlink()
    result = run_in_process(copy_of_finished, EMBEDDINGS, DYNAMICS, TEST_PREDICTIONS, OUT_OF_FOLD)
    assert result.success
    made = {file: file.read_bytes() for file in files if file.exists()}
    assert len(made) >= 4
    assert made == {file: before[file] for file in made}
    facts = {
        e.asset_key.to_user_string(): e.materialization.metadata for e in result.get_asset_materialization_events()
    }
    assert facts["embeddings/embeddings"]["encoded_images_count"].value == 24.0
    assert facts["training/dynamics"]["peak_memory_mb"].value > 50
    assert not list((folder / ".work" / "jobs").glob("*.json"))


def test_an_error_in_a_subprocess_fails_the_step_in_the_same_words_and_removes_the_record(
    copy_of_finished, monkeypatch
):
    monkeypatch.setenv("AGML_COMPUTE", "subprocess")
    registry = copy_of_finished / "datasets.yaml"
    registry.write_text(registry.read_text().replace("backbone: efficientnet_lite0", "backbone: ./no/such/model"))
    result = run_in_process(copy_of_finished, DYNAMICS)
    assert not result.success
    [failure] = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    assert "no/such/model" in failure.user_failure_data.description
    assert not list((copy_of_finished / "results" / "tiny" / ".work" / "jobs").glob("*.json"))


@pytest.mark.parametrize(
    ("end", "told", "not_told"),
    [
        ("exit 1", ["exit status 1", "ImportError: no module"], "memory"),
        ("kill -SEGV $$", ["signal 11", "ImportError: no module"], "memory"),
        ("kill -KILL $$", ["want of memory"], "without telling"),
        ("exit 137", ["want of memory"], "without telling"),
    ],
)
def test_a_subprocess_that_ends_without_an_outcome_is_told_by_its_status_and_its_last_words(
    copy_of_finished, monkeypatch, end, told, not_told
):
    python = copy_of_finished / "python"
    python.write_text(f'#!/bin/sh\necho "called: $@" >&2\necho "ImportError: no module" >&2\n{end}\n')
    python.chmod(0o755)
    monkeypatch.setenv("AGML_COMPUTE", "subprocess")
    monkeypatch.setattr(sys, "executable", str(python))
    result = run_in_process(copy_of_finished, OUT_OF_FOLD)
    assert not result.success
    [failure] = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    words = failure.user_failure_data.description
    assert all(word in words for word in told)
    assert not_told not in words
    assert "called: -P -m agml_assets.payload out_of_fold" in words, "no module of the working directory is run"
    assert not list((copy_of_finished / "results" / "tiny" / ".work" / "jobs").glob("*.json"))


def test_a_subprocess_ends_with_the_process_that_started_it(tmp_path):
    child_code = "import os, sys, time; from agml_assets.payload import _end_with; _end_with(int(sys.argv[1])); "
    child_code += "print(os.getpid(), flush=True); time.sleep(60)"
    code = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child_code!r}, str(os.getpid())], "
        "stdout=subprocess.PIPE, text=True)\n"
        "print(child.stdout.readline().strip(), flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 20
    while _alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
