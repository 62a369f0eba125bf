"""Many datasets, one after another: what one of them does to itself is its own affair."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime

import psutil
import pytest

import agml_assets
from agml_assets import batch, cli
from agml_assets.batch import (
    Outcome,
    absolute_environment,
    choose_keys,
    describe_outcome,
    log_folder,
    overall_score,
    run_batch,
)
from agml_assets.errors import UserError
from agml_assets.quality.artifacts import METRIC_ARTIFACTS
from agml_assets.registry.datasets import DatasetEntry, DatasetRegistry, load_registry
from agml_assets.settings import PLACES, Settings
from agml_assets.store import ArtifactStore
from agml_assets.summary_table import describe_batch
from agml_assets.todo import open_workspace
from agml_assets.workspace import Workspace
from tests.tiny import BIN, contents, environment, write_images, write_registry

KEYS = ("first", "second", "third")


@pytest.fixture
def workspace(tmp_path):
    entries = tuple(DatasetEntry(name=key, path=tmp_path / key) for key in KEYS)
    return Workspace(DatasetRegistry(entries, "a test"), Settings(), ArtifactStore(tmp_path / "results"))


def walk(workspace, code, keys=KEYS, **given):
    """Run Python code in place of the benchmark; it finds the dataset's key in `key`."""

    def command(key):
        return [sys.executable, "-c", f"import os, signal, sys, time; key = sys.argv[1]\n{code}", key]

    given = {"environment": os.environ, "logs": log_folder(workspace.store), "force": True, **given}
    return list(run_batch(workspace, keys, command, **given))


def test_a_process_that_is_killed_is_named_with_its_signal_and_the_others_are_run(workspace):
    code = (
        "print('Error: no such luck', file=sys.stderr)\n"
        "if key == 'first': os.kill(os.getpid(), signal.SIGKILL)\n"
        "if key == 'second': os.kill(os.getpid(), signal.SIGSEGV)\n"
        "sys.exit(1)"
    )
    outcomes = walk(workspace, code)
    assert [(o.dataset, o.state, o.reason) for o in outcomes] == [
        ("first", "failed", "ended by signal 9 (Killed), as the system does when memory runs out"),
        ("second", "failed", "ended by signal 11 (Segmentation fault)"),
        ("third", "failed", "no such luck"),
    ]


def test_a_process_past_its_time_is_ended_with_all_that_it_started_whatever_they_ignore(
    workspace, tmp_path, monkeypatch
):
    monkeypatch.setattr(batch, "_GRACE_S", 0.3)
    monkeypatch.setattr(batch, "_ASK_AGAIN_S", 0.1)
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    code = (
        "import subprocess\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"other = subprocess.Popen([sys.executable, '-c', {stubborn!r}])\n"
        f"open('{tmp_path}/' + key, 'w').write(f'{{os.getpid()}} {{other.pid}}')\n"
        "time.sleep(600)"
    )
    started = time.monotonic()
    outcomes = walk(workspace, code, keys=["first", "second"], time_limit_s=2.0)
    assert 4 < time.monotonic() - started < 30
    assert [(o.state, o.reason) for o in outcomes] == [("timed out", "ended after 0:00:02, the time limit")] * 2
    pids = [int(pid) for key in ("first", "second") for pid in (tmp_path / key).read_text().split()]
    assert len(pids) == 4
    # SIGKILL has been sent to each; the kernel ends them in its own time.
    deadline = time.monotonic() + 10
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_process_past_its_time_may_finish_its_sentence(workspace, tmp_path):
    code = (
        "def end(*_):\n"
        f"    open('{tmp_path}/told', 'w').write('done')\n"
        "    sys.exit(130)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "time.sleep(600)"
    )
    (outcome,) = walk(workspace, code, keys=["first"], time_limit_s=1.0)
    assert outcome.state == "timed out"
    assert (tmp_path / "told").read_text() == "done"


def test_what_a_finished_process_left_behind_is_ended(workspace, tmp_path):
    code = (
        "import subprocess\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open('{tmp_path}/pid', 'w').write(str(other.pid))\n"
        "sys.exit(1)"
    )
    walk(workspace, code, keys=["first"])
    deadline = time.monotonic() + 10
    while is_running(int((tmp_path / "pid").read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "12 images\nError: The benchmark of 'first' failed.\ndecode_images: There is no folder.\n"
            "What succeeded is kept, and reported in x.\n",
            "decode_images: There is no folder.",
        ),
        ("Error: Settings are not valid:\n  'a'\n", "Settings are not valid:"),
        ("Traceback (most recent call last):\n  File 'x'\nValueError: bad\n", "ValueError: bad"),
        ("Error: old\n" + "x\n" * 50_000 + "Error: new\n", "new"),
        ("", "failed without a word"),
    ],
)
def test_the_reason_of_a_failure_is_what_the_process_said(workspace, tmp_path, said, reason):
    (tmp_path / "said").write_text(said)
    code = f"sys.stderr.write(open('{tmp_path}/said').read()); sys.exit(1)"
    (outcome,) = walk(workspace, code, keys=["first"])
    assert (outcome.state, outcome.reason) == ("failed", reason)


def test_a_log_holds_all_runs_of_its_day_and_the_reason_is_of_the_last(workspace):
    walk(workspace, "print('Error: once'); sys.exit(1)", keys=["first"])
    (outcome,) = walk(workspace, "sys.exit(1)", keys=["first"])
    assert outcome.reason == "failed without a word"
    log = workspace.store.path("_platform", f"logs/{datetime.now().astimezone():%Y-%m-%d}/first.log")
    assert log.read_text().count("Error: once\n") == 1
    assert log.read_text().count("\n--- ") == 1


def test_a_command_that_cannot_be_started_fails_its_dataset_only(workspace):
    outcomes = list(
        run_batch(
            workspace,
            ["first", "second"],
            lambda _: ["/no/such/command"],
            environment=os.environ,
            logs=log_folder(workspace.store),
            force=True,
        )
    )
    assert [o.state for o in outcomes] == ["failed", "failed"]
    assert all("/no/such/command" in o.reason for o in outcomes)


def test_a_process_that_says_it_is_done_and_left_no_report_has_failed(workspace):
    (outcome,) = walk(workspace, "sys.exit(0)", keys=["first"])
    assert outcome.state == "failed"
    assert "its report cannot be read" in outcome.reason


def test_for_what_is_up_to_date_no_process_is_started(copy_of_finished):
    workspace = open_workspace(copy_of_finished / "results", registry=copy_of_finished / "datasets.yaml")
    before = contents(copy_of_finished / "results")
    (outcome,) = walk(workspace, "sys.exit(1)", keys=["tiny"], force=False)
    report = json.loads((copy_of_finished / "results/tiny/result.json").read_text())
    assert (outcome.state, outcome.score) == ("up to date", report["score"]["overall"])
    assert contents(copy_of_finished / "results") == before
    (forced,) = walk(workspace, "sys.exit(1)", keys=["tiny"], force=True)
    assert forced.state == "failed"


def test_up_to_date_is_what_has_today_s_content_not_what_lies_there(copy_of_finished):
    write_registry(
        copy_of_finished / "datasets.yaml",
        load_registry(copy_of_finished / "datasets.yaml").get("tiny").path,
        "near_dup_threshold: 0.9",
    )
    workspace = open_workspace(copy_of_finished / "results", registry=copy_of_finished / "datasets.yaml")
    (outcome,) = walk(workspace, "sys.exit(1)", keys=["tiny"], force=False)
    assert outcome.state == "failed"


def test_a_dataset_without_a_score_says_what_it_lacks(tmp_path):
    registry = write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images"))
    agml_assets.run("tiny", phases=[1], results=tmp_path / "results", registry=registry)
    workspace = open_workspace(tmp_path / "results", registry=registry)
    bench = workspace.dataset("tiny")
    why = "score not computable: near_duplicate was not run"
    assert overall_score(bench) == (None, why)
    (outcome,) = walk(workspace, "sys.exit(1)", keys=["tiny"], force=False, phases=[1])
    assert describe_outcome(outcome) == f"tiny: up to date. {why}"
    bench.store.record_failure("tiny", METRIC_ARTIFACTS["near_duplicate"].file, error="It broke.", run_id="x")
    assert overall_score(bench) == (None, "score not computable: near_duplicate is failed: It broke.")


def registry_of(*names):
    sizes = {"small": 10, "large": 1000}
    return DatasetRegistry(
        tuple(DatasetEntry(name=n, num_images=sizes.get(n), retired=n == "old") for n in names), "a test"
    )


def test_datasets_are_run_in_the_order_of_the_partitions_and_retired_ones_are_not():
    registry = registry_of("own/unknown", "small", "old", "large")
    assert choose_keys(registry, []) == registry.keys() == ["large", "small", "unknown"]
    assert choose_keys(registry, ["own/unknown", "large", "unknown"]) == ["large", "unknown"]


def test_every_wrong_key_is_named_before_anything_starts():
    with pytest.raises(UserError) as caught:
        choose_keys(registry_of("small", "old", "large"), ["large", "smal", "old", "nothing-like-it"])
    assert "'smal' is not registered in a test. Did you mean 'small'?" in caught.value.message
    assert "'old' is retired" in caught.value.message
    assert "'nothing-like-it'" in caught.value.message
    assert "'large'" not in caught.value.message.partition("Registered are")[0]


def test_processes_are_given_absolute_places(workspace, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGML_RESULTS", "elsewhere")
    monkeypatch.setenv("AGML_DATA_DIR", "data")
    given = absolute_environment(workspace, "config.json")
    assert given["AGML_RESULTS"] == str(tmp_path / "results")
    assert given["AGML_DATA_DIR"] == str(tmp_path / "data")
    assert given["AGML_CONFIG"] == str(tmp_path / "config.json")
    assert given["AGML_REGISTRY"] == "a test"
    assert given["PATH"] == os.environ["PATH"]


def test_every_place_that_a_variable_names_is_handed_on_by_its_absolute_path(workspace, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in PLACES:
        monkeypatch.setenv(name, f"some/{name}")
    given = absolute_environment(workspace, None)
    for name in set(PLACES) - {"AGML_RESULTS", "AGML_REGISTRY"}:  # these two are the workspace's own
        assert given[name] == str(tmp_path / "some" / name)
    assert {"AGML_MODELS", "AGML_TASKS", "AGML_TASK_DATA", "AGML_BIOBENCH_RESULTS"} <= set(PLACES)


def test_the_table_names_every_dataset_and_counts_them(tmp_path):
    outcomes = [
        Outcome("beans", "scored", 7.26, 3725.0),
        Outcome("a-very-long-name", "failed", None, 2.0, "decode_images: " + "x" * 300),
        Outcome("rice", "up to date", 8.0, 0.0),
    ]
    lines = describe_batch(outcomes, 5, tmp_path).splitlines()
    assert lines[1].split() == ["dataset", "state", "score", "time", "reason"]
    assert lines[2] == "beans             scored      7.3    1:02:05"
    assert lines[3].startswith("a-very-long-name  failed             0:00:02  decode_images: xxx")
    assert lines[3].endswith("x...") and len(lines[3]) < 260
    assert lines[-1] == (f"5 datasets: 1 scored, 1 up to date, 1 failed, 2 not reached; 1:02:07. Logs: {tmp_path}")


@pytest.fixture
def many(tmp_path):
    """Folder with a registry of two datasets, and the environment of a run there."""
    registry = write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images"))
    text = registry.read_text()
    registry.write_text(text + text.replace("datasets:\n", "").replace("name: tiny", "name: tiny2"))
    return tmp_path, environment(tmp_path, registry)


def agml(root, env, *arguments):
    return subprocess.run(
        [str(BIN / "agml-assets"), "run", *arguments], env=env, cwd=root, capture_output=True, text=True
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_a_batch_that_is_ended(many, number):
    root, env = many
    with (root / "out").open("w") as out:
        parent = subprocess.Popen(
            [str(BIN / "agml-assets"), "run", "--all"],
            env=env,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            # Of a shell's background jobs, such as a test run may be, Ctrl-C is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    deadline = time.monotonic() + 120
    while not (root / "results/tiny/dataset").exists():
        assert parent.poll() is None, (root / "out").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    family = psutil.Process(parent.pid).children(recursive=True)
    assert family
    parent.send_signal(number)
    started = time.monotonic()
    status = parent.wait(60)
    assert time.monotonic() - started < 25
    _, alive = psutil.wait_procs(family, timeout=40)
    assert alive == []
    if number == signal.SIGKILL:
        return
    said = (root / "out").read_text()
    assert status == 130
    assert "tiny     interrupted" in said
    assert "2 datasets: 1 interrupted, 1 not reached" in said
    assert "The same command goes on where it stopped" in said


def test_an_unknown_key_is_refused_before_anything_is_written(many):
    root, env = many
    done = agml(root, env, "tiny", "tinny")
    assert done.returncode == 1
    assert "'tinny' is not registered" in done.stderr and "Did you mean 'tiny'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (root / "results").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "tiny", "--all"],
        ["run", "tiny", "--dataset", "tiny"],
        ["run", "--all", "--label-col", "x"],
        ["run", "--dataset", "tiny", "--time-limit", "1"],
        ["run", "--all", "--time-limit", "0"],
        ["run", "--all", "--phases", "4"],
    ],
)
def test_a_command_that_contradicts_itself_is_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "agml-assets run: error: " in capsys.readouterr().err


def test_a_results_root_that_cannot_be_written_to_is_told_once(many, monkeypatch, capsys):
    root, env = many
    monkeypatch.setenv("AGML_REGISTRY", env["AGML_REGISTRY"])
    assert cli.main(["run", "--all", "--results", str(root / "datasets.yaml")]) == 1
    assert "results root" in capsys.readouterr().err


@pytest.mark.slow
def test_settings_phases_and_force_reach_the_processes(many):
    root, env = many
    (root / "settings.json").write_text('{"split_seed": 7}')
    done = agml(root, env, "tiny2", "--phases", "1", "--config", "settings.json", "--results", "other")
    assert done.returncode == 0, done.stderr
    report = json.loads((root / "other/tiny2/result.json").read_text())
    assert report["phases_completed"] == [1]
    assert report["reproducibility"]["split_seed"] == 7
    assert not (root / "results/tiny2").exists()
    arguments = ("tiny2", "--phases", "1", "--config", "settings.json", "--results", "other")
    again = agml(root, env, *arguments)
    assert (again.returncode, "1 up to date" in again.stdout) == (0, True)
    before = contents(root / "other/tiny2")
    forced = agml(root, env, *arguments, "--force")
    assert (forced.returncode, "1 not scored" in forced.stdout) == (0, True)
    after = contents(root / "other/tiny2")
    assert after["dataset/splits.parquet"][1] > before["dataset/splits.parquet"][1]


HOSTILE = {
    "gone": "there is no folder",
    "broken": "None of the 15 images can be used: 15 unreadable",
    "classless": "holds no class folders",
}


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_registry_with_hostile_datasets_is_benchmarked_but_for_these(tmp_path):
    good = [f"leaves{number}" for number in range(9)]
    for seed, key in enumerate(good):
        write_images(tmp_path / key, per_class=5, seed=seed)
    for file in write_images(tmp_path / "broken", per_class=5).rglob("*.png"):
        file.write_bytes(b"no image")
    (tmp_path / "classless").mkdir()
    (tmp_path / "classless" / "leaf.png").write_bytes((tmp_path / "leaves0/rust/leaf_01.png").read_bytes())
    keys = ["gone", *good[:5], "broken", *good[5:], "classless"]
    registry = tmp_path / "datasets.yaml"
    short = "embed_model: efficientnet_lite0, backbone: efficientnet_lite0, train_image_size: 64"
    registry.write_text(
        f"defaults:\n  settings: {{{short}, cartography_epochs: 1}}\ndatasets:\n"
        + "".join(f"  - {{name: {key}, path: {key}}}\n" for key in keys)
    )
    env = environment(tmp_path, registry)

    done = agml(tmp_path, env, "--all")
    assert done.returncode == 1
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[2:14]}
    assert list(rows) == keys
    assert "12 datasets: 9 scored, 3 failed" in done.stdout
    for key, reason in HOSTILE.items():
        assert reason in rows[key]
    for key in good:
        score = json.loads((tmp_path / "results" / key / "result.json").read_text())["score"]["overall"]
        assert rows[key].split()[1:3] == ["scored", f"{score:.1f}"]

    before = contents(tmp_path / "results")
    again = agml(tmp_path, env, "--all")
    assert again.returncode == 1
    assert "12 datasets: 9 up to date, 3 failed" in again.stdout
    tried = {line.split()[3].removesuffix(":") for line in again.stderr.splitlines() if ": started, log" in line}
    assert tried == set(HOSTILE)
    after = contents(tmp_path / "results")
    kept = {file for file in before if file.partition("/")[0] in good}
    assert {file for file in kept if before[file] != after[file]} == set()
