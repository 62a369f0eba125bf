"""Docker as a sandbox, up to its border: a program stands for its client, and runs commands in the workspace."""

import csv
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from agml_assets.agents.runs import read_trials, run_trials
from agml_assets.agents.sandbox import choose, container
from agml_assets.agents.sandbox.confinement import Confinement
from agml_assets.agents.sandbox.container import IMAGE, container_command
from agml_assets.agents.sandbox.execute import run_confined
from agml_assets.agents.scoring import judge
from agml_assets.agents.tasks.folder import evaluate
from agml_assets.errors import UserError
from agml_assets.registry.agents import AgentEntry, Limits
from tests.agents.tiny_task import BEST, DONE, PYTHON, make_task, scripted, write

ROOT = Path(__file__).parents[3]

# It keeps the process of each container beside it, and what it was asked for in `asked`.
CLIENT = """#!{python}
import csv, json, os, signal, subprocess, sys
from pathlib import Path
place, words = Path({place!r}), sys.argv[1:]
with (place / "asked").open("a") as log:
    log.write(json.dumps(words) + "\\n")
if words[0] == "run":
    if not (place / "image").exists():
        sys.stderr.write("docker: Error response from daemon: No such image: x.\\n")
        sys.exit(125)
    options, at = [], 1
    while words[at].startswith("--"):
        alone = words[at] in ("--rm", "--interactive", "--init", "--read-only")
        options.append((words[at], None if alone else words[at + 1]))
        at += 1 if alone else 2
    mounts = [dict(part.partition("=")[::2] for part in next(csv.reader([text])))
              for name, text in options if name == "--mount"]
    here = next(one["source"] for one in mounts if one["target"] == "/workspace")
    for one in mounts:
        inside = Path(here, os.path.relpath(one["target"], "/workspace"))
        if one["target"] != "/workspace":
            if inside.is_dir() and not inside.is_symlink():
                inside.rmdir()
            else:
                inside.unlink(missing_ok=True)
            inside.symlink_to(one["source"])
    env = dict(text.partition("=")[::2] for name, text in options if name == "--env")
    process = subprocess.Popen(words[at + 1:], cwd=here, start_new_session=True,
                               env=env | {{"PATH": "/usr/bin:/bin:" + os.path.dirname(sys.executable)}})
    (place / dict(options)["--name"]).write_text(str(process.pid))
    code = process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    (place / dict(options)["--name"]).unlink(missing_ok=True)
    sys.exit(code if code >= 0 else 128 - code)
if words[0] == "ps":
    print("\\n".join(one.name for one in place.glob("agml-assets-*")))
if words[0] == "rm":
    for name in words[2:]:
        try:
            os.killpg(int((place / name).read_text()), signal.SIGKILL)
        except (OSError, ValueError):
            pass
        (place / name).unlink(missing_ok=True)
"""


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    """Docker answers, and has the image; yields the folder of what it does."""
    place, programs = tmp_path / "daemon", tmp_path / "programs"
    place.mkdir()
    programs.mkdir()
    (place / "image").touch()
    client = programs / "docker"
    client.write_text(CLIENT.format(python=sys.executable, place=str(place)))
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(container.os, "geteuid", lambda: 1000)  # nobody is given the workspace here
    return place


@pytest.fixture
def confinement(tmp_path):
    (tmp_path / "workspace").mkdir()
    return Confinement(tmp_path / "workspace", PYTHON, Limits(disk_mb=10, output_kb=4), image=IMAGE)


def asked(daemon):
    return [json.loads(line) for line in (daemon / "asked").read_text().splitlines()]


def test_a_container_has_the_walls_of_bubblewrap(tmp_path, monkeypatch):
    monkeypatch.setattr(container.os, "geteuid", lambda: 0)
    odd = tmp_path / "a, b"
    limits = Limits(memory_mb=2048, processes=50, file_mb=3)
    one = Confinement(
        tmp_path / "w", PYTHON, limits, read_only={"data/x.csv": odd}, user=200_000, gpu=2, image=IMAGE
    )
    words = container_command(one, "name", ["python", "a.py"], env={"SEED": "3"}, seconds=10)
    options, command = words[: words.index(IMAGE)], words[words.index(IMAGE) + 1 :]
    given = list(pairwise(options))
    for pair in [
        ("--network", "none"), ("--cap-drop", "ALL"), ("--security-opt", "no-new-privileges"),
        ("--memory", "2048m"), ("--memory-swap", "2048m"), ("--pids-limit", "50"), ("--ulimit", "fsize=3145728"),
        ("--gpus", "device=2"), ("--user", "200000:200000"), ("--pull", "never"), ("--log-driver", "none"),
        ("--env", "SEED=3"), ("--workdir", "/workspace"),
    ]:  # fmt: skip
        assert pair in given
    assert {"--rm", "--init", "--read-only"} <= set(options)
    workspace, data = (next(csv.reader([text])) for name, text in given if name == "--mount")
    assert workspace == ["type=bind", f"source={tmp_path / 'w'}", "target=/workspace"]
    assert data == ["type=bind", f"source={odd}", "target=/workspace/data/x.csv", "readonly"]
    assert command == ["timeout", "--kill-after", "5", "15", "python", "a.py"]
    assert not any("=" in text and text.split("=")[0].endswith("KEY") for name, text in given if name == "--env")
    assert f"-t {IMAGE} " in (ROOT / "docker/agents/Dockerfile").read_text().splitlines()[0]


def test_a_user_who_is_not_root_is_the_user_of_the_container(tmp_path, monkeypatch):
    monkeypatch.setattr(container.os, "geteuid", lambda: 1234)
    monkeypatch.setattr(container.os, "getegid", lambda: 99)
    words = container_command(Confinement(tmp_path, PYTHON, image=IMAGE), "n", ["true"], env={}, seconds=1)
    assert words[words.index("--user") + 1] == "1234:99"


def test_a_command_reads_its_input_and_says_what_it_did(daemon, confinement):
    done = run_confined(["sh", "-c", "cat; echo wrong >&2; exit 3"], confinement, stdin=b"typed")
    assert (done.stdout, done.stderr, done.returncode, done.stopped) == (b"typed", b"wrong\n", 3, "")


def test_endless_output_is_cut_and_time_and_disk_end_a_command(daemon, confinement):
    loud = run_confined(["sh", "-c", "yes | head -c 1000000"], confinement)
    assert len(loud.stdout) < 5000
    assert b"bytes left out" in loud.stdout
    slow = run_confined(["sleep", "60"], confinement, timeout_s=1)
    assert slow.stopped == "time"
    assert slow.seconds < 20
    large = run_confined(["sh", "-c", "head -c 20000000 /dev/zero > large; sleep 60"], confinement)
    assert large.stopped == "disk"
    assert not list(daemon.glob("agml-assets-*"))


def test_what_a_harness_that_died_has_left_running_is_ended_before_the_next_command(daemon, confinement):
    left = subprocess.Popen(["sleep", "60"], start_new_session=True)
    (daemon / "agml-assets-left").write_text(str(left.pid))
    run_confined(["true"], confinement)
    assert left.wait(10) == -9
    ps = next(words for words in asked(daemon) if words[0] == "ps")
    assert ps[-1] == f"label=agml-assets-workspace={confinement.workspace}"


def test_a_missing_image_says_how_it_is_built(daemon, confinement):
    (daemon / "image").unlink()
    with pytest.raises(UserError, match=r"No such image: x. The image is built by: docker build -t"):
        run_confined(["true"], confinement)


def test_a_whole_trial_runs_in_containers(daemon, tmp_path):
    task = make_task(tmp_path / "task")
    agent = scripted(
        tmp_path,
        write("import os\nprint(sorted(os.listdir('data')), os.environ.get('HOME'))", "look.py"),
        ("execute_script", {"script_name": "look.py"}),
        write(BEST),
        DONE,
    )
    done = run_trials(task, agent, (1,), tmp_path / "run", judge=judge, sandbox="docker")
    (trial,) = read_trials(done.eval_file, done.workspaces)
    assert "['sample_submission.csv', 'train.csv'] /tmp" in trial.steps[1].observation
    assert trial.score == 1
    assert any(words[0] == "run" and "look.py" in words[-1] for words in asked(daemon))


def test_another_interpreter_does_not_go_with_docker(daemon, tmp_path):
    task, agent = make_task(tmp_path / "task"), AgentEntry(key="starter", kind="starter")
    with pytest.raises(UserError, match="--python does not go with Docker"):
        run_trials(
            task, agent, (1,), tmp_path / "run", judge=judge, sandbox="docker", python=Path("/usr/bin/other")
        )


def test_a_tasks_own_scorer_runs_in_a_container_where_there_is_no_bubblewrap(daemon, tmp_path, monkeypatch):
    monkeypatch.setattr(choose, "why_not", lambda: "no bwrap")
    task = make_task(tmp_path / "task", metric=None, submission=None)
    (task.private / "scripts").mkdir()
    (task.private / "env").mkdir()
    scorer = "def get_score(folder): return len(open(folder + '/answer.txt').read())"
    (task.private / "scripts" / "eval.py").write_text(scorer)
    (tmp_path / "submitted").mkdir()
    (tmp_path / "submitted" / "answer.txt").write_text("12345")
    assert evaluate(task, tmp_path / "submitted", PYTHON).score == 5
    (command,) = (words for words in asked(daemon) if words[0] == "run")
    assert all("readonly" in text for text in command if text.startswith("type=bind"))
