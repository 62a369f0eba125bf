"""Heavy steps as jobs of a real Slurm: the same bytes, and every way in which a job can end."""

import json
import re
import shutil
import signal
import subprocess
import time

import pytest

from tests.same_files import artifacts, different
from tests.slurm.conftest import Site, account, patiently, queue
from tests.tiny import BIN, write_images

RUN = ("run", "--dataset", "tiny")
TRAINED = ("training/dynamics", "training/test_predictions.npz")


def slow_training(site, epochs):
    """Let the training of `tiny` take long enough to be interrupted; its results are others."""
    registry = site.root / "datasets.yaml"
    registry.write_text(re.sub(r"cartography_epochs: \d+", f"cartography_epochs: {epochs}", registry.read_text()))


def running(name):
    return next((job for job, state in queue(name).items() if state == "RUNNING"), None)


def checkpoint(site):
    return list((site.root / "results" / "tiny" / ".work" / "reference").glob("*.pt"))


def jobs_of(log):
    return re.findall(r"Submitted job (\d+)", log)


def sidecar(site, file):
    return json.loads((site.root / "results" / "tiny" / f"{file}.meta.json").read_text())


@pytest.mark.timeout(3000)
def test_the_sample_with_its_heavy_steps_as_jobs_gives_the_bytes_of_the_run_in_one_process(tmp_path, cluster):
    made = {}
    for mode in ("in_process", "slurm"):
        (tmp_path / mode).mkdir()
        site = Site(tmp_path / mode, cluster)
        env = {name: value for name, value in site.env.items() if name != "AGML_REGISTRY"}
        command = [str(BIN / "agml-assets"), "run", "--dataset", "sample"]
        done = subprocess.run(
            command, env={**env, "AGML_COMPUTE": mode}, cwd=site.root, capture_output=True, text=True, timeout=1400
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert len(jobs_of(done.stderr)) == (5 if mode == "slurm" else 0)
        made[mode] = artifacts(site.root / "results" / "sample")
    assert len(made["slurm"]) > 60, "every artifact and its sidecar"
    assert different(made["slurm"], made["in_process"]) == []


def test_a_failing_payload_fails_the_step_in_its_own_words(site):
    site.forget("tiny", *TRAINED)
    pixels = site.root / "results" / "tiny" / "dataset" / "pixels.npy"
    size = pixels.stat().st_size
    pixels.write_bytes(b"\x00" * size)
    run = site.start(*RUN)
    assert run.wait(200) == 1
    assert "training/dynamics.npz" not in site.contents("tiny")
    assert "train_reference: " in site.log()
    assert re.search(r"ValueError|magic", site.log())
    assert not list((site.root / "results" / "tiny" / ".work" / "jobs").glob("*.json"))


def test_a_cancelled_job_is_named_and_the_next_run_goes_on(site):
    slow_training(site, 200)
    run = site.start(*RUN)
    job = patiently(lambda: running("reference_training"))
    patiently(lambda: checkpoint(site))
    subprocess.run(["scancel", job], check=True)
    assert run.wait(100) == 1
    assert f"job {job} was cancelled (CANCELLED)" in site.log()
    assert "The end of its log:" in site.log()
    assert checkpoint(site)


def test_a_job_at_its_time_limit_is_named_with_the_limit(site):
    site.profile("reference_training", time="'1'")
    slow_training(site, 100_000)
    run = site.start(*RUN)
    job = patiently(lambda: running("reference_training"))
    assert run.wait(240) == 1
    assert account(job) == "TIMEOUT"
    assert f"job {job} was ended at its time limit of 1 (TIMEOUT)" in site.log()
    assert "`time`" in site.log()


def test_a_job_above_its_memory_is_named_with_its_memory(site):
    site.profile("reference_training", memory="200M")
    site.forget("tiny", *TRAINED)
    run = site.start(*RUN)
    assert run.wait(200) == 1
    assert "was ended for using more than its memory of 200M" in site.log()


def test_interrupting_the_run_cancels_its_job(site):
    slow_training(site, 100_000)
    run = site.start(*RUN)
    job = patiently(lambda: running("reference_training"))
    run.send_signal(signal.SIGINT)
    assert run.wait(60) == 130, site.log()
    patiently(lambda: account(job) == "CANCELLED")
    assert not queue("reference_training")


def test_after_a_killed_submitting_process_the_same_command_takes_up_its_job(site):
    slow_training(site, 40)
    first = site.start(*RUN, log="first")
    job = patiently(lambda: running("reference_training"))
    first.kill()
    first.wait()
    assert queue("reference_training"), "the job lives on without the process that submitted it"
    second = site.start(*RUN, log="second")
    assert second.wait(300) == 0, site.log("second")
    again = subprocess.run(
        ["sacct", "-X", "-n", "-P", "-S", "now-10minutes", "-o", "JobID,JobName"], capture_output=True, text=True
    ).stdout
    name = next(line.split("|")[1] for line in again.splitlines() if line.startswith(f"{job}|"))
    assert len([line for line in again.splitlines() if line.endswith(f"|{name}")]) == 1
    assert account(job) == "COMPLETED"


def test_a_suspended_job_keeps_its_work_and_is_waited_for_by_the_next_run(site):
    site.forget("tiny", "embeddings/embeddings")
    first = site.start(*RUN, log="first")
    job = patiently(lambda: running("embeddings"))
    subprocess.run(["scontrol", "suspend", job], check=True)
    first.kill()
    first.wait()
    work = site.root / "results" / "tiny" / ".work" / "embeddings"
    work.mkdir(parents=True, exist_ok=True)
    (work / "half").touch()
    second = site.start(*RUN, log="second")
    patiently(lambda: f"Taking up job {job}" in site.log("second"))
    time.sleep(5)
    assert (work / "half").exists()
    assert queue("embeddings") == {job: "SUSPENDED"}, "no second job beside it"
    subprocess.run(["scontrol", "resume", job], check=True)
    assert second.wait(300) == 0, site.log("second")
    assert account(job) == "COMPLETED"
    assert "embeddings__embeddings - Submitted job" not in site.log("second")


def test_a_killed_submitting_process_whose_job_has_finished_meanwhile_leaves_it_to_the_next_run(site):
    slow_training(site, 3)
    first = site.start(*RUN, log="first")
    job = patiently(lambda: running("reference_training"))
    first.kill()
    first.wait()
    patiently(lambda: account(job) == "COMPLETED", 100)
    made = sidecar(site, "training/dynamics.npz")
    second = site.start(*RUN, log="second")
    assert second.wait(300) == 0, site.log("second")
    assert sidecar(site, "training/dynamics.npz") == made
    assert account(job) == "COMPLETED"


def test_a_job_for_inputs_that_have_changed_since_is_cancelled_and_never_writes(site):
    slow_training(site, 100_000)
    first = site.start(*RUN, log="first")
    job = patiently(lambda: running("reference_training"))
    first.kill()
    first.wait()
    slow_training(site, 2)
    second = site.start(*RUN, log="second")
    assert second.wait(300) == 0, site.log("second")
    assert account(job) == "CANCELLED"
    assert sidecar(site, "training/dynamics.npz")["settings"]["cartography_epochs"] == 2


def test_a_requeued_job_goes_on_at_its_checkpoint(site):
    slow_training(site, 60)
    run = site.start(*RUN)
    job = patiently(lambda: running("reference_training"))
    patiently(lambda: checkpoint(site))
    time.sleep(2)
    subprocess.run(["scontrol", "requeue", job], check=True)
    patiently(lambda: queue().get(job) == "PENDING")
    # Slurm lets a requeued job wait for two minutes, as a node refuses it in the second in which it killed it.
    time.sleep(2)
    subprocess.run(["scontrol", "update", f"jobid={job}", "StartTime=now"], check=True)
    assert run.wait(300) == 0, site.log()
    assert "Going on with the reference training after epoch" in site.log()
    assert account(job) == "COMPLETED"


@pytest.fixture
def two(finished, tmp_path, cluster):
    """Two datasets in one registry, nothing of the second made yet."""
    shutil.copytree(finished, tmp_path / "two")
    registry = tmp_path / "two" / "datasets.yaml"
    images = write_images(tmp_path / "other_images", seed=1)
    entry = registry.read_text().partition("datasets:\n")[2]
    folder = re.search(r"path: (\S+)", entry)[1]
    registry.write_text(registry.read_text() + entry.replace("tiny", "other").replace(folder, str(images)))
    return Site(tmp_path / "two", cluster)


def test_two_datasets_at_once_each_get_their_own_result(two):
    for key in ("tiny", "other"):
        two.forget(key, *TRAINED)
    runs = [two.start("run", "--dataset", key, log=key) for key in ("tiny", "other")]
    for key, run in zip(("tiny", "other"), runs, strict=True):
        assert run.wait(500) == 0, two.log(key)
    first, second = (two.contents(key)["training/dynamics.npz"] for key in ("tiny", "other"))
    assert first != second
    for key in ("tiny", "other"):
        report = json.loads((two.root / "results" / key / "result.json").read_text())
        assert report["phases_completed"] == [1, 2, 3]
