"""The sandbox as Inspect sees it, and which one is chosen."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agml_assets.agents.sandbox import choose, confinement
from agml_assets.agents.sandbox.choose import choose_sandbox
from agml_assets.errors import UserError
from agml_assets.registry.agents import Limits

environments = pytest.importorskip(
    "agml_assets.agents.sandbox.environments", reason="the extra `agents` is not there"
)

ROOT = Path(__file__).parents[3]


@pytest.fixture
def config(tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (tmp_path / "labels.csv").write_text("id\n1\n")
    if os.geteuid() == 0:
        os.chown(workspace, 200_000, 200_000)
    return environments.WorkspaceConfig(
        workspace=workspace,
        python=Path(sys.executable),
        limits=Limits(memory_mb=2048, processes=50, seconds_per_command=20),
        read_only={"data/labels.csv": tmp_path / "labels.csv"},
    )


def in_a_sample(config, solve):
    """Run a solver in the sandbox and return its sample."""
    import inspect_ai
    from inspect_ai.dataset import Sample
    from inspect_ai.solver import solver
    from inspect_ai.util import SandboxEnvironmentSpec

    @solver
    def only():
        return solve

    sample = Sample(id="one", input="x", sandbox=SandboxEnvironmentSpec("bubblewrap", config))
    folder = config.workspace.parent / "logs"
    task = inspect_ai.Task(dataset=[sample], solver=only())
    [log] = inspect_ai.eval(task, model="none", log_dir=str(folder), display="none")
    assert log.status == "success", log.error
    return log.samples[0]


def test_a_sample_of_inspect_works_in_it(config):
    from inspect_ai.util import sandbox

    async def solve(state, generate):
        box = sandbox()
        await box.write_file("made/by/us.txt", "hello\r\n")
        state.store.set("in", (await box.exec(["cat"], input="typed")).stdout)
        done = await box.exec(["bash", "-c", "cat by/us.txt && python -c 'import sklearn; print(1)'"], cwd="made")
        state.store.set("cwd", done.stdout)
        state.store.set("read", [await box.read_file("made/by/us.txt"), await box.read_file("data/labels.csv")])
        state.store.set("env", (await box.exec(["env"], env={"SEED": "3"})).stdout)
        failures = {}
        for name, call in {
            "outside": lambda: box.read_file("../labels.csv"),
            "absolute": lambda: box.write_file("/etc/passwd", "x"),
            "missing": lambda: box.read_file("nothing"),
            "slow": lambda: box.exec(["sleep", "30"], timeout=1),
        }.items():
            try:
                await call()
            except Exception as error:
                failures[name] = [kind.__name__ for kind in type(error).__mro__]
        state.store.set("failures", failures)
        return state

    store = in_a_sample(config, solve).store
    assert store["in"] == "typed"
    assert store["cwd"] == "hello\r\n1\n"
    assert store["read"] == ["hello\r\n", "id\n1\n"]
    assert "SEED=3" in store["env"]
    assert "PermissionError" in store["failures"]["outside"]
    assert "PermissionError" in store["failures"]["absolute"]
    assert "FileNotFoundError" in store["failures"]["missing"]
    assert "TimeoutError" in store["failures"]["slow"]


def test_a_command_stopped_at_a_limit_says_so_and_the_sample_goes_on(config):
    from inspect_ai.util import sandbox

    async def solve(state, generate):
        tight = environments.BubblewrapEnvironment(
            config.model_copy(update={"limits": Limits(memory_mb=128, seconds_per_command=1)})
        )
        slow = await tight.exec(["sleep", "30"])
        state.store.set("slow", (slow.success, slow.stderr))
        state.store.set("after", (await sandbox().exec(["echo", "on"])).stdout)
        return state

    store = in_a_sample(config, solve).store
    assert store["slow"][0] is False
    assert "longer than 1 s" in store["slow"][1]
    assert store["after"] == "on\n"


def test_inspects_own_commands_know_the_sandbox():
    script = "from inspect_ai.util._sandbox.registry import registry_find_sandboxenv as f; f('bubblewrap')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr[-500:]


def test_this_package_is_not_importable_in_it(config):
    from inspect_ai.util import sandbox

    async def solve(state, generate):
        state.store.set("out", (await sandbox().exec(["python", "-c", "import agml_assets"])).stderr)
        return state

    assert "ModuleNotFoundError" in in_a_sample(config, solve).store["out"]


def test_nothing_runs_without_a_sandbox_unless_told_so(monkeypatch, caplog):
    monkeypatch.setattr(choose, "docker_answers", lambda: False)
    monkeypatch.setattr(choose, "why_not", lambda: "needs bwrap: apt-get install bubblewrap")
    for asked in (None, "bubblewrap"):
        with pytest.raises(UserError, match="apt-get install bubblewrap"):
            choose_sandbox(asked)
    with caplog.at_level(logging.WARNING):
        assert choose_sandbox("none") == "none"
    assert "WITHOUT a sandbox" in caplog.text
    with pytest.raises(UserError, match="no sandbox 'chroot'"):
        choose_sandbox("chroot")


def test_docker_is_used_where_it_answers_and_bubblewrap_does_not(monkeypatch):
    monkeypatch.setattr(choose, "why_not", lambda: "no")
    monkeypatch.setattr(choose, "docker_answers", lambda: True)
    assert choose_sandbox(None) == choose_sandbox("docker") == "docker"
    with pytest.raises(UserError):
        choose_sandbox("bubblewrap")


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    confinement.why_not.cache_clear()
    try:
        assert "bwrap" in confinement.why_not()
        assert "apt-get install bubblewrap" in confinement.why_not()
    finally:
        monkeypatch.undo()
        confinement.why_not.cache_clear()
