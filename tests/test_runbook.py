"""Every command of the runbook works as written, in the order of its pages, on a registry of two datasets."""

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.test_readme import environment, shell
from tests.tiny import BIN, write_images

ROOT = Path(__file__).parents[1]
RUNBOOK = (ROOT / "docs/runbook.md").read_text()
KEYS = 'python -c "from agml_assets.registry.datasets import load_registry; print(*load_registry().keys())"'
RUN = "agml-assets run beans"
RUN_ALL = "agml-assets run --all"
LIMITED = "agml-assets run beans peas --time-limit 12"
EXECUTE = 'dagster job execute -m agml_assets.definitions -j benchmark --tags \'{"dagster/partition": "beans"}\''
SOME = "dagster job backfill -w workspace.yaml -j benchmark --partitions beans,peas --noprompt"
ALL = "dagster job backfill -w workspace.yaml -j benchmark --all all --noprompt"
DAEMON = "dagster-daemon run -w workspace.yaml"
SCHEDULE = "dagster schedule start weekly_benchmark -w workspace.yaml"
SENSOR = "dagster sensor start new_in_registry -w workspace.yaml"
REDO = (
    'dagster asset materialize -m agml_assets.definitions --select "key:quality/near_duplicate" --partition beans'
)
EXTRAS = ("pip install -c constraints.txt '.[postgres]'", "pip install -c constraints.txt '.[s3]'")
POSTGRES = ("export AGML_POSTGRES_URL=postgresql://user:password@host/database", "dagster instance info")
BUCKET = "export AGML_RESULTS=s3://bucket/results"
FORGET_CACHE = 'rm -r "$AGML_RESULTS/_platform/embeddings/cache"'
FORGET_DATASET = 'rm -r "$AGML_RESULTS/beans"'
HISTORY = ("dagster run list --limit 5", "dagster run wipe --force")
UPGRADE = ("git pull", "make install", "dagster instance migrate")


STATES = """
import dagster as dg
with dg.DagsterInstance.get() as instance:
    print(*(run.status.value for run in instance.get_runs()))
"""


def commands() -> list[str]:
    """Return the runbook's commands in order."""
    return [line for body in re.findall(r"^```sh\n(.*?)^```$", RUNBOOK, re.M | re.S) for line in body.splitlines()]


def test_no_command_of_the_runbook_is_untested():
    tested = {KEYS, RUN, RUN_ALL, LIMITED, EXECUTE, SOME, ALL, DAEMON, SCHEDULE, SENSOR, REDO, *EXTRAS, *POSTGRES}
    assert set(commands()) == tested | {BUCKET, FORGET_CACHE, FORGET_DATASET, *HISTORY, *UPGRADE}


def test_the_extras_exist_and_the_upgrade_uses_what_there_is():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"postgres", "s3"} <= set(project["optional-dependencies"])
    done = subprocess.run(["make", "-n", "-B", "install"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0
    assert "constraints.txt" in done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> tuple[Path, dict[str, str]]:
    """A folder with two registered datasets, and the environment in which the runbook is read."""
    root = tmp_path_factory.mktemp("runbook")
    env = environment(root)
    shutil.copy(ROOT / "dagster.yaml", env["DAGSTER_HOME"])
    shutil.copy(ROOT / "workspace.yaml", root)
    for seed, name in enumerate(("beans", "peas")):
        write_images(root / "images" / name, per_class=6, seed=seed)
    entries = "".join(f"  - {{name: {name}, path: images/{name}}}\n" for name in ("beans", "peas"))
    (root / "datasets.yaml").write_text(f"datasets:\n{entries}")
    return root, env | {"AGML_REGISTRY": str(root / "datasets.yaml")}


def run(place, command: str) -> str:
    """Run a command of the runbook and return what it prints."""
    done = shell(command, *place)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@contextmanager
def daemon(root: Path, env: dict[str, str]) -> Iterator[None]:
    """Run the daemon, and end it."""
    with (root / "daemon.log").open("wb") as log:
        process = subprocess.Popen(
            [str(BIN / word) if word == "dagster-daemon" else word for word in shlex.split(DAEMON)],
            cwd=root,
            env=env,
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


@pytest.mark.slow
def test_datasets_are_run_alone_together_and_again(place):
    root, _ = place
    assert set(run(place, KEYS).split()) == {"beans", "peas"}
    assert re.search(r"beans +scored +\d+\.\d", run(place, RUN))
    table = run(place, RUN_ALL)
    assert re.search(r"beans +up to date", table)
    assert re.search(r"peas +scored", table)
    assert len(re.findall(r"^(?:beans|peas) +up to date", run(place, LIMITED), re.M)) == 2
    before = (root / "results/beans/quality/near_duplicate.json").stat().st_mtime_ns
    run(place, REDO)
    assert (root / "results/beans/quality/near_duplicate.json").stat().st_mtime_ns > before
    run(place, RUN)
    report = json.loads((root / "results/beans/result.json").read_text())
    assert report["phases_completed"] == [1, 2, 3]


@pytest.mark.slow
def test_space_is_made_and_everything_comes_back(place):
    root, _ = place
    run(place, RUN)
    run(place, FORGET_CACHE)
    run(place, FORGET_DATASET)
    assert not (root / "results/beans").exists()
    run(place, EXECUTE)
    assert (root / "results/beans/result.json").is_file()
    assert "Job: benchmark" in run(place, HISTORY[0])
    run(place, HISTORY[1])
    assert "Job: benchmark" not in run(place, HISTORY[0])
    run(place, UPGRADE[2])


@pytest.mark.slow
def test_backfills_schedule_and_sensor_are_worked_off_by_the_daemon(place):
    root, env = place
    run(place, RUN_ALL)
    for command in (SCHEDULE, SENSOR, SOME, ALL):
        run(place, command)
    states = run(place, "dagster schedule list -w workspace.yaml; dagster sensor list -w workspace.yaml")
    assert re.search(r"weekly_benchmark \[RUNNING\]", states)
    assert re.search(r"new_in_registry \[RUNNING\]", states)
    with daemon(root, env):
        end = time.monotonic() + 400
        while run(place, f"{shlex.quote(sys.executable)} -c {shlex.quote(STATES)}").count("SUCCESS") < 4:
            assert time.monotonic() < end, (root / "daemon.log").read_text()[-3000:]
            time.sleep(5)


@pytest.mark.slow
def test_a_database_that_is_not_there_is_named(place):
    url, info = POSTGRES
    done = shell(f"{url.replace('host', '127.0.0.1:9')}\n{info}", *place)
    assert done.returncode != 0
    assert "127.0.0.1:9" in done.stderr
    assert "password@" not in done.stderr


@pytest.mark.slow
def test_a_bucket_that_is_not_there_is_named(place):
    root, env = place
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    done = shell(f"{BUCKET}\n{RUN}", root, env | keys)
    assert done.returncode == 1
    assert "s3://bucket/results" in done.stderr
