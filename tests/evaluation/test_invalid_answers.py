"""Answers that are no class: they stay in the file as null, count as wrong, and are reported."""

from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import f1_score

from agml_assets.evaluation.protocol import Protocol
from agml_assets.evaluation.run_record import Timing, make_run_record
from agml_assets.evaluation.scoring import macro_averages, score_predictions
from agml_assets.registry.models import ModelEntry
from tests.evaluation.test_zero_shot import subject_of

FRAME = pl.DataFrame(
    {
        "example": list("abcdef"),
        "true": [0, 0, 1, 1, 2, 2],
        "predicted": [0, None, 1, 0, None, 2],
        "group": range(6),
    },
    schema_overrides={"predicted": pl.Int64},
)
WITHOUT_NULL = np.array([0, 9, 1, 0, 9, 2])
EXPECTED = f1_score(FRAME["true"], WITHOUT_NULL, average="macro", labels=[0, 1, 2])


def test_they_count_as_wrong_in_every_score():
    found = score_predictions("x", "m", FRAME, Protocol("zero_shot", "macro_f1"))
    assert found["score"] == pytest.approx(EXPECTED)
    assert found["others"]["accuracy"]["score"] == pytest.approx(3 / 6)
    assert macro_averages(FRAME)["f1"] == pytest.approx(EXPECTED)


def test_the_run_record_counts_them_and_says_that_they_are_wrong():
    scores = score_predictions("x", "m", FRAME, Protocol("zero_shot", "macro_f1"))
    record = make_run_record(
        subject_of(),
        ModelEntry(key="m", provider="transformers", checkpoint="a/m"),
        FRAME,
        scores,
        n_train=0,
        settings={"prompts": ["{}"]},
        training=None,
        timing=Timing(None, 0, 0.0, "cpu"),
        finished=datetime(2026, 1, 1, tzinfo=UTC),
        split="published",
    )
    assert record["metrics"]["skipped_samples"] == 2
    assert record["metrics"]["accuracy"] == 0.5
    assert "2 answers name no class; they count as wrong." in record["notes"]
