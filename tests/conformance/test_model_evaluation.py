"""Three packaged models on real photographs, drawn leaves and digits: scores, ties, a filled leaderboard."""

import json
import subprocess

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.tiny import BIN, environment

MODELS = ("efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2")
DATASETS = {"rice_insects": 15, "sample": 4, "digits": 10}


@pytest.fixture(scope="module")
def evaluated(conformance_data, tmp_path_factory):
    """Results root of all nine evaluations, with the report and the leaderboard."""
    root = tmp_path_factory.mktemp("models")
    pixels, labels = load_digits(return_X_y=True)
    for number, (values, label) in enumerate(zip(pixels[:700], labels[:700], strict=True)):
        folder = root / "digits" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray((values.reshape(8, 8) * 255 / 16).astype(np.uint8)).save(folder / f"{number:04}.png")
    (root / "datasets.yaml").write_text(
        "defaults:\n  settings: {embed_model: efficientnet_lite0}\n"
        f"datasets:\n  - {{name: rice_insects, source: folder, path: {conformance_data / 'rice_insects'}}}\n"
        f"  - {{name: sample, source: sample}}\n  - {{name: digits, source: folder, path: {root / 'digits'}}}\n"
    )
    env = environment(root, root / "datasets.yaml")
    models = [word for model in MODELS for word in ("--model", model)]
    for command in (
        ["agml-assets", "evaluate", *DATASETS, *models],
        ["dagster", "job", "execute", "-m", "agml_assets.definitions", "-j", "model_report"],
        ["agml-assets", "leaderboard", "build"],
    ):
        done = subprocess.run(
            [str(BIN / command[0]), *command[1:]], env=env, cwd=root, capture_output=True, text=True, timeout=1500
        )
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return root / "results"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_models_score_far_above_chance_on_every_dataset(evaluated):
    report = json.loads((evaluated / "_platform/evaluation/report.json").read_text())
    assert report["left_out"] == {}
    for dataset, n_classes in DATASETS.items():
        standings = report["subjects"][dataset]["standings"]
        assert {one["model"] for one in standings} == set(MODELS)
        for one in standings:
            assert one["score"] > 2 / n_classes, (dataset, one)
            assert one["interval"]["low"] < one["score"] < one["interval"]["high"]
    # Models of one family and about one size: on 814 photographs none is far ahead.
    assert sum(one["tied"] for one in report["subjects"]["rice_insects"]["standings"]) >= 2
    assert [one["model"] for one in report["mean_over_datasets"] if one["missing"]] == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_leaderboard_is_filled_with_our_own_records(evaluated):
    board = json.loads((evaluated / "_platform/leaderboard/board.json").read_text())
    assert {(run["dataset"], run["model"]) for run in board["runs"]} == {
        (dataset, f"EfficientNet-Lite{number}") for dataset in DATASETS for number in range(3)
    }
    assert all(run["intervals"]["f1"]["kind"] == "sample" for run in board["runs"])
    index = json.loads((evaluated / "_platform/leaderboard/index.json").read_text())
    assert set(index) == set(DATASETS)
