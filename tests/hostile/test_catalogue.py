"""The catalogue of difficult data names tests that exist, and leaves out none of this folder."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CATALOGUE = ROOT / "docs" / "hostile_input.md"
CITED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def names_of_tests(file: Path) -> set[str]:
    tree = ast.parse(file.read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_test_that_the_catalogue_names_exists():
    cited = CITED.findall(CATALOGUE.read_text("utf-8"))
    assert len(cited) > 80
    assert [f"{file}::{name}" for file, name in cited if name not in names_of_tests(ROOT / file)] == []


def test_every_row_says_what_happens_and_what_proves_it():
    rows = [line.strip("|").split(" | ") for line in CATALOGUE.read_text("utf-8").splitlines() if line[:1] == "|"]
    rows = [row for row in rows if len(row) > 1 and row[0].strip() != "difficulty"]
    assert len(rows) > 50
    for row in rows:
        assert len(row) == 3, row
        assert CITED.search(row[2]), row[0]


def test_every_difficulty_that_is_tested_here_stands_in_the_catalogue():
    cited = {name for _, name in CITED.findall(CATALOGUE.read_text("utf-8"))}
    own = {name: file.name for file in Path(__file__).parent.glob("test_*.py") for name in names_of_tests(file)}
    silent = {name for name, file in own.items() if name not in cited and file != "test_catalogue.py"}
    # Parts of what other rows say: helpers, speed, and the checks of checks.
    assert silent == {
        "test_alike_names_among_ten_thousand_are_found_in_seconds",
        "test_class_names_of_three_hundred_letters_and_strange_ones_arrive_unchanged",
        "test_free_memory_is_that_of_the_machine_or_of_the_job_whichever_is_less",
        "test_pictures_in_the_ui_carry_no_name",
        "test_the_check_sees_each_of_them",
    }
