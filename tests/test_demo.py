"""The demo finds what was planted, and says so."""

import os
import re
import subprocess
import sys

import polars as pl
import pytest

from agml_assets.dataset.sample import manifest
from agml_assets.demo import Finding, describe_findings
from tests.report.test_card import Page


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
    found, planted_labels, wrong = map(int, flipped.groups())
    assert planted_labels >= 12
    assert found >= 0.8 * planted_labels
    assert found >= 0.6 * (found + wrong)
    assert "truncated            2 of 2" in done.stdout
    assert re.search(r"overall score +\d+\.\d of 10", done.stdout)
    assert (tmp_path / "sample" / "result.json").is_file()
    assert str(tmp_path / "sample" / "result.json") in done.stdout
    text = Page((tmp_path / "sample" / "report" / "card.html").read_text("utf-8")).text
    for planted in (
        "32 images (11 % of 298) share their pixels with another",
        "72 images (24 % of 298) look nearly the same as another",
        "16 images in 8 groups of copies carry different labels",
        "2 images cannot be used: unreadable or without label",
        "P 3, RGBA 3, I;16 3, CMYK 3",
        "2 images turned by EXIF, 3 images with transparent pixels",  # the third one is upside down
    ):
        assert planted in text
    assert re.search(r"\d+ labels look wrong", text)
    index = pl.read_parquet(tmp_path / "sample" / "dataset" / "image_index.parquet")
    files = [index["file"][fault.source_row] for fault in manifest() if fault.kind == "flipped_label"]
    suspects = text[text.index("look wrong to a model") : text.index("Suspicious labels by the label given")]
    assert sum(file in suspects for file in files) >= 0.8 * planted_labels
