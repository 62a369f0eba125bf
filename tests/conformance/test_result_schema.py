"""Our report has the keys of the published ones, in their order, before keys of our own."""

import json

import pytest

from agml_assets.quality.summary import judge_dataset
from agml_assets.report.result import build_config_used, build_result
from tests.report.measured import open_dataset

OURS = {"image_health", "leakage"}
"""Metrics that AgML's reports do not have."""


@pytest.fixture(scope="module")
def published(conformance):
    reports = list(json.loads((conformance / "agml_site" / "results.json").read_text()).values())
    assert len(reports) == 27
    return reports


@pytest.fixture(scope="module")
def result(measured):
    return build_result(measured, judge_dataset(measured))


def test_published_keys_lead_at_the_top_and_in_reproducibility(published, result):
    for report in published:
        assert list(result)[: len(report)] == list(report)
        theirs = report["reproducibility"]
        assert list(result["reproducibility"])[: len(theirs)] == list(theirs)
        for key, value in theirs.items():
            assert type(result["reproducibility"][key]) is type(value), key


def test_defaults_are_those_of_the_published_reports(published, result):
    for report in published:
        theirs = report["reproducibility"]
        assert {key: result["reproducibility"][key] for key in theirs} == theirs


def test_metrics_come_in_the_published_order(published, result):
    for report in published:
        theirs = list(report["metrics"])
        assert list(result["metrics"])[: len(theirs)] == theirs


def test_published_keys_lead_in_every_metric(published, result):
    compared = set()
    for report in published:
        for name, theirs in report["metrics"].items():
            if theirs.get("skipped"):
                continue
            assert list(result["metrics"][name])[: len(theirs)] == list(theirs), name
            compared.add(name)
    assert compared == set(result["metrics"]) - OURS


def test_config_used_leads_with_the_published_settings(tmp_path):
    config = build_config_used(open_dataset(tmp_path), judge_dataset(open_dataset(tmp_path)))
    # Keys of the existing pipeline's config.json, in its order.
    assert list(config)[:13] == [
        "split_seed",
        "train_ratio",
        "val_ratio",
        "output_dir",
        "embed_model",
        "embed_batch_size",
        "near_dup_threshold",
        "faiss_ivf_threshold",
        "max_silhouette_samples",
        "backbone",
        "cartography_epochs",
        "cartography_lr",
        "cv_folds",
    ]
