"""One model on one dataset, end to end, with real weights: features, predictions, scores, run record, report."""

import json

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import f1_score, precision_score

import agml_assets
from agml_assets.embeddings.embedder import ImageEmbedder
from agml_assets.errors import UserError
from agml_assets.evaluation.open import open_evaluation
from agml_assets.evaluation.report import write_report
from agml_assets.evaluation.stored import FILES
from agml_assets.leaderboard.catalogue import Catalogue
from agml_assets.leaderboard.outputs import board_text, read_source
from agml_assets.leaderboard.run_records import AcceptedRecord, check_record
from tests.tiny import open_workspace

MODEL = "efficientnet_lite0"


@pytest.fixture(scope="module")
def evaluated(finished, tmp_path_factory):
    """Folder with a finished benchmark and an evaluation of it; not to be changed."""
    import shutil

    root = tmp_path_factory.mktemp("evaluated") / "copy"
    shutil.copytree(finished, root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGML_REGISTRY", str(root / "datasets.yaml"))
        agml_assets.evaluate("tiny", MODEL, results=root / "results")
    return root


def stored(root, step):
    path = root / "results/tiny/evaluation" / MODEL / FILES[step]
    return {".npy": np.load, ".parquet": pl.read_parquet, ".json": lambda p: json.loads(p.read_text())}[
        path.suffix
    ](path)


def test_features_are_the_models_own_of_every_image(evaluated):
    pixels = np.load(evaluated / "results/tiny/dataset/pixels.npy")
    unit = ImageEmbedder(MODEL).encode_pixels(pixels)
    features = stored(evaluated, "features")
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    assert lengths.std() > 0
    np.testing.assert_allclose(features / lengths, unit, atol=1e-5)


def test_every_test_example_is_predicted_and_scored_as_by_scikit_learn(evaluated):
    splits = pl.read_parquet(evaluated / "results/tiny/training/grouped_splits.parquet")
    predictions, scores = stored(evaluated, "predictions"), stored(evaluated, "scores")
    assert len(predictions) == scores["n_test"] == (splits["split"] == "test").sum() > 0
    assert scores["n_train"] == (splits["split"] == "train").sum()
    labels = predictions["true"].unique().to_list()
    expected = f1_score(predictions["true"], predictions["predicted"], average="macro", labels=labels)
    assert scores["metric"] == "macro_f1"
    assert scores["score"] == pytest.approx(expected)
    assert scores["others"]["accuracy"]["score"] == pytest.approx(
        (predictions["true"] == predictions["predicted"]).mean()
    )
    np.testing.assert_allclose(predictions["probabilities"].list.sum(), 1, atol=1e-5)


def test_the_run_record_is_accepted_and_says_what_was_done(evaluated):
    record, predictions = stored(evaluated, "run_record"), stored(evaluated, "predictions")
    outcome = check_record(record, "tiny", 1, Catalogue())
    assert isinstance(outcome, AcceptedRecord), outcome
    # Which sweep of a site an evaluation belongs to is not ours to say.
    assert [one.message for one in outcome.warnings] == ["not given: benchmark_id"]
    labels = predictions["true"].unique().to_list()
    assert record["metrics"]["precision"] == pytest.approx(
        precision_score(
            predictions["true"], predictions["predicted"], average="macro", labels=labels, zero_division=0
        ),
        abs=1e-6,
    )
    assert record["num_samples"] == len(predictions)
    assert record["finetune"]["train_samples"] == stored(evaluated, "scores")["n_train"]
    assert record["inference_time_seconds_per_image"] > 0


def test_the_leaderboard_takes_up_our_own_record_and_its_predictions(evaluated, tmp_path):
    workspace = open_workspace(evaluated)
    source = read_source(tmp_path / "nowhere", workspace.store)
    [run] = json.loads(board_text(source))["runs"]
    assert run["dataset"] == "tiny" and run["variant"] == "fine-tuned"
    # Its predictions are seen to be those of the run; only the images are too few.
    assert run["intervals"]["f1"]["reason"] == "3 independent groups; at least 20 are needed."


def test_a_second_probe_never_loads_the_model(evaluated, tmp_path, monkeypatch):
    evaluation = open_evaluation(open_workspace(evaluated), "tiny", MODEL, probe="ridge")
    assert evaluation.is_current("features")
    assert not evaluation.is_current("predictions")
    import shutil

    root = tmp_path / "copy"
    shutil.copytree(evaluated, root)
    monkeypatch.setenv("AGML_REGISTRY", str(root / "datasets.yaml"))
    monkeypatch.setattr("agml_assets.embeddings.encoder.FrozenEncoder._load", refuse)
    before = (root / "results/tiny/evaluation" / MODEL / "features.npy").stat().st_mtime_ns
    scores = agml_assets.evaluate("tiny", MODEL, probe="ridge", results=root / "results")
    assert scores["probe"]["estimator"] == "RidgeProbe"
    assert (root / "results/tiny/evaluation" / MODEL / "features.npy").stat().st_mtime_ns == before
    # Made again from the cache, the model is not loaded either.
    agml_assets.evaluate("tiny", MODEL, results=root / "results", force=True)


def refuse(self):
    raise AssertionError("the model is loaded")


def test_what_is_current_is_not_made_again(evaluated, monkeypatch):
    monkeypatch.setenv("AGML_REGISTRY", str(evaluated / "datasets.yaml"))
    files = [evaluated / "results/tiny/evaluation" / MODEL / file for file in FILES.values()]
    before = [file.stat().st_mtime_ns for file in files]
    agml_assets.evaluate("tiny", MODEL, results=evaluated / "results")
    assert [file.stat().st_mtime_ns for file in files] == before


def test_unknown_names_are_told_with_the_nearest(evaluated):
    workspace = open_workspace(evaluated)
    with pytest.raises(UserError, match="tiny"):
        open_evaluation(workspace, "tinny", MODEL)
    with pytest.raises(UserError, match="efficientnet_lite0"):
        open_evaluation(workspace, "tiny", "efficientnet_lite")
    with pytest.raises(UserError, match="Make it first"):
        open_evaluation(workspace, "tiny", "efficientnet_lite1").read("scores")


def test_the_report_compares_what_is_stored(evaluated):
    workspace = open_workspace(evaluated)
    written = write_report(workspace)
    found = written.report["subjects"]["tiny"]
    assert [one["model"] for one in found["standings"]] == [MODEL]
    assert found["standings"][0]["score"] == stored(evaluated, "scores")["score"]
    assert written.report["mean_over_datasets"][0]["tasks"] == ("tiny",)
    assert json.loads(written.path.read_text())["subjects"].keys() == {"tiny"}
