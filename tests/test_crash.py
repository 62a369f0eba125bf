"""A run that is killed loses at most one shard, and the next one starts at once."""

import os
import signal
import subprocess
import time

import dagster as dg
import psutil
import pytest

from tests.tiny import BIN, JOB, dagster, environment, write_images, write_registry

ARGUMENTS = (*JOB, "benchmark", "--tags", '{"dagster/partition": "tiny"}')


def shards(root):
    return {p: p.stat().st_mtime_ns for p in (root / "results/_platform/embeddings/cache").rglob("*.npy")}


@pytest.mark.slow
def test_a_run_killed_while_embedding_goes_on_at_its_next_shard(tmp_path):
    settings = "embed_shard_size: 20, embed_batch_size: 20"
    images = write_images(tmp_path / "images", per_class=100)
    env = environment(tmp_path, write_registry(tmp_path / "datasets.yaml", images, settings))
    with (tmp_path / "log").open("w") as log:
        run = subprocess.Popen(
            [str(BIN / "dagster"), *ARGUMENTS],
            env=env,
            cwd=tmp_path,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + 300
    while len(shards(tmp_path)) < 3:
        assert run.poll() is None, (tmp_path / "log").read_text()[-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    family = [psutil.Process(run.pid), *psutil.Process(run.pid).children(recursive=True)]
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
    before = shards(tmp_path)
    assert 3 <= len(before) < 15
    assert not (tmp_path / "results/tiny/embeddings/embeddings.npy").exists()

    started = time.monotonic()
    done = dagster(*ARGUMENTS, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Waiting for" not in done.stderr
    after = shards(tmp_path)
    assert len(after) == 15
    kept = {path for path, time_ns in before.items() if after.get(path) == time_ns}
    assert len(kept) >= len(before) - 1
    assert time.monotonic() - started < 300


@pytest.mark.slow
def test_a_run_killed_while_decoding_leaves_no_worker_and_goes_on_at_its_next_block(tmp_path):
    images = write_images(tmp_path / "images", per_class=1500)
    env = environment(tmp_path, write_registry(tmp_path / "datasets.yaml", images))
    command = [*JOB, "structural_quality", "--tags", '{"dagster/partition": "tiny"}']
    run = subprocess.Popen(
        [str(BIN / "dagster"), *command],
        env=env,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    work, deadline = tmp_path / "results/tiny/.work/decode", time.monotonic() + 200
    while not blocks(work):
        assert run.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    family = psutil.Process(run.pid).children(recursive=True)
    run.kill()
    run.wait()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
    before = blocks(work)
    assert before
    assert not (tmp_path / "results/tiny/dataset/image_index.parquet").exists()
    done = dagster(*command, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Waiting for" not in done.stderr
    assert not work.exists()


def blocks(work):
    return {path: path.stat().st_mtime_ns for path in work.rglob("*.parquet")}


@pytest.mark.slow
def test_two_runs_of_one_dataset_follow_one_another(tmp_path):
    env = environment(tmp_path, write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images")))
    with dg.DagsterInstance.from_config(env["DAGSTER_HOME"]) as instance:
        instance.get_runs(limit=1)  # Dagster cannot create one history from two processes at once
    runs = [
        subprocess.Popen(
            [str(BIN / "dagster"), *JOB, "structural_quality", "--tags", '{"dagster/partition": "tiny"}'],
            env=env,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [run.communicate(timeout=300)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    assert sum("Waiting for dataset 'tiny': held by run" in output for output in outputs) == 1
