"""A backfill of many datasets by Dagster's daemon, with its history in SQLite and two runs at a time.

`python benchmarks/backfill_with_daemon.py [--structural 200] [--benchmark 10]`: datasets of 12 images, the first
with the job `structural_quality`, the others with `benchmark`, in a folder of its own with this repository's
`dagster.yaml`. Exits with 1 unless every dataset is reported, those benchmarked are scored, the others say why
not, and SQLite was never locked. Prints what a dataset costs beside the work of its steps.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import dagster as dg
import numpy as np
import yaml
from PIL import Image

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
IMAGES = 12
CLASSES = ("blight", "healthy")
NO_SCORE = "score not computable: near_duplicate was not run"
LOCKED = b"database is locked"
POLL_S = 5.0
SETTINGS = {
    "embed_model": "efficientnet_lite0",
    "backbone": "efficientnet_lite0",
    "train_image_size": 64,
    "cartography_epochs": 1,
    "decode_workers": 1,
}


def main() -> int:
    """Run the backfill and print its figures; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--structural", type=int, default=200, help="datasets with phase 1 alone")
    parser.add_argument("--benchmark", type=int, default=10, help="datasets with everything")
    options = parser.parse_args()
    jobs = {
        "benchmark": [f"whole{number:03}" for number in range(options.benchmark)],
        "structural_quality": [f"part{number:03}" for number in range(options.structural)],
    }
    folder = Path(tempfile.mkdtemp(prefix="backfill-"))
    env = prepare(folder, [key for keys in jobs.values() for key in keys])
    for job, keys in jobs.items():
        queue(job, keys, folder, env)
    with daemon(folder, env) as process, dg.DagsterInstance.from_config(env["DAGSTER_HOME"]) as instance:
        wait_until_finished(instance, sum(map(len, jobs.values())), process)
        records = instance.get_run_records()
        print(*(describe_job(instance, job, records) for job in jobs if jobs[job]), sep="\n")
    states = Counter(record.dagster_run.status.value for record in records)
    wall = max(record.end_time or 0 for record in records) - min(record.start_time or 0 for record in records)
    print(f"all {len(records)} runs: {dict(states)}, {wall:.0f} s")
    problems = find_problems(folder, jobs)
    if set(states) != {"SUCCESS"}:
        problems.append(f"runs ended as {dict(states)}")
    for problem in problems:
        print(f"WRONG: {problem}")
    if problems:
        print(f"Everything is left in {folder}.")
        return 1
    shutil.rmtree(folder)
    return 0


def prepare(folder: Path, keys: Sequence[str]) -> dict[str, str]:
    """Write images, registry and Dagster's home; return the environment that names them."""
    rng = np.random.default_rng(0)
    for key in keys:
        for number in range(IMAGES):
            file = folder / "images" / key / CLASSES[number % len(CLASSES)] / f"{number:02}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, size=(48, 64, 3)).astype(np.uint8)).save(file)
    entries = [{"name": key, "path": f"images/{key}"} for key in keys]
    registry = {"defaults": {"settings": SETTINGS}, "datasets": entries}
    (folder / "datasets.yaml").write_text(yaml.safe_dump(registry))
    (folder / "home").mkdir()
    shutil.copy(ROOT / "dagster.yaml", folder / "home")
    shutil.copy(ROOT / "workspace.yaml", folder)
    places = {"AGML_RESULTS": "results", "AGML_REGISTRY": "datasets.yaml", "DAGSTER_HOME": "home"}
    values = {k: v for k, v in os.environ.items() if not k.startswith(("AGML_", "DAGSTER_"))}
    return {
        **values,
        **{name: str(folder / place) for name, place in places.items()},
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",  # two runs share the cores
    }


def queue(job: str, keys: Sequence[str], folder: Path, env: dict[str, str]) -> None:
    """Queue one run for each dataset, as the README says."""
    if not keys:
        return
    command = [BIN / "dagster", "job", "backfill", "-w", "workspace.yaml", "-j", job, "--noprompt"]
    done = subprocess.run(
        [*command, "--partitions", ",".join(keys)], cwd=folder, env=env, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"the backfill of {job} could not be queued:\n{done.stderr[-3000:]}")


@contextmanager
def daemon(folder: Path, env: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Work the queue off; at the end nothing of the daemon is left."""
    with (folder / "home" / "daemon.log").open("wb") as log:
        process = subprocess.Popen(
            [BIN / "dagster-daemon", "run", "-w", "workspace.yaml"],
            cwd=folder,
            env=env,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_until_finished(instance: dg.DagsterInstance, expected: int, process: "subprocess.Popen[bytes]") -> None:
    """Wait for all runs, saying now and then how many are left."""
    told = -1
    while True:
        finished = sum(run.is_finished for run in instance.get_runs())
        if finished // 20 > told or finished == expected:
            print(f"{finished} of {expected} runs are finished", flush=True)
            told = finished // 20
        if finished == expected:
            return
        if process.poll() is not None:
            raise SystemExit(f"the daemon has ended with status {process.returncode}")
        time.sleep(POLL_S)


def describe_job(instance: dg.DagsterInstance, job: str, records: Sequence[dg.RunRecord]) -> str:
    """Say what a dataset of a job costs.

    Its share of the slots' time: that of the job's runs from the first start to the last end, times the slots,
    over their number. What of it was no work of steps is overhead: starting a process, loading the definitions,
    writing events, waiting for the queue.
    """
    mine = [record for record in records if record.dagster_run.job_name == job]
    slots = instance.get_concurrency_config().run_queue_config.max_concurrent_runs
    span = max(record.end_time or 0 for record in mine) - min(record.start_time or 0 for record in mine)
    each = span * min(slots, len(mine)) / len(mine)
    steps = [step for record in mine for step in instance.get_run_step_stats(record.dagster_run.run_id)]
    work = sum((step.end_time or 0) - (step.start_time or 0) for step in steps) / len(mine)
    return (
        f"{job}: {len(mine)} datasets, {each:.1f} s of one of {slots} slots a dataset: {work:.1f} s work of its "
        f"steps, {each - work:.1f} s overhead"
    )


def find_problems(folder: Path, jobs: dict[str, list[str]]) -> list[str]:
    """Return what is not as it should be with reports, scores and logs."""
    from agml_assets.batch import overall_score
    from agml_assets.todo import open_workspace

    problems = []
    workspace = open_workspace(folder / "results", registry=folder / "datasets.yaml")
    for job, keys in jobs.items():
        for key in keys:
            file = folder / "results" / key / "result.json"
            if not file.is_file():
                problems.append(f"{key} has no report")
                continue
            images = json.loads(file.read_text())["reproducibility"]["num_images"]
            score, reason = overall_score(workspace.dataset(key))
            if images != IMAGES:
                problems.append(f"the report of {key} is of {images} images")
            if (score is None, reason) != ((True, NO_SCORE) if job == "structural_quality" else (False, "")):
                problems.append(f"{key} by {job}: score {score}, {reason!r}")
    for file in (folder / "home").rglob("*"):
        if file.is_file() and LOCKED in file.read_bytes():
            problems.append(f"{LOCKED.decode()!r} in {file.relative_to(folder)}")
    return problems


if __name__ == "__main__":
    sys.exit(main())
