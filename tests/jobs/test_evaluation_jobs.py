"""The jobs of models on datasets, as people launch them."""

import json
import subprocess

import pytest

from tests.tiny import BIN, JOB, dagster, environment, write_images, write_registry

MODEL = "efficientnet_lite0"
TAGS = {
    "dagster/partition": f"tiny|{MODEL}",
    "dagster/partition/dataset": "tiny",
    "dagster/partition/model": MODEL,
}


@pytest.mark.slow
def test_a_pair_is_evaluated_by_three_tags_then_reported(copy_of_finished):
    env = environment(copy_of_finished, copy_of_finished / "datasets.yaml")
    done = dagster(*JOB, "evaluate_models", "--tags", json.dumps(TAGS), env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    folder = copy_of_finished / "results/tiny/evaluation" / MODEL
    assert json.loads((folder / "run_record.json").read_text())["model"] == "EfficientNet-Lite0"
    done = dagster(*JOB, "model_report", env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads((copy_of_finished / "results/_platform/evaluation/report.json").read_text())
    assert list(report["subjects"]) == ["tiny"]


def test_with_one_tag_alone_the_run_ends_with_the_line_to_type(copy_of_finished):
    env = environment(copy_of_finished, copy_of_finished / "datasets.yaml")
    done = dagster(*JOB, "evaluate_models", "--tags", '{"dagster/partition": "tiny"}', env=env)
    assert done.returncode == 1
    assert '"dagster/partition/dataset": "DATASET"' in done.stderr
    assert not (copy_of_finished / "results/tiny/evaluation").exists()


def test_the_command_makes_what_it_reads_of_a_dataset_and_prints_the_score(tmp_path):
    env = environment(tmp_path, write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images")))
    command = [str(BIN / "agml-assets"), "evaluate", "tiny", "nothing", "--model", MODEL]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    scored, failed = done.stdout.splitlines()
    assert scored.startswith("tiny     efficientnet_lite0  macro_f1")
    assert "'nothing' is neither a registered dataset nor a task" in failed
    assert not (tmp_path / "results/tiny/training/dynamics.npz").exists()


def test_the_job_names_what_it_reads_and_does_not_find(tmp_path):
    env = environment(tmp_path, write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images")))
    done = dagster(*JOB, "evaluate_models", "--tags", json.dumps(TAGS), env=env)
    assert done.returncode == 1
    assert "dataset/image_index is not in the store" in done.stderr
