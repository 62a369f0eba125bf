"""`calibrated-1` on the published reports: no panel of equals at either end, and nothing gained by leaving out."""

import json
from collections import defaultdict

import pytest

from agml_assets.quality.calibrated_score import COMPONENTS, calibrated_score
from agml_assets.quality.score import round_half_up

N_REPORTS = 27

AT_THE_END = {
    # Ten of ten because not one image was flagged.
    ("annotation", 10.0): {
        "BDHerbalPlants_variety_classification",
        "BDMediLeaves_variety_classification",
        "arabica_coffee_leaf_disease_classification",
        "bay_leaf_disease_classification",
        "bean_cowpea_leaf_disease_classification",
        "watermelon_disease_classification",
    },
    # Balanced, all images of (nearly) one size, at most 0.2 % with a copy.
    ("structural", 10.0): {"BDHerbalPlants_variety_classification", "bean_disease_uganda"},
}


@pytest.fixture(scope="module")
def reports(conformance):
    published = json.loads((conformance / "agml_site" / "results.json").read_text())
    assert len(published) == N_REPORTS
    return {name: report["metrics"] for name, report in published.items()}


def test_every_published_report_has_a_complete_score(reports):
    for metrics in reports.values():
        result = calibrated_score(metrics, honest=False)
        assert result["unavailable"] == {}
        assert 0 < result["overall"]["low"] == result["overall"]["high"] < 10


def test_published_reports_have_no_honest_figures_to_read(reports):
    for metrics in reports.values():
        published, honest = (calibrated_score(metrics, honest=flag) for flag in (False, True))
        assert published["overall"] == honest["overall"]
        assert len(honest["published_inputs"]) == 6


def test_at_most_six_datasets_share_an_end_of_an_axis_and_only_for_a_reason(reports):
    ends = defaultdict(set)
    for name, metrics in reports.items():
        for axis, value in calibrated_score(metrics, honest=False)["axes"].items():
            if round_half_up(value) in (0.0, 10.0):
                ends[axis, round_half_up(value)].add(name)
    assert max(map(len, ends.values())) <= 6
    assert dict(ends) == AT_THE_END
    clean = {name for name, metrics in reports.items() if metrics["label_noise"]["n_noisy_samples"] == 0}
    assert ends["annotation", 10.0] == clean


def test_no_two_published_datasets_tie_overall_before_rounding(reports):
    values = [calibrated_score(metrics, honest=False)["ranking_value"] for metrics in reports.values()]
    assert len(set(values)) == N_REPORTS


def test_leaving_a_metric_out_of_a_published_report_never_helps(reports):
    for metrics in reports.values():
        full = calibrated_score(metrics, honest=False)["ranking_value"]
        for gone in metrics:
            fewer = {name: value for name, value in metrics.items() if name != gone}
            assert calibrated_score(fewer, honest=False)["ranking_value"] <= full


def test_every_axis_tells_the_published_datasets_apart(reports):
    for axis in COMPONENTS:
        values = [calibrated_score(metrics, honest=False)["axes"][axis] for metrics in reports.values()]
        assert max(values) - min(values) > 4
        assert len({round_half_up(value) for value in values}) >= 14
