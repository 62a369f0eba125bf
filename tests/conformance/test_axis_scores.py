"""The score of every published report, equal to what the AgML site shows."""

import json
from pathlib import Path

import pytest

from agml_assets.quality.score import round_half_up, score

N_REPORTS = 27


def load(conformance: Path, name: str):
    return json.loads((conformance / "agml_site" / name).read_text())


@pytest.mark.parametrize("source", ["axis_inputs.json", "results.json"])
def test_every_published_report_gets_the_sites_scores(conformance, source):
    reports, published = load(conformance, source), load(conformance, "axis_scores.json")
    ours = {}
    for name, report in reports.items():
        result = score(report["metrics"], report["phases_completed"])
        ours[name] = {"overall": result["overall"], **result["axes"]}
    assert len(ours) == N_REPORTS
    assert ours == published


def test_rounding_to_one_decimal_is_that_of_the_sites_javascript(conformance):
    expected = load(conformance, "js_numbers.json")["round1"]
    assert len(expected) > 10
    assert {number: round_half_up(float(number)) for number in expected} == expected
