"""Real photographs, from a registry file to the report, by Dagster's command line."""

import json

import pytest

from tests.tiny import JOB, dagster, environment


@pytest.mark.slow
@pytest.mark.timeout(2700)  # trains twice for four epochs
def test_real_photographs_go_from_source_to_score(conformance_data, tmp_path):
    registry = tmp_path / "datasets.yaml"
    registry.write_text(
        f"datasets:\n  - name: rice_insects\n    source: folder\n    path: {conformance_data / 'rice_insects'}\n"
        "    settings: {embed_model: efficientnet_lite0, backbone: efficientnet_lite0, cartography_epochs: 4, "
        "train_image_size: 96}\n"
    )
    arguments = (*JOB, "benchmark", "--tags", '{"dagster/partition": "rice_insects"}')
    done = dagster(*arguments, env=environment(tmp_path, registry), timeout=2400)
    assert done.returncode == 0, done.stderr[-3000:]
    value = json.loads((tmp_path / "results/rice_insects/result.json").read_text())
    assert value["metrics"]["exact_duplicate"]["total_images"] == 814
    assert len(value["metrics"]["class_imbalance"]["counts"]) == 15
    assert value["breaches"] == []
    # Gathered from the web: copies are expected, and all of them are near-duplicates too.
    exact, near = value["metrics"]["exact_duplicate"], value["metrics"]["near_duplicate"]
    assert 0 < exact["exact_duplicate_count"] <= near["near_duplicate_count"]
    assert value["score"]["overall"] is not None
    assert value["phases_completed"] == [1, 2, 3]
    assert value["metrics"]["class_confusability"]["accuracy"] > 3 / 15  # three times chance
    assert (tmp_path / "results/rice_insects/report/card.html").stat().st_size < 5_000_000
