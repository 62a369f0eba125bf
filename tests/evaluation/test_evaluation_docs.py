"""Every command of docs/evaluation.md works as written, on the tiny dataset and a miniature of a task."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from agml_assets.cli import _parser
from agml_assets.registry.models import load_models
from tests.evaluation.tasks.conftest import Folder
from tests.evaluation.tasks.test_table_tasks import coco
from tests.test_readme import shell
from tests.tiny import BIN, environment

PAGE = (Path(__file__).parents[2] / "docs/evaluation.md").read_text()
SHELL = "\n".join(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)).splitlines()
ONE, TWO, TASK_DATA, TASK, PAIR, REPORT, BOARD, PAGES, PUBLISHED = filter(None, SHELL)
FILES = re.findall(r"^\| `((?:<dataset>|_platform)/[^`]*)`", PAGE, re.M)


def on_tiny(command):
    return command.replace("sample", "tiny").replace("--n-train 40", "--n-train 12")  # of its 17


@pytest.fixture(scope="module")
def place(finished, tmp_path_factory):
    """A copy of the finished benchmark, and the environment in which the page is read."""
    import os
    import shutil

    root = tmp_path_factory.mktemp("documented") / "copy"
    shutil.copytree(finished, root)
    env = environment(root, root / "datasets.yaml")
    return root, env | {"PATH": f"{BIN}{os.pathsep}{env['PATH']}"}


def run(place, command):
    done = shell(on_tiny(command), *place)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_commands_are_those_that_are_tested():
    words = [shlex.split(command) for command in (ONE, TWO, TASK, PAIR, REPORT, BOARD, PAGES)]
    assert [one[1] for one in words] == [*["evaluate"] * 3, *["job"] * 4]
    # Those without a probe need a model of the hub, or an hour: here only their form is tried.
    others = re.findall(r"^agml-assets evaluate .* --probe (?:zero_shot|fine_tune)$", PAGE, re.M)
    assert len(others) == 2
    for command in others:
        options = _parser().parse_args(shlex.split(command)[1:])
        assert load_models().find(options.model[0])
    assert TASK_DATA.startswith("export AGML_TASK_DATA=")
    assert PUBLISHED.startswith("export AGML_BIOBENCH_RESULTS=")


@pytest.mark.slow
def test_from_nothing_to_a_score_on_the_board_and_on_the_pages(place):
    root, _ = place
    assert re.fullmatch(
        r"tiny  efficientnet_lite0  macro_f1  [01]\.\d{3}( \(95 % interval [\d.]+ to [\d.]+\))?",
        run(place, ONE).strip(),
    )
    rows = run(place, TWO).splitlines()
    assert [row.split()[:2] for row in rows] == [["tiny", f"efficientnet_lite{n}"] for n in (0, 1)]
    for command in (PAIR, REPORT, BOARD, PAGES):
        run(place, command)
    for file in FILES:
        name = file.replace("<dataset>", "tiny").replace("<model>", "efficientnet_lite0")
        place = root / "results" / name
        assert place.is_file() or any(place.glob("*.svg")), name
    board = json.loads((root / "results/_platform/leaderboard/board.json").read_text())
    assert "EfficientNet-Lite0" in [one["model"] for one in board["runs"]]
    # The job judges by the settings, the command before by options of its own: they are not compared.
    report = json.loads((root / "results/_platform/evaluation/report.json").read_text())
    assert list(report["left_out"]) in (["tiny: efficientnet_lite0"], ["tiny: efficientnet_lite1"])
    page = (root / "results/_platform/site/pages/models.html").read_text()
    assert "1 model evaluated here, on 1 task or dataset." in page


def test_python_returns_what_is_stored(place):
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    done = shell(f"{shlex.quote(sys.executable)} -c {shlex.quote(on_tiny(code))}", *place)
    assert done.stdout.startswith("macro_f1 "), done.stderr


def test_a_task_needs_its_data_and_nothing_else(tmp_path):
    import os

    folder = Folder(tmp_path / "tasks" / "beluga")
    names = [f"{i:012d}.jpg" for i in range(1, 13)]
    folder.picture(*(f"beluga.coco/images/train2022/{name}" for name in names))
    whales = [(i, f"whale {i % 3}") for i in range(1, 13)]
    coco(folder, list(enumerate(names, 1)), whales)
    env = environment(tmp_path, tmp_path / "datasets.yaml")
    env["PATH"] = f"{BIN}{os.pathsep}{env['PATH']}"
    (tmp_path / "datasets.yaml").write_text("datasets: []\n")
    done = shell(f"{TASK_DATA.replace('/data', str(tmp_path))}\n{TASK}", tmp_path, env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("beluga  efficientnet_lite0  macro_f1  ")
    assert (tmp_path / "results/beluga/evaluation/efficientnet_lite0/scores.json").is_file()


def test_options_and_settings_are_those_of_the_table():
    done = subprocess.run([str(BIN / "agml-assets"), "evaluate", "--help"], capture_output=True, text=True)
    table = PAGE.partition("| option |")[2].partition("\n\n")[0]
    for option in re.findall(r"`(--[\w-]+)`", table):
        assert option in done.stdout
    from agml_assets.settings import Settings

    for setting, default in re.findall(r"\| `(evaluation_\w+)` \| `?(\w+)`? \|", table):
        value = getattr(Settings(), setting)
        assert default == ("all" if value is None else str(value))
