"""The demo finds what was planted, and says so."""

import os
import re
import subprocess
import sys

import pytest

from agml_assets.demo import Finding, describe_findings


def test_a_kind_that_nothing_looks_for_is_not_measured_rather_than_not_found():
    text = describe_findings([Finding("flipped_label", 18, None), Finding("exact_copy", 16, 15, 2, "pairs")])
    assert "flipped_label    not measured (18 planted)" in text
    assert re.search(r"exact_copy +15 of 16 +2 pairs", text)


@pytest.mark.slow
def test_the_demo_finds_what_was_planted_with_few_false_alarms(tmp_path):
    environment = {**os.environ, "AGML_RESULTS": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    for name in ("DAGSTER_HOME", "AGML_REGISTRY", "AGML_CONFIG"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "agml_assets.demo"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    exact = re.search(r"exact_copy +(\d+) of (\d+) +(\d+) pairs", done.stdout)
    near = re.search(r"near_copy +(\d+) of (\d+) +(\d+) pairs", done.stdout)
    assert exact and near, done.stdout
    found, planted, wrong = map(int, exact.groups())
    assert planted >= 12
    assert (found, wrong) == (planted, 0)
    found, planted, wrong = map(int, near.groups())
    assert planted >= 12
    assert found >= 0.95 * planted
    assert found >= 0.9 * (found + wrong)
    flipped = re.search(r"flipped_label +(\d+) of (\d+) +(\d+) images", done.stdout)
    assert flipped, done.stdout
    found, planted, wrong = map(int, flipped.groups())
    assert planted >= 12
    assert found >= 0.8 * planted
    assert found >= 0.6 * (found + wrong)
    assert "truncated            2 of 2" in done.stdout
    assert re.search(r"overall score +\d+\.\d of 10", done.stdout)
    assert (tmp_path / "sample" / "result.json").is_file()
    assert str(tmp_path / "sample" / "result.json") in done.stdout
