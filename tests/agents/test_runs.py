"""Trials from beginning to end, in the real sandbox, with agents that need no network."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from agml_assets.agents import runs, snapshots
from agml_assets.agents.models import REDACTED
from agml_assets.agents.runs import read_trials, rescore, run_trials, score_as_it_stands
from agml_assets.agents.scoring import judge
from agml_assets.agents.task import Verdict
from agml_assets.errors import UserError
from agml_assets.registry.agents import AgentEntry, Limits
from tests.agents import tiny_task
from tests.agents.tiny_task import BEST, BETTER, DONE, PYTHON, make_task, scripted, write

ROOT = Path(__file__).parents[2]
STARTER = AgentEntry(key="starter", kind="starter")


@pytest.fixture
def task(tmp_path):
    return make_task(tmp_path / "task")


def run(task, agent, folder, seeds=(1,), **options):
    """Run trials and return them."""
    done = run_trials(task, agent, seeds, folder, judge=options.pop("judge", judge), python=PYTHON, **options)
    return read_trials(done.eval_file, done.workspaces)


def test_the_starter_is_run_as_it_is_scored_and_told_in_two_steps_per_seed(task, tmp_path, capfd):
    told = []
    first, second = run(task, STARTER, tmp_path / "run", seeds=(1, 2), on_progress=told.append)
    assert [step.action for step in first.steps] == ["execute_script", "final_answer"]
    assert "one of three is right, perhaps" in first.steps[0].observation
    assert (first.ending, first.submitted, first.error) == ("submitted", True, "")
    assert first.score == second.score == pytest.approx(1 / 3)
    assert [step.score for step in first.steps] == [pytest.approx(1 / 3)] * 2
    assert (first.seed, second.seed, first.task_digest, first.problem) == (
        1,
        2,
        "digest-of-tiny",
        "Name the numbers.",
    )
    assert 0 < first.seconds < 30
    assert set(first.final_files) == {"train.py", "submission.csv"}
    assert len(told) == 4
    assert "seed 2: step 2 of 10" in told[-1]
    assert capfd.readouterr() == ("", "")


def test_of_each_step_the_score_of_what_stands_is_known_and_judged_once_per_content(task, tmp_path):
    judged = []

    def counting(task, folder):
        judged.append(1)
        return judge(task, folder)

    agent = scripted(
        tmp_path, ("list_files", {"dir_path": "."}), write(BETTER), write("x", "other.txt"), write(BEST), DONE
    )
    (trial,) = run(task, agent, tmp_path / "run", judge=counting)
    assert [step.score for step in trial.steps] == [None, pytest.approx(2 / 3), pytest.approx(2 / 3), 1.0, 1.0]
    assert len(judged) == 3  # two contents, and the end
    assert trial.steps[1].files["submission.csv"] != trial.steps[3].files["submission.csv"]


def test_an_action_that_fails_or_does_not_exist_is_told_and_the_trial_goes_on(task, tmp_path):
    agent = scripted(
        tmp_path,
        ("read_file", {"file_name": "nothing.txt"}),
        ("execute_script", {"script_name": "nothing.py"}),
        ("write_file", {"file": "wrong name of the argument"}),
        ("fly", {}),
        ("read_file", {"file_name": "../task/private/answers.parquet"}),
        write("changed", "rules.txt"),
        write("changed", "./notes/../notes/fixed.txt"),
        DONE,
    )
    (trial,) = run(task, agent, tmp_path / "run")
    said = [step.observation for step in trial.steps]
    assert "no file nothing.txt" in said[0]
    assert "does not exist" in said[1]
    assert "content" in said[2]
    assert "fly" in said[3]
    assert "outside the workspace" in said[4]
    assert "read-only" in said[5]
    assert "read-only" in said[6]
    assert (trial.ending, trial.score) == ("submitted", None)
    assert "submission.csv" in trial.reason
    assert (task.env / "rules.txt").read_text() == "as they were"


def test_old_actions_copy_append_and_show_at_most_a_hundred_lines(task, tmp_path):
    lines = "".join(f"line {place}\n" for place in range(1, 201))
    agent = scripted(
        tmp_path,
        write(lines, "sub/long.txt"),
        ("copy_file", {"source": "sub/long.txt", "destination": "copy.txt"}),
        ("append_file", {"file_name": "copy.txt", "content": "the end\n"}),
        ("inspect_script_lines", {"script_name": "copy.txt", "start_line_number": 199, "end_line_number": 250}),
        ("inspect_script_lines", {"script_name": "copy.txt", "start_line_number": 1, "end_line_number": 101}),
        ("copy_file", {"source": "copy.txt", "destination": "rules.txt"}),
        write("import sys\nsys.exit('it failed')", "bad.py"),
        ("execute_script", {"script_name": "bad.py"}),
        ("undo_edit_script", {"script_name": "copy.txt"}),
        DONE,
    )
    (trial,) = run(task, agent, tmp_path / "run")
    said = [step.observation for step in trial.steps]
    assert "line 199\nline 200\nthe end" in said[3]
    assert "ends at line 201" in said[3]
    assert "At most 100 lines" in said[4]
    assert "read-only" in said[5]
    assert "it failed" in said[7]
    assert "no edit of copy.txt to undo" in said[8]


def test_a_long_observation_loses_its_middle_visibly(task, tmp_path):
    agent = scripted(
        tmp_path, write("print('a' * 50_000 + 'END')", "s.py"), ("shell", {"command": "python s.py"}), DONE
    )
    (trial,) = run(task, agent, tmp_path / "run")
    assert len(trial.steps[1].observation) < 20_100
    assert "characters left out" in trial.steps[1].observation
    assert trial.steps[1].observation.endswith("END")


def test_a_script_cannot_change_what_is_read_only(task, tmp_path):
    attack = (
        "import os, shutil\n"
        "for place in ('rules.txt', 'notes/fixed.txt', 'data/train.csv'):\n"
        "    for way in (lambda: open(place, 'w').write('x'), lambda: os.remove(place), lambda: "
        "os.chmod(place, 0o777)):\n"
        "        try:\n            way()\n            print('CHANGED', place)\n"
        "        except OSError:\n            pass\n"
    )
    agent = scripted(tmp_path, write(attack, "attack.py"), ("execute_script", {"script_name": "attack.py"}), DONE)
    (trial,) = run(task, agent, tmp_path / "run")
    assert "CHANGED" not in trial.steps[1].observation
    assert (task.env / "notes" / "fixed.txt").read_text() == "as it was"


def test_the_last_permitted_step_ends_the_trial_and_what_stands_is_scored(task, tmp_path):
    agent = scripted(tmp_path, write(BETTER), ("list_files", {"dir_path": "."}), write(BEST), DONE)
    (trial,) = run(task, agent, tmp_path / "run", limits=Limits(steps=2, seconds=60, seconds_per_command=20))
    assert (trial.ending, trial.submitted, len(trial.steps)) == ("step_limit", False, 2)
    assert trial.score == pytest.approx(2 / 3)


def test_a_time_out_during_a_script_leaves_no_process_and_yields_the_score_of_what_stands(task, tmp_path):
    sleeper = "import subprocess, time\nsubprocess.Popen(['sleep', '987.25'])\ntime.sleep(987.25)\n"
    agent = scripted(
        tmp_path, write(BETTER), write(sleeper, "s.py"), ("execute_script", {"script_name": "s.py"}), DONE
    )
    began = time.monotonic()
    (trial,) = run(task, agent, tmp_path / "run", limits=Limits(steps=9, seconds=4, seconds_per_command=600))
    assert time.monotonic() - began < 90
    assert (trial.ending, trial.score) == ("time_limit", pytest.approx(2 / 3))
    assert trial.steps[-1].action == "execute_script"
    assert 3.5 < trial.seconds < 60
    running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path)]
    assert not any(b"987.25" in one for one in running)


def test_a_command_that_takes_too_long_is_ended_and_the_trial_goes_on(task, tmp_path):
    agent = scripted(
        tmp_path,
        write("import time\nprint('epoch 1')\ntime.sleep(99)", "s.py"),
        ("execute_script", {"script_name": "s.py"}),
        write(BEST),
        DONE,
    )
    (trial,) = run(task, agent, tmp_path / "run", limits=Limits(steps=9, seconds=60, seconds_per_command=1))
    assert "took longer than 1 seconds" in trial.steps[1].observation
    assert "epoch 1" in trial.steps[1].observation
    assert (trial.ending, trial.score) == ("submitted", 1.0)


def test_a_scorer_that_breaks_costs_the_score_and_not_the_trial(task, tmp_path):
    def broken(task, folder):
        raise ZeroDivisionError("oh")

    entry = task.entry.model_copy(update={"metric": None, "submission": None})
    agent = scripted(tmp_path, write(BEST), DONE)
    import dataclasses

    (trial,) = run(dataclasses.replace(task, entry=entry), agent, tmp_path / "run", judge=broken)
    assert (trial.ending, trial.score) == ("submitted", None)
    assert "ZeroDivisionError" in trial.reason


def test_without_a_sandbox_only_when_told_so_and_public_data_is_there(task, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-in-our-environment")
    code = "import os\nprint(open('data/train.csv').read())\nprint(os.environ.get('SOME_API_KEY'))\n"
    agent = scripted(tmp_path, write(code, "s.py"), ("execute_script", {"script_name": "s.py"}), DONE)
    (trial,) = run(task, agent, tmp_path / "run", sandbox="none")
    assert "x,2" in trial.steps[1].observation
    assert trial.steps[1].observation.rstrip().endswith("None")
    assert set(trial.final_files) == {"train.py", "s.py"}


def test_majority_answers_with_the_commonest_public_label_for_the_ids_of_the_template(task, tmp_path):
    (trial,) = run(task, AgentEntry(key="majority", kind="majority"), tmp_path / "run")
    assert trial.steps[0].arguments["content"] == "id,label\na,2\nb,2\nc,2\n"
    assert trial.score == pytest.approx(1 / 3)


def test_rescoring_uses_the_packed_files_and_runs_no_agent(task, tmp_path):
    agent = scripted(tmp_path, write(BETTER), write(BEST), DONE)
    done = run_trials(task, agent, (1,), tmp_path / "run", judge=judge, python=PYTHON)
    (before,) = read_trials(done.eval_file, done.workspaces)
    for path in (tmp_path / "run" / "workspaces").rglob("submission.csv"):
        path.unlink()
    rescore(done, task, judge=judge)
    assert read_trials(done.eval_file, done.workspaces) == [before]
    rescore(done, task, judge=lambda task, folder: Verdict(len((folder / "submission.csv").read_text()) / 2))
    (after,) = read_trials(done.eval_file, done.workspaces)
    assert after.score == len(BEST) / 2
    assert after.steps[0].score == len(BETTER) / 2
    assert after.ending == before.ending


def test_a_gpu_that_scripts_see_is_held_while_they_may_use_it(task, tmp_path, monkeypatch):
    held, seen = [], []

    @contextmanager
    def hold(number, holder):
        held.append((number, holder))
        yield
        held.clear()

    monkeypatch.setattr(runs, "hold_gpu", hold)
    run(task, STARTER, tmp_path / "with", gpu=0, on_progress=lambda _: seen.extend(held))
    assert set(seen) == {(0, "agent starter on task tiny")}
    seen.clear()
    run(task, STARTER, tmp_path / "without", on_progress=lambda _: seen.extend(held))
    assert seen == []


def test_whatever_an_agent_piles_up_its_trial_is_scored_and_the_next_begins(task, tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "MOST_FILES", 50)
    monkeypatch.setattr(snapshots, "MOST_NAMED", 20)
    pile = (
        "import os\nfor i in range(100): os.symlink('x' * 2000, f'link{i}')\nos.mkdir('closed', 0o000)\n"
        "for i in range(300):\n    os.mkdir('d'); os.chdir('d')"
    )
    agent = scripted(
        tmp_path, write(pile, "pile.py"), ("execute_script", {"script_name": "pile.py"}), write(BEST), DONE
    )
    trials = run(task, agent, tmp_path / "run", seeds=(1, 2))
    assert [trial.score for trial in trials] == [1, 1]
    assert all("submission.csv" in trial.final_files and len(trial.left_out) == 20 for trial in trials)
    again = run(task, agent, tmp_path / "run", resume=False)
    assert again[0].score == 1


def test_packed_workspaces_are_the_same_bytes_for_the_same_work(task, tmp_path):
    packed = []
    for name in ("one", "two"):
        agent = scripted(tmp_path, write(BEST), DONE)
        packed.append(
            run_trials(task, agent, (1,), tmp_path / name, judge=judge, python=PYTHON).workspaces.read_bytes()
        )
    assert packed[0] == packed[1]


def test_the_same_folder_takes_no_other_run_unless_it_begins_anew(task, tmp_path):
    run(task, STARTER, tmp_path / "run")
    with pytest.raises(UserError, match="differs in limits"):
        run(task, STARTER, tmp_path / "run", limits=Limits(steps=3))
    (trial,) = run(task, STARTER, tmp_path / "run", limits=Limits(steps=3), resume=False)
    assert trial.ending == "submitted"


def test_a_finished_run_is_not_run_again(task, tmp_path):
    (first,) = run(task, STARTER, tmp_path / "run")
    again = run(task, STARTER, tmp_path / "run", seeds=(1, 2))
    assert again[0] == first
    assert again[1].seed == 2


def test_no_value_of_a_key_is_in_anything_a_run_leaves(task, tmp_path, monkeypatch):
    secret = "sk-planted-4f3e2d1c"
    monkeypatch.setenv("PLANTED_API_KEY", secret)
    agent = scripted(
        tmp_path,
        write(f"import os\nprint(os.environ)\nprint('echo', {secret!r})", "leak.py"),
        ("execute_script", {"script_name": "leak.py"}),
        DONE,
    )
    done = run_trials(task, agent, (1,), tmp_path / "run", judge=judge, python=PYTHON)
    (trial,) = read_trials(done.eval_file, done.workspaces)
    assert "PLANTED" not in trial.steps[1].observation
    assert f"echo {REDACTED}" in trial.steps[1].observation
    from inspect_ai.log import read_eval_log

    assert secret not in read_eval_log(str(done.eval_file)).model_dump_json()


def _readable(path):
    try:
        return bool(path.read_bytes())
    except OSError:
        return False


KILLED = """\
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from agml_assets.agents.runs import run_trials
from agml_assets.agents.scoring import judge
from tests.agents.tiny_task import PYTHON, make_task
from agml_assets.registry.agents import AgentEntry, Limits
from tests.agents import tiny_task
import os, signal
task = tiny_task.open_again(Path({task!r}), limits=Limits.model_validate_json({limits!r}))
def die(line):
    if {when!r} in line:
        os.kill(os.getpid(), signal.SIGKILL)
run_trials(task, AgentEntry.model_validate_json({agent!r}), {seeds!r}, Path({folder!r}), judge=judge,
python=PYTHON, on_progress=die)
"""


def _code(task, agent, folder, when, seeds=(1,)):
    return KILLED.format(
        root=str(ROOT),
        task=str(task.env.parent),
        limits=task.entry.limits.model_dump_json(),
        agent=agent.model_dump_json(),
        folder=str(folder),
        when=when,
        seeds=tuple(seeds),
    )


def kill_when(task, agent, folder, when, seeds=(1,)):
    """Run trials in a process that dies by SIGKILL when it reports `when`."""
    code = _code(task, agent, folder, when, seeds)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=100)
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]


def test_a_killed_run_goes_on_after_its_last_step_with_finished_seeds_kept(task, tmp_path):
    agent = scripted(
        tmp_path,
        write("a\n", "log.txt"),
        ("append_file", {"file_name": "log.txt", "content": "b\n"}),
        write(BEST),
        DONE,
    )
    kill_when(task, agent, tmp_path / "run", "seed 2: step 2", seeds=(1, 2))
    kept = (tmp_path / "run" / "logs" / "seed_1.eval").stat().st_mtime_ns
    workspace = tmp_path / "run" / "workspaces" / "seed_2"
    (workspace / "half_done.txt").write_text("of a step that did not end")
    (workspace / "log.txt").write_text("half a line")
    (tmp_path / "run" / "state" / "seed_2.clock").write_text("12.5")  # it died long after its last step
    told = []
    trials = run(task, agent, tmp_path / "run", seeds=(1, 2), on_progress=told.append)
    assert [line.partition(": ")[2][:6] for line in told] == ["step 3", "step 4"]
    assert (tmp_path / "run" / "logs" / "seed_1.eval").stat().st_mtime_ns == kept
    assert [trial.ending for trial in trials] == ["submitted"] * 2
    assert not [path for path in (tmp_path / "run").rglob(".*") if path.suffix == ".tmp" or "inspect" in path.name]
    assert trials[0].final_files == trials[1].final_files  # nothing twice, nothing left over
    assert [step.index for step in trials[1].steps] == [0, 1, 2, 3]
    assert trials[1].score == 1.0
    assert trials[1].seconds > 12.5


class Died(BaseException):
    """What no code catches."""


def test_a_killed_run_can_be_scored_as_it_stands(task, tmp_path):
    def die(line):
        raise Died

    agent = scripted(tmp_path, write(BETTER), write(BEST), DONE)
    with pytest.raises(BaseException):  # noqa: B017
        run(task, agent, tmp_path / "run", on_progress=die)
    done = score_as_it_stands(tmp_path / "run", task, judge=judge, seeds=(1, 2))
    first, second = read_trials(done.eval_file, done.workspaces)
    assert (first.ending, first.submitted, first.score, len(first.steps)) == (
        "killed",
        False,
        pytest.approx(2 / 3),
        1,
    )
    assert (second.ending, second.score, second.steps) == ("killed", None, ())


@pytest.mark.slow
def test_trials_run_in_threads_and_inside_an_event_loop(task, tmp_path):
    async def inside():
        return run(task, STARTER, tmp_path / "loop")

    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(run, task, STARTER, tmp_path / f"thread_{place}") for place in range(2)]
        found = [one.result() for one in waiting] + [asyncio.run(inside())]
    assert [trial.score for (trial,) in found] == [pytest.approx(1 / 3)] * 3


def test_a_run_leaves_the_log_and_the_environment_of_its_process_as_they_were(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("SURPRISE=1\n")
    root = logging.getLogger()
    before = (dict(os.environ), root.level, list(root.handlers))
    run(task, STARTER, tmp_path / "run")
    assert (dict(os.environ), root.level, list(root.handlers)) == before
    assert {path.name for path in tmp_path.iterdir()} == {".env", "run", "task"}


@pytest.mark.slow
def test_an_interrupted_run_leaves_no_process_and_goes_on(task, tmp_path):
    task = tiny_task.open_again(task.env.parent, limits=Limits(steps=10, seconds=60, seconds_per_command=3))
    sleeper = "import time\nopen('once', 'w')\ntime.sleep(876.5)\n"
    agent = scripted(
        tmp_path, write(sleeper, "s.py"), ("execute_script", {"script_name": "s.py"}), write(BEST), DONE
    )
    process = subprocess.Popen([sys.executable, "-c", _code(task, agent, tmp_path / "run", "never")], cwd=ROOT)
    for _ in range(6000):
        if (tmp_path / "run" / "workspaces" / "seed_1" / "once").exists():
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) != 0
    running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path)]
    assert not any(b"s.py" in one and b"-u" in one for one in running)
    (trial,) = run(task, agent, tmp_path / "run")
    assert "took longer than 3 seconds" in trial.steps[1].observation
    assert (trial.ending, trial.score, len(trial.steps)) == ("submitted", 1.0, 4)


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.05, 0.3, 0.8, 1.5, 2.5])
def test_whenever_a_run_is_killed_it_ends_as_if_it_had_not_been(task, tmp_path, delay):
    slow = "import time\nwith open('log.txt', 'a') as log:\n    log.write('once\\n')\ntime.sleep(0.6)\n"
    steps = [write(slow, "s.py"), *[("execute_script", {"script_name": "s.py"})] * 4, write(BEST), DONE]
    agent = scripted(tmp_path, *steps)
    code = _code(task, agent, tmp_path / "run", "never")
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    started = time.monotonic()
    while not (tmp_path / "run" / "state" / "seed_1.clock").exists() and time.monotonic() - started < 60:
        time.sleep(0.01)
    time.sleep(delay)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    (trial,) = run(task, agent, tmp_path / "run")
    assert [step.action for step in trial.steps] == [action for action, _ in steps]
    assert (trial.ending, trial.score) == ("submitted", 1.0)
    with zipfile.ZipFile(tmp_path / "run" / "workspaces.zip") as archive:
        assert archive.read(f"blobs/{trial.final_files['log.txt']}") == b"once\n" * 4


@pytest.mark.slow
def test_inspects_viewer_bundles_the_log_offline(task, tmp_path):
    from inspect_ai.log import bundle_log_dir, read_eval_log

    run(task, STARTER, tmp_path / "run", seeds=(1, 2))
    log = read_eval_log(str(tmp_path / "run" / "run.eval"))
    assert (log.status, len(log.samples), log.results.total_samples) == ("success", 2, 2)
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "run.eval").write_bytes((tmp_path / "run" / "run.eval").read_bytes())
    bundle_log_dir(log_dir=str(logs), output_dir=str(tmp_path / "site"))
    assert (tmp_path / "site" / "index.html").is_file()
