"""A run that is killed loses little, and the next one starts at once and ends as if nothing had happened."""

import json
import os
import random
import signal
import subprocess
import time

import dagster as dg
import psutil
import pytest

from tests.same_files import artifacts, different, unfinished
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


COMMANDS = (
    [str(BIN / "dagster"), *ARGUMENTS],
    [str(BIN / "agml-assets"), "run", "--dataset", "tiny"],
)
SEED = random.randrange(2**32)


@pytest.fixture(scope="module")
def unkilled(finished, tmp_path_factory):
    """A place with a history of runs, and how long each command takes there when nobody kills it, in seconds."""
    root = tmp_path_factory.mktemp("killed")
    seconds = []
    for number, command in enumerate(COMMANDS):
        env = in_folder(root, finished, f"unkilled_{number}")
        started = time.monotonic()
        done = subprocess.run(command, env=env, cwd=root, capture_output=True, text=True, timeout=500, check=False)
        seconds.append(time.monotonic() - started)
        assert done.returncode == 0, done.stderr[-3000:]
        reference = artifacts(finished / "results" / "tiny")
        assert different(artifacts(root / f"unkilled_{number}" / "tiny"), reference) == []
    return root, seconds


def in_folder(root, finished, name):
    """Return an environment with results of its own; the history and the images are shared."""
    return {**environment(root, finished / "datasets.yaml"), "AGML_RESULTS": str(root / name)}


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(10))
def test_after_a_kill_at_any_moment_the_same_command_gives_what_an_unkilled_run_gives(unkilled, finished, moment):
    root, seconds = unkilled
    number = moment % len(COMMANDS)
    # One moment in each tenth of the run.
    after = (moment + random.Random(SEED + moment).random()) / 10 * seconds[number]
    told = f"moment {moment}, seed {SEED}: killed after {after:.2f} of {seconds[number]:.2f} s"
    env, results = in_folder(root, finished, f"moment_{moment}"), root / f"moment_{moment}"
    with (root / f"log_{moment}").open("w") as log:
        run = subprocess.Popen(COMMANDS[number], env=env, cwd=root, stdout=log, stderr=log)
        time.sleep(after)
        family = psutil.Process(run.pid).children(recursive=True) if run.poll() is None else []
        run.kill()
        run.wait()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == [], told
    broken = [path for path in results.rglob("*.json") if not is_json(path)]
    assert broken == [], told
    note = results / "_platform" / "locks" / "tiny.holder.json"
    killed_run = json.loads(note.read_text())["holder"].removeprefix("run ") if note.exists() else None

    again = subprocess.run(
        COMMANDS[number], env=env, cwd=root, capture_output=True, text=True, timeout=500, check=False
    )
    assert again.returncode == 0, f"{told}\n{again.stderr[-3000:]}"
    assert "Waiting for" not in again.stderr, told
    assert different(artifacts(results / "tiny"), artifacts(finished / "results" / "tiny")) == [], told
    assert unfinished(results) == [], told
    work = results / "tiny" / ".work"
    assert [path for path in work.rglob("*") if path.is_file()] == [], told
    if killed_run and "up to date" not in again.stderr:
        with dg.DagsterInstance.from_config(env["DAGSTER_HOME"]) as instance:
            assert instance.get_run_by_id(killed_run).is_finished, told
        assert not note.exists(), told


def is_json(path):
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True
