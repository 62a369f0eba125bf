"""The third phase through the graph: what it needs, leak-safe figures, one class, a killed training."""

import json
import shutil
import signal
import subprocess
import time

import numpy as np
import polars as pl
import pytest

from agml_assets.embeddings.artifacts import DUPLICATE_GROUPS
from agml_assets.quality.artifacts import METRIC_ARTIFACTS
from agml_assets.quality.metrics import METRICS
from agml_assets.quality.summary import judge_dataset
from agml_assets.report.artifacts import ARTIFACTS as REPORT
from agml_assets.training.artifacts import DYNAMICS, TEST_PREDICTIONS, TEST_PREDICTIONS_GROUPED
from tests.tiny import (
    BIN,
    contents,
    environment,
    open_workspace,
    run_in_process,
    write_images,
    write_registry,
)

PHASE_3 = [metric.name for metric in METRICS if metric.phase == 3]


def report(root):
    return json.loads((root / "results" / "tiny" / "result.json").read_text())


def reasons(result):
    failures = (event.step_failure_data for event in result.all_events if event.is_step_failure)
    return " ".join(failure.user_failure_data.description for failure in failures)


def change_settings(root, **settings):
    """Set these settings in the registry of a finished dataset."""
    registry = root / "datasets.yaml"
    head, _, tail = registry.read_text().partition("settings: {")
    kept = [pair for pair in tail.rstrip("}\n").split(", ") if pair.partition(":")[0] not in settings]
    registry.write_text(f"{head}settings: {{{', '.join([*kept, *(f'{k}: {v}' for k, v in settings.items())])}}}\n")


def test_training_quality_alone_completes_a_dataset_and_leaves_the_other_rooms_alone(copy_of_finished):
    folder = copy_of_finished / "results" / "tiny"
    for file in (folder / "training").iterdir():
        file.unlink()
    before = contents(folder)
    assert {v.state for k, v in states(copy_of_finished).items() if k.startswith("training/")} == {"missing"}
    assert run_in_process(copy_of_finished, job="training_quality").success
    after = contents(folder)
    assert report(copy_of_finished)["phases_completed"] == [1, 2, 3]
    assert {verdict.state for verdict in states(copy_of_finished).values()} == {"current"}
    others = {file for file in before if file.startswith(("dataset/", "embeddings/"))}
    assert others and all(after[file] == before[file] for file in others)


def states(root):
    return judge_dataset(open_workspace(root).dataset("tiny"))


def test_training_quality_says_which_stored_artifact_it_needs(copy_of_finished, tmp_path):
    write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images"))
    nothing_stored = run_in_process(tmp_path, job="training_quality")
    assert not nothing_stored.success
    assert "'tiny'" in reasons(nothing_stored)
    assert "dataset/image_index is not in the store" in reasons(nothing_stored)
    assert not (tmp_path / "results" / "tiny" / "result.json").exists()

    for file in (DUPLICATE_GROUPS.file, f"{DUPLICATE_GROUPS.file}.meta.json"):
        (copy_of_finished / "results" / "tiny" / file).unlink()
    one_missing = run_in_process(copy_of_finished, job="training_quality")
    assert not one_missing.success
    assert "embeddings/duplicate_groups is not in the store" in reasons(one_missing)
    assert "training__grouped_splits" in {e.step_key for e in one_missing.all_events if e.is_step_failure}
    assert report(copy_of_finished)["phases_completed"] == [1]


@pytest.mark.parametrize("mode", ["subset", "off"])
def test_leak_safe_figures_without_a_second_training(mode, copy_of_finished):
    change_settings(copy_of_finished, leak_safe=mode)
    stale = {key for key, verdict in states(copy_of_finished).items() if verdict.state == "stale"}
    assert stale == {"training/test_predictions_grouped", "quality/leakage"}
    bench = open_workspace(copy_of_finished).dataset("tiny")
    remade = (TEST_PREDICTIONS_GROUPED, METRIC_ARTIFACTS["leakage"])
    result = run_in_process(copy_of_finished, *remade)
    assert result.success

    published, safe = bench.read(TEST_PREDICTIONS), bench.read(TEST_PREDICTIONS_GROUPED)
    groups = bench.read(DUPLICATE_GROUPS).sort("row")
    split = pl.read_parquet(bench.store.path("tiny", "dataset/splits.parquet").open("rb")).sort("row")["hf"]
    trained = set(groups.filter(split == "train")["joined"])
    alone = [row for row in published["rows"].tolist() if groups["joined"][row] not in trained]
    assert 0 < len(alone) < len(published["rows"])
    assert safe["rows"].tolist() == (alone if mode == "subset" else [])
    kept = np.isin(published["rows"], safe["rows"])
    np.testing.assert_array_equal(safe["probabilities"], published["probabilities"][kept])

    leakage = bench.read(METRIC_ARTIFACTS["leakage"])
    assert leakage["leak_safe"]["mode"] == mode
    assert leakage["leak_safe"]["n_test"] == len(safe["rows"])
    if mode == "off":
        assert leakage["leak_safe"]["accuracy"] is None
        assert "off" in leakage["leak_safe"]["reason"]


def test_a_dataset_of_one_class_is_reported_with_reasons_for_what_cannot_be_measured(tmp_path):
    images = write_images(tmp_path / "images")
    for name in ("blight", "rust"):
        shutil.rmtree(images / name)
    write_registry(tmp_path / "datasets.yaml", images)
    assert run_in_process(tmp_path).success
    value = report(tmp_path)
    assert value["phases_completed"] == [1, 2, 3]
    assert value["breaches"] == []
    for name in PHASE_3:
        metric = value["metrics"][name]
        assert metric["skipped"] is True, name
        assert metric["reason"], name
    for artifact in REPORT:
        assert (tmp_path / "results" / "tiny" / artifact.file).stat().st_size > 0
    assert "healthy" in (tmp_path / "results" / "tiny" / "report" / "card.html").read_text()


@pytest.mark.slow
def test_a_run_killed_while_training_goes_on_at_its_next_epoch_and_ends_as_if_never_killed(finished, tmp_path):
    places = {name: tmp_path / name for name in ("killed", "whole")}
    for root in places.values():
        shutil.copytree(finished, root)
        change_settings(root, cartography_epochs=12)
    command = [str(BIN / "agml-assets"), "run", "--dataset", "tiny"]
    root = places["killed"]
    env = environment(root, root / "datasets.yaml")
    with (root / "log").open("w") as log:
        run = subprocess.Popen(command, env=env, cwd=root, stdout=log, stderr=subprocess.STDOUT)
    checkpoints = root / "results" / "tiny" / ".work" / "reference"
    deadline = time.monotonic() + 200
    while not list(checkpoints.glob("*.pt")):
        assert run.poll() is None, (root / "log").read_text()[-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert states(root)[DYNAMICS.key].state == "stale"

    logs = {}
    for name, folder in places.items():
        env = environment(folder, folder / "datasets.yaml")
        done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stderr[-3000:]
        logs[name] = done.stderr
    assert "Going on with the reference training after epoch" in logs["killed"]
    assert "after epoch 12 of 12" not in logs["killed"]
    assert "Going on" not in logs["whole"]
    assert not list(checkpoints.glob("*.pt"))
    for artifact in (DYNAMICS, TEST_PREDICTIONS, TEST_PREDICTIONS_GROUPED):
        first, second = (root / "results" / "tiny" / artifact.file for root in places.values())
        assert first.read_bytes() == second.read_bytes(), artifact.key
