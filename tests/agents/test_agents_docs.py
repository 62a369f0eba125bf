"""Every command of docs/agents.md works as written, and what it says of entries and files is so."""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from agml_assets.agents_by_options import DROPPED
from agml_assets.cli import _parser
from agml_assets.registry.agents import AgentEntry, AgentTaskEntry, load_agents

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs/agents.md").read_text()
RUNNING = (ROOT / "docs/agents_running.md").read_text()
TASKS = (ROOT / "docs/agents_tasks.md").read_text()
BIN = Path(sys.executable).parent

COMMANDS = (
    "agml-assets agents list",
    "agml-assets agents prepare digits",
    "agml-assets agents run --task digits --agent starter",
    "agml-assets agents run --task digits --agent scripted",
    "agml-assets agents evaluate",
    "agml-assets agents plot",
)
JOB = "dagster job execute -m agml_assets.definitions -j "
TAGS = {"": "majority|digits", "/agent": "majority", "/task": "digits"}
JOBS = (
    f"{JOB}agents --tags '{json.dumps({f'dagster/partition{end}': value for end, value in TAGS.items()})}'",
    f"{JOB}agents_leaderboard",
    f"{JOB}site_files",
)


def blocks(text: str, language: str) -> list[str]:
    return [body for tag, body in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S) if tag == language]


def rows(text: str, heading: str) -> list[str]:
    return re.findall(r"^\| `([^|]+)` \|", text.partition(heading)[2].partition("\n\n")[0], re.M)


def _run_parser() -> argparse.ArgumentParser:
    """Return the parser of `agml-assets agents run`."""
    parser = _parser()
    for name in ("agents", "run"):
        (parser,) = (action.choices[name] for action in parser._actions if isinstance(action.choices, dict))
    return parser


def test_no_command_is_untested():
    assert [line for block in blocks(DOC, "sh") for line in block.splitlines()] == [*COMMANDS, *JOBS]


def test_the_other_commands_are_understood():
    shown = [line for block in blocks(DOC, "") for line in block.splitlines() if line.startswith("agml-assets")]
    assert len(shown) == 7
    for line in shown:
        assert _parser().parse_args(shlex.split(line)[1:]).call


def test_every_option_of_the_old_runner_is_in_the_table_and_those_that_are_no_more_are_told_of():
    listed = set(rows(RUNNING, "| option | here |"))
    assert len(listed) == 24
    known = {option for action in _run_parser()._actions for option in action.option_strings}
    assert listed <= known
    assert set(DROPPED) <= listed
    assert not set(DROPPED) & set(re.findall(r"--[\w-]+", _run_parser().format_help()))


def test_the_entries_shown_are_valid_and_the_tables_have_every_key(tmp_path):
    (shown,) = blocks(DOC, "yaml")
    (tmp_path / "agents.yaml").write_text(shown)
    assert [one.key for one in load_agents(tmp_path / "agents.yaml").agents] == [
        "starter",
        "react-local",
        "research-claude",
    ]
    assert set(rows(DOC, "| key | what |")) == set(AgentEntry.model_fields) - {"display_name"}
    kinds = set(AgentEntry.model_fields["kind"].annotation.__args__)
    assert set(rows(DOC, "| kind | what it does |")) == kinds
    fields = {name for row in rows(TASKS, "| field | meaning |") for name in re.findall(r"[\w.]+", row)}
    assert {name.partition(".")[0] for name in fields} == set(AgentTaskEntry.model_fields)


def test_every_task_of_the_old_benchmark_is_in_the_table():
    listed = {name for row in rows(TASKS, "| key | score |") for name in re.findall(r"[\w-]+", row)}
    registered = {one.key for one in load_agents().tasks if one.folder is not None}
    assert listed == registered
    assert len(registered) == 15


@pytest.mark.slow
def test_the_commands_work_as_written_and_files_lie_where_the_table_says(tmp_path):
    home = tmp_path / "dagster_home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    values = {name: value for name, value in os.environ.items() if not name.startswith(("AGML_", "DAGSTER_"))}
    env = values | {
        "PATH": f"{BIN}{os.pathsep}{values['PATH']}",
        "AGML_RESULTS": str(tmp_path / "results"),
        "DAGSTER_HOME": str(home),
    }
    said = {}
    for command in (*COMMANDS, *JOBS):
        done = subprocess.run(
            ["bash", "-ec", command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr[-3000:]
        said[command] = done.stdout
    assert re.search(r"digits +scripted +1 of 1 \(3 alike\) +\+1\d\.\d%", said[COMMANDS[4]])
    assert len(list((tmp_path / "plots").glob("*.pdf"))) == 10
    platform = tmp_path / "results/_platform/agents"
    for file in rows(DOC, "| file below `_platform/agents/` | what |"):
        place = platform / file.replace("<task>", "digits").replace("<agent>", "majority")
        assert place.exists(), file
    board = json.loads((platform / "leaderboard.json").read_text())
    assert {cell["agent"] for cell in board["cells"]} == {"starter", "scripted", "majority"}
    pages = tmp_path / "results/_platform/site/pages"
    assert "Scripted improvement" in (pages / "agents.html").read_text()
    assert "DecisionTree" in (pages / "trials_digits.scripted.html").read_text()
