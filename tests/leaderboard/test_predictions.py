"""Stored predictions give a score its interval once they are seen to be the run's."""

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import f1_score
from upath import UPath

from agml_assets.leaderboard.predictions import prediction_intervals
from agml_assets.leaderboard.run_records import RunRecord
from tests.leaderboard.records import record


@pytest.fixture
def predicted():
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 600)
    return pl.DataFrame(
        {"true": true, "predicted": np.where(rng.random(600) < 0.8, true, rng.integers(0, 3, 600))}
    )


def intervals(folder, frame, metrics, **fields):
    folder.mkdir(exist_ok=True)
    frame.write_parquet(folder / "run.parquet")
    return prediction_intervals(
        RunRecord.model_validate(record(metrics=metrics, predictions="run.parquet", **fields)), [UPath(folder)]
    )


def scores(frame):
    return {
        "accuracy": float((frame["true"] == frame["predicted"]).mean()),
        "f1": float(f1_score(frame["true"], frame["predicted"], average="macro")),
    }


def test_accuracy_and_macro_f1_have_intervals_that_hold_them(tmp_path, predicted):
    published = scores(predicted)
    found = intervals(tmp_path, predicted, {**published, "precision": 0.8})
    assert set(found) == {"f1", "accuracy"}
    for name, interval in found.items():
        assert interval["low"] < published[name] < interval["high"]
    # Wilson's half width at 600 images.
    half = (found["accuracy"]["high"] - found["accuracy"]["low"]) / 2
    share = published["accuracy"]
    assert half == pytest.approx(1.96 * np.sqrt(share * (1 - share) / 600), rel=0.02)


def test_copies_are_no_independent_evidence(tmp_path, predicted):
    alone = intervals(tmp_path, predicted, scores(predicted))
    copied = pl.concat([predicted.with_columns(group=pl.int_range(pl.len()))] * 4)
    together = intervals(tmp_path, copied, scores(copied))
    for name in ("f1", "accuracy"):
        width, expected = (one[name]["high"] - one[name]["low"] for one in (together, alone))
        assert width == pytest.approx(expected, rel=0.1)


def test_names_of_classes_do_as_well_as_numbers(tmp_path, predicted):
    named = predicted.select(pl.all().replace_strict({0: "rust", 1: "blight", 2: "healthy"}))
    assert intervals(tmp_path, named, scores(predicted)) == intervals(tmp_path, predicted, scores(predicted))


def test_skipped_images_count_for_nothing(tmp_path, predicted):
    with_skipped = pl.concat(
        [predicted, pl.DataFrame({"true": [1, 2], "predicted": [None, None]}, predicted.schema)]
    )
    assert intervals(tmp_path, with_skipped, scores(predicted)) == intervals(
        tmp_path, predicted, scores(predicted)
    )


def test_predictions_of_another_run_give_no_interval(tmp_path, predicted):
    found = intervals(tmp_path, predicted, {"accuracy": 0.95})
    assert found["accuracy"]["kind"] == "none"
    assert "the record says 0.9500" in found["accuracy"]["reason"]


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (pl.DataFrame({"true": [1]}), "no column predicted"),
        (pl.DataFrame({"true": [1], "predicted": [None]}), "no row with a prediction"),
    ],
)
def test_a_file_that_says_nothing_is_named_with_the_reason(tmp_path, frame, reason):
    found = intervals(tmp_path, frame, {"f1": 0.5})
    assert found["f1"]["kind"] == "none"
    assert reason in found["f1"]["reason"]


def test_a_missing_or_damaged_file_is_named(tmp_path):
    (tmp_path / "bad.parquet").write_text("no parquet")
    for name in ("absent.parquet", "bad.parquet"):
        run = RunRecord.model_validate(record(predictions=name))
        assert name in prediction_intervals(run, [UPath(tmp_path)])["f1"]["reason"]


def test_without_predictions_or_for_other_tasks_there_is_no_interval(tmp_path, predicted):
    assert prediction_intervals(RunRecord.model_validate(record()), [UPath(tmp_path)]) == {}
    assert intervals(tmp_path, predicted, {"f1": 0.5}, task="detection") == {}
