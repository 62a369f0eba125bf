"""`agml-assets leaderboard`, and the guide for contributors, command by command."""

import argparse
import json
import re
from pathlib import Path

import pytest

from agml_assets.errors import UserError
from agml_assets.leaderboard.catalogue import Catalogue
from agml_assets.leaderboard.commands import add_parser
from agml_assets.leaderboard.outputs import OUTPUTS
from agml_assets.leaderboard.run_records import RECOMMENDED, Finetune, RunRecord, check_record
from agml_assets.leaderboard.staging import STAGING
from tests.leaderboard.records import scored, write

GUIDE = Path(__file__).parents[2] / "docs" / "contributing-results.md"


def command(*arguments):
    parser = argparse.ArgumentParser("agml-assets")
    add_parser(parser.add_subparsers(required=True))
    options = parser.parse_args(["leaderboard", *arguments])
    return options.call(options)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGML_PERFORMANCE", raising=False)
    return tmp_path


def test_stage_and_build_use_the_working_directory(here, capsys):
    write(here / STAGING, "beans", [scored("a", 0.5), scored("b", 0.6, prompt="x")])
    assert command("stage") == 0
    assert capsys.readouterr().out.splitlines() == [
        "beans.json: 0 existing + 2 staged = 2 total",
        "  record 2: unknown_field: kept, but read by nobody: prompt",
    ]
    (here / "performance" / "peas.json").write_text("{}")
    assert command("build") == 0
    out = capsys.readouterr().out
    for name in ("run_records", "index", "global", "board"):
        assert (here / "benchmark_results" / "_platform" / "leaderboard" / f"{name}.json").is_file()
    assert "2 records accepted, 1 of them with warnings; 1 refused." in out
    assert "refused: peas.json: it must hold a JSON array" in out
    assert "No dataset catalogue" in out


def test_all_files_are_written_or_none(here, monkeypatch):
    write(here / "performance", "beans", [scored("a", 0.5)])
    last = list(OUTPUTS)[-1]
    monkeypatch.setattr("agml_assets.leaderboard.commands.OUTPUTS", {**OUTPUTS, last: lambda source: 1 / 0})
    with pytest.raises(ZeroDivisionError):
        command("build")
    assert not list(here.glob("benchmark_results/_platform/leaderboard/*.json"))


def test_a_dry_run_prints_the_same_numbers(here, capsys):
    write(here / STAGING, "beans", [scored("a", 0.5)])
    command("stage", "--dry-run")
    planned = capsys.readouterr().out.splitlines()
    assert planned == ["beans.json: 0 existing + 1 staged = 1 total", "Dry run: nothing was written."]
    assert not (here / "performance").exists()
    command("stage")
    assert capsys.readouterr().out.splitlines() == planned[:1]


def test_other_folders_can_be_named(here, capsys, monkeypatch):
    write(here / "new", "beans", [scored("a", 0.5)])
    monkeypatch.setenv("AGML_PERFORMANCE", str(here / "site" / "performance"))
    command("stage", "--staging", "new")
    assert (here / "site" / "performance" / "beans.json").is_file()
    command("stage", "--staging", "new", "--performance", "other")
    assert (here / "other" / "beans.json").is_file()


def test_what_is_not_read_is_said(here, capsys):
    write(here / STAGING, "beans", [scored("a", 0.5)])
    for folder in (here / STAGING, here / "performance"):
        (folder / "sub").mkdir(parents=True)
        (folder / "predictions").mkdir()
        for name in ("peas.JSON", "rice.jsonl", ".hidden"):
            (folder / name).write_text("[]")
    for action in ("stage", "build"):
        command(action)
        assert "Not read, as it is not called NAME.json: peas.JSON, rice.jsonl, sub\n" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["\x1b[2Jgone", "a\nrefused: all", "\u202eabc"])
def test_no_name_in_a_record_does_anything_to_the_terminal(here, capsys, name):
    write(here / STAGING, "beans", [scored("a", 0.5, **{name: 1})])
    command("stage")
    spelled = name.encode("unicode_escape").decode()
    assert f"kept, but read by nobody: {spelled}\n" in capsys.readouterr().out
    write(here / STAGING, "beans", [scored("b", 0.5, **{name: 1}), {"model": "c"}])
    (here / "performance" / "peas.json").write_text('[{"model": "' + "x" * 9 + '"}]')
    with pytest.raises(UserError) as error:
        command("stage")
    assert len(error.value.message.splitlines()) == 2
    (here / STAGING / "beans.json").write_text(
        json.dumps([scored("b", 0.5)])[:-2] + f", {json.dumps(name)}: 1, {json.dumps(name)}: 2}}]"
    )
    with pytest.raises(UserError) as error:
        command("stage")
    assert f"twice in one object: {spelled}" in error.value.message


def test_nothing_staged_is_said(here, capsys):
    (here / STAGING).mkdir()
    command("stage")
    assert "nothing to do" in capsys.readouterr().out
    with pytest.raises(UserError, match="no folder of staged records"):
        command("stage", "--staging", "absent")


@pytest.fixture(scope="module")
def guide():
    return GUIDE.read_text(encoding="utf-8")


def test_the_guides_record_is_accepted_and_its_commands_do_what_it_says(here, guide, capsys):
    blocks = re.findall(r"```(json|sh)\n(.*?)```", guide, re.DOTALL)
    records = [json.loads(text) for kind, text in blocks if kind == "json"]
    commands = [line for kind, text in blocks if kind == "sh" for line in text.splitlines() if line]
    assert len(records) == 2
    example = records[0] | {"finetune": records[1]["finetune"], "result_type": "fine-tuned"}
    for one in (records[0], example):
        assert check_record(one, "bean_disease_uganda", 1, Catalogue()).warnings == ()
    write(here / STAGING, "bean_disease_uganda", [records[0]])
    assert [line.split()[0] for line in commands] == ["agml-assets"] * 3
    for line in commands:
        assert command(*line.split()[2:]) == 0
    printed = capsys.readouterr().out
    for promised in re.findall(r"^    (\S.*)$", guide, re.MULTILINE):
        assert promised in printed
    board = json.loads((here / "benchmark_results" / "_platform" / "leaderboard" / "board.json").read_text())
    assert [run["dataset"] for run in board["runs"]] == ["bean_disease_uganda"]


def test_the_guide_says_of_every_field_whether_it_is_needed(guide):
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (required|recommended|optional)", guide, re.MULTILINE))
    fields = [*RunRecord.model_fields, *(f"finetune.{name}" for name in Finetune.model_fields)]
    assert list(rows) == fields
    required = {name for name, field in RunRecord.model_fields.items() if field.is_required()}
    for name, need in rows.items():
        expected = "required" if name in required else "recommended" if name in RECOMMENDED else "optional"
        assert need == expected, name


def test_the_guide_names_every_warning(guide):
    source = (Path(__file__).parents[2] / "agml_assets" / "leaderboard" / "run_records.py").read_text()
    named = set(re.findall(r'RecordWarning\(\s*"(\w+)"', source))
    assert len(named) == 14
    assert named == set(re.findall(r"^\| `(\w+)` \| [A-Z]", guide, re.MULTILINE))
