"""Stored predictions give a score its interval once they are seen to be the run's."""

import os

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
    run = {"num_samples": len(frame), "metrics": metrics, "predictions": "run.parquet", **fields}
    return prediction_intervals(RunRecord.model_validate(record(**run)), [UPath(folder)])


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
    expected = intervals(tmp_path, predicted, scores(predicted))
    assert intervals(tmp_path, with_skipped, {**scores(predicted), "skipped_samples": 2}) == expected


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"num_samples": 12}, "are of 600 images, the record of 12"),
        ({"num_samples": None}, "does not say num_samples"),
        ({"skipped_samples": 2}, "skip 0 images, the record says 2"),
    ],
)
def test_predictions_of_other_images_than_the_runs_give_no_interval(tmp_path, predicted, fields, reason):
    skipped = {name: fields.pop(name) for name in ("skipped_samples",) if name in fields}
    found = intervals(tmp_path, predicted, {**scores(predicted), **skipped}, **fields)
    assert all(one["kind"] == "none" and reason in one["reason"] for one in found.values())


def test_rows_that_are_repeated_narrow_nothing(tmp_path, predicted):
    found = intervals(tmp_path, pl.concat([predicted] * 50), scores(predicted), num_samples=600)
    assert found["accuracy"]["kind"] == "none"


def test_an_image_without_a_group_stands_alone(tmp_path, predicted):
    alone = intervals(tmp_path, predicted, scores(predicted))
    groups = pl.Series([None] * 599 + ["a"], dtype=pl.String)
    found = intervals(tmp_path, predicted.with_columns(group=groups), scores(predicted))
    assert found["accuracy"] == alone["accuracy"]
    half = pl.Series([None] * 300 + [f"{n // 2}" for n in range(300)], dtype=pl.String)
    wider = intervals(tmp_path, predicted.with_columns(group=half), scores(predicted))
    assert "in 450 groups" in wider["accuracy"]["method"]


def test_classes_of_two_types_are_named(tmp_path, predicted):
    mixed = predicted.with_columns(pl.col("predicted").cast(pl.Float64))
    reason = intervals(tmp_path, mixed, scores(predicted))["f1"]["reason"]
    assert "`true` is Int64 and `predicted` is Float64" in reason


def test_a_task_with_blanks_around_it_is_the_same_task(tmp_path, predicted):
    assert set(intervals(tmp_path, predicted, scores(predicted), task=" classification ")) == {"f1", "accuracy"}


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.parquet")
    run = RunRecord.model_validate(record(predictions="pipe.parquet"))
    assert "no such file" in prediction_intervals(run, [UPath(tmp_path)])["f1"]["reason"]


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
    found = intervals(tmp_path, frame, {"f1": 0.5, "skipped_samples": 1})
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
