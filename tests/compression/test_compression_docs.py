"""Every command of docs/compression.md works as written, and what it says of entries and files is so."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from agml_assets.cli import _parser
from agml_assets.compression.codecs import METHODS
from agml_assets.registry.submissions import SHIPPED, SubmissionEntry, load_submissions

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs/compression.md").read_text()
BIN = Path(sys.executable).parent

EVALUATE = "agml-assets compression evaluate --phase digits"
JOB = "dagster job execute -m agml_assets.definitions -j "
ONE = JOB + 'compression --tags \'{"dagster/partition": "digits-pca-8"}\''
BOARD = JOB + "compression_leaderboard"
PAGE = JOB + "site_files"


def blocks(language: str) -> list[str]:
    return [body for tag, body in re.findall(r"^```(\w*)\n(.*?)^```$", DOC, re.M | re.S) if tag == language]


def rows(heading: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", DOC.partition(heading)[2].partition("\n\n")[0], re.M)


def test_no_command_is_untested():
    assert {line for block in blocks("sh") for line in block.splitlines()} == {EVALUATE, ONE, BOARD, PAGE}


def test_the_commands_on_images_are_understood():
    (shown,) = blocks("")
    for line in shown.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "agml-assets"
        assert _parser().parse_args(arguments).call


def test_the_entries_shown_are_valid_and_the_table_has_every_key(tmp_path):
    (shown,) = blocks("yaml")
    (tmp_path / "submissions.yaml").write_text(shown)
    found = load_submissions(tmp_path / "submissions.yaml")
    assert [one.key for one in found.entries] == ["mymethod-1024", "mymethod-pca-128"]
    assert set(rows("| key | what |")) == set(SubmissionEntry.model_fields) - {"display_name", "ids"}
    assert all(f"`{method}`" in DOC for method in METHODS)


@pytest.mark.slow
def test_the_commands_work_as_written_and_files_lie_where_the_table_says(tmp_path):
    shipped = yaml.safe_load(SHIPPED.read_text())["submissions"]
    few = [one for one in shipped if one["key"] in ("digits-pca-2", "digits-pca-8")]
    (tmp_path / "submissions.yaml").write_text(yaml.safe_dump({"submissions": few}))
    home = tmp_path / "dagster_home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    values = {name: value for name, value in os.environ.items() if not name.startswith(("AGML_", "DAGSTER_"))}
    env = values | {
        "PATH": f"{BIN}{os.pathsep}{values['PATH']}",
        "AGML_SUBMISSIONS": str(tmp_path / "submissions.yaml"),
        "AGML_RESULTS": str(tmp_path / "results"),
        "DAGSTER_HOME": str(home),
    }

    def shell(command: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    platform = tmp_path / "results/_platform/compression"
    shell(ONE)
    shell(BOARD)
    board = json.loads((platform / "leaderboard.json").read_text())
    assert [one["submission"] for one in board["phases"]["digits"]["standings"]] == ["digits-pca-8"]
    assert set(board["left_out"]) == {"digits-pca-2"}
    scored = (platform / "digits-pca-8/task_scores.json").stat().st_mtime_ns
    shown = shell(EVALUATE)
    assert re.search(r"digits-pca-2 +8 bytes +keeps 0\.\d+ of 4 tasks", shown)
    assert (platform / "digits-pca-8/task_scores.json").stat().st_mtime_ns == scored
    board = json.loads((platform / "leaderboard.json").read_text())
    standings = board["phases"]["digits"]["standings"]
    assert [(one["submission"], one["rank"]) for one in standings] == [("digits-pca-8", 1), ("digits-pca-2", 2)]
    for file in rows("| file below `_platform/compression/` | what |"):
        assert (platform / file.replace("<submission>", "digits-pca-8")).is_file(), file
    shell(PAGE)
    page = (tmp_path / "results/_platform/site/pages/embeddings.html").read_text()
    assert "2 submissions of fixed-size embeddings in 1 phase" in page
    assert '"digits-pca-8"' in page
