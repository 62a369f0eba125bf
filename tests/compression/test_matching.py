"""Joins of embeddings and labels: against Polars, and what the report counts."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from agml_assets.compression.labels import LabelTask
from agml_assets.compression.matching import match, refuse_unsound
from agml_assets.compression.submissions import Issues, Submission
from agml_assets.errors import UserError


def submission(ids, vectors=None):
    vectors = np.arange(len(ids), dtype=np.float32)[:, None] if vectors is None else np.array(vectors, np.float32)
    return Submission("m", tuple(ids), vectors, ("0",), Issues(), Path("m.csv"))


def labels(ids, group=None):
    targets = np.arange(len(ids), dtype=np.float64)
    return LabelTask("t", "regression", tuple(ids), targets, (), ("label",), group, 0, Path("t__regr.csv"))


def test_samples_come_in_the_order_of_the_labels():
    found = match(submission("cab"), labels("abc", np.array([5, 6, 7])))
    assert found.ids == ("a", "b", "c")
    assert found.vectors.tolist() == [[1], [2], [0]]
    assert found.targets.tolist() == [0, 1, 2]
    assert found.group.tolist() == [5, 6, 7]
    assert found.coverage.sentences() == ("3 of 3 labelled samples with an embedding.",)


def test_the_join_is_that_of_polars_also_where_ids_stand_twice():
    rng = np.random.default_rng(0)
    given, wanted = [list(map(str, rng.integers(0, 30, 40))) for _ in range(2)]
    found = match(submission(given), labels(wanted))
    left = pl.DataFrame({"id": wanted}).with_row_index("label_row")
    right = pl.DataFrame({"id": given}).with_row_index("row")
    joined = left.join(right, on="id", how="inner", maintain_order="left_right")
    assert found.label_rows.tolist() == joined["label_row"].to_list()
    assert found.rows.tolist() == joined["row"].to_list()


def test_the_report_counts_missing_extra_duplicate_and_non_finite():
    ids = ["a", "b", "b", "x", "x", *"jklmno"]
    vectors = np.zeros((11, 2))
    vectors[1] = np.nan, np.inf
    vectors[2, 0] = -np.inf
    vectors[3, 0] = np.nan
    coverage = match(submission(ids, vectors), labels(["a", "b", "c", "c", *"defghi"])).coverage
    assert (coverage.labelled, coverage.matched) == (9, 2)
    assert (coverage.missing.count, coverage.missing.first) == (7, ("c", "d", "e", "f", "g"))
    assert (coverage.extra.count, coverage.extra.first) == (7, ("x", "j", "k", "l", "m"))
    assert (coverage.duplicate.count, coverage.duplicate.first) == (1, ("b",))
    assert (coverage.duplicate_labels.count, coverage.duplicate_labels.first) == (1, ("c",))
    assert (coverage.non_finite.count, coverage.non_finite_values) == (1, 3)
    assert coverage.sentences() == (
        "2 of 9 labelled samples with an embedding.",
        "7 labelled samples without an embedding: c, d, e, f, g ....",
        "7 embeddings without a label, ignored: x, j, k, l, m ....",
        "1 id more than once in the submission: b.",
        "1 id more than once among the labels: c.",
        "3 values of 1 embedding not a finite number: b.",
    )
    assert coverage.as_json()["missing"] == {"count": 7, "first": ["c", "d", "e", "f", "g"]}


def test_missing_and_extra_samples_are_counted_and_not_refused():
    assert refuse_unsound(match(submission("ax"), labels("ab"))).rows.tolist() == [0]


@pytest.mark.parametrize(
    ("given", "wanted", "vectors", "says"),
    [
        (["x"], ["a", "b"], None, r"m.csv, task 't': none of its 2 samples \(a, b\).*look like x"),
        (["a", "a"], ["a"], None, r"1 id more than once in the submission \(a\). Keep one row each"),
        (["a"], ["a", "a"], None, "1 id more than once in t__regr.csv"),
        (["a"], ["a"], [[np.nan]], r"1 value of 1 embedding missing or not a finite number \(a\)"),
        (["a"], ["a"], [[np.inf]], "not a finite number"),
    ],
)
def test_what_no_score_may_be_made_from_is_refused(given, wanted, vectors, says):
    with pytest.raises(UserError, match=says):
        refuse_unsound(match(submission(given, vectors), labels(wanted)))


def test_odd_rows_without_a_label_are_refused_by_nobody():
    refuse_unsound(match(submission(["a", "x", "x"], [[1], [np.nan], [2]]), labels("a")))
