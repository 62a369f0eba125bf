"""The table of issues says for every image what was found, and a clean list of it holds no copies."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from agml_assets.dataset.artifacts import IMAGE_INDEX, IMAGE_STATISTICS, PIXEL_HASHES, SPLITS
from agml_assets.embeddings.artifacts import DUPLICATE_GROUPS, NEIGHBORS
from agml_assets.lineage import Verdict
from agml_assets.quality.summary import MEASURED, judge_dataset
from agml_assets.report.issues import SCHEMA, build_issues
from agml_assets.training.artifacts import GROUPED_SPLITS, NOISE_CALIBRATION, OUT_OF_FOLD_GROUPED
from agml_assets.workspace import Making, making
from tests.report.measured import N, measure, open_dataset

NEEDED = [a for a in MEASURED.values() if not a.key.startswith("quality/") and a != NOISE_CALIBRATION]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The forty images that the table needs; row 39 is a copy of row 0."""
    dataset = open_dataset(tmp_path_factory.mktemp("measured"))
    measure(dataset, *NEEDED)
    return dataset


def issues_of(dataset):
    return build_issues(dataset, judge_dataset(dataset))


def put(dataset, artifact, value):
    """Store another value of an artifact, as if it had been made from what is in the store."""
    with making(dataset, artifact) as work:
        for key in artifact.inputs:
            work.read(MEASURED[key])
        source = dataset.sidecar(artifact).source_digest if artifact.reads_source else None
        work.write(value, source_digest=source)


def clean(tmp_path, *, exact, joined, split, labels=None):
    """Return `keep` and `drop_reason` of images of which these are the groups, splits and labels."""
    n = len(exact)
    dataset = open_dataset(tmp_path)
    measure(dataset, IMAGE_INDEX, PIXEL_HASHES)
    index = dataset.read(IMAGE_INDEX).head(n).with_columns(source_row=pl.col("row") + 100)
    if labels:
        index = index.with_columns(class_name=pl.Series(labels, dtype=index.schema["class_name"]))
    put(dataset, IMAGE_INDEX, index)
    put(dataset, PIXEL_HASHES, dataset.read(PIXEL_HASHES).head(n).with_columns(blake3_group=pl.Series(exact)))
    measure(dataset, SPLITS)
    put(dataset, SPLITS, dataset.read(SPLITS).with_columns(hf=pl.Series(split, dtype=pl.String)))
    verdicts = judge_dataset(dataset)
    if joined:
        groups = pl.DataFrame({"row": range(n), "exact": exact, "near": joined, "joined": joined})
        Making(dataset, DUPLICATE_GROUPS).write(groups)
        verdicts[DUPLICATE_GROUPS.key] = Verdict("current")
    table = build_issues(dataset, verdicts)
    assert table["keep"].to_list() == table["drop_reason"].is_null().to_list()
    return table["drop_reason"].to_list()


def test_every_usable_image_has_a_row_and_every_column_is_filled(measured):
    table = issues_of(measured)
    assert table.schema == pl.Schema(SCHEMA)
    assert table["row"].to_list() == table["source_row"].to_list() == list(range(N))
    assert table["file"].to_list() == [f"{i}.png" for i in range(N)]
    optional = {"suggested_label", "drop_reason"}
    assert not any(table[name].null_count() for name in SCHEMA if name not in optional)


def test_columns_are_called_as_in_datalab():
    for name in ("is_label_issue", "label_score", "is_near_duplicate_issue", "near_duplicate_score"):
        assert name in SCHEMA
    for kind in (
        "dark",
        "light",
        "blurry",
        "low_information",
        "odd_size",
        "odd_aspect_ratio",
        "grayscale",
        "outlier",
    ):
        assert (SCHEMA[f"is_{kind}_issue"], SCHEMA[f"{kind}_score"]) == (pl.Boolean, pl.Float64)


def test_scores_lie_between_zero_and_one_and_lower_is_worse(measured):
    table = issues_of(measured)
    for name in SCHEMA:
        if name.endswith("_score"):
            assert table[name].is_between(0, 1).all(), name
    near = table.filter("is_near_duplicate_issue")
    assert near["row"].to_list() == [0, 39]
    assert (
        near["near_duplicate_score"].max()
        < table.filter(~pl.col("is_near_duplicate_issue"))["near_duplicate_score"].min()
    )


def test_the_near_duplicate_score_is_the_cosine_distance_to_the_nearest_image(measured):
    vectors = np.array(measured.read(MEASURED["embeddings/embeddings"]), dtype=np.float64)
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -1)
    expected = np.clip(1 - cosines.max(axis=1), 0, 1)
    assert issues_of(measured)["near_duplicate_score"].to_numpy() == pytest.approx(expected, abs=1e-6)


def test_splits_and_groups_are_those_of_the_store(measured):
    table = issues_of(measured)
    assert table["split"].to_list() == measured.read(SPLITS)["hf"].to_list()
    assert table["grouped_split"].to_list() == measured.read(GROUPED_SPLITS)["split"].to_list()
    assert table["joined_group"].to_list() == measured.read(DUPLICATE_GROUPS)["joined"].to_list()


def test_suspected_labels_come_from_models_that_saw_no_copy_and_stay_in_the_clean_list(tmp_path):
    dataset = open_dataset(tmp_path)
    measure(dataset, *NEEDED)
    labels = np.arange(N) % 3
    probabilities = np.where(np.arange(3) == labels[:, None], 0.9, 0.05).astype(np.float32)
    probabilities[4] = [0.03, 0.02, 0.95]
    put(dataset, OUT_OF_FOLD_GROUPED, probabilities)
    table = issues_of(dataset)
    suspect = table.filter("is_label_issue")
    assert suspect["row"].to_list() == [4]
    assert suspect.select("given_label", "suggested_label").row(0) == ("healthy", "rust")
    assert suspect["label_score"][0] == pytest.approx(0.02)
    assert suspect["keep"].all()
    assert table["suggested_label"].drop_nulls().len() == 1


def test_what_is_not_current_is_null_and_the_rest_is_there(measured):
    changed = replace(measured, settings=measured.settings.override({"near_dup_threshold": 0.9}, "a test"))
    table = issues_of(changed)
    for name in ("near_group", "joined_group", "near_duplicate_score", "is_dark_issue", "is_label_issue"):
        assert table[name].null_count() == N
    assert table.schema == pl.Schema(SCHEMA)
    assert table["exact_group"].null_count() == 0
    assert table.filter(~pl.col("keep"))["row"].to_list() == [39]


def test_health_needs_statistics_and_neighbours_alone(measured):
    verdicts = judge_dataset(measured)
    missing = Verdict("missing")
    table = build_issues(measured, {**verdicts, GROUPED_SPLITS.key: missing, OUT_OF_FOLD_GROUPED.key: missing})
    assert table["grouped_split"].null_count() == table["is_label_issue"].null_count() == N
    assert table["is_dark_issue"].null_count() == 0
    table = build_issues(measured, {**verdicts, IMAGE_STATISTICS.key: missing})
    assert (table["is_dark_issue"].null_count(), table["near_duplicate_score"].null_count()) == (N, 0)
    table = build_issues(measured, {**verdicts, NEIGHBORS.key: missing})
    assert table["dark_score"].null_count() == table["near_duplicate_score"].null_count() == N


def test_without_hashes_nobody_knows_what_to_keep(tmp_path):
    dataset = open_dataset(tmp_path)
    measure(dataset, IMAGE_INDEX)
    table = issues_of(dataset)
    assert table.height == N
    assert table["keep"].null_count() == table["drop_reason"].null_count() == N


def test_without_an_image_index_the_table_is_empty_with_all_columns(tmp_path):
    table = issues_of(open_dataset(tmp_path))
    assert table.is_empty()
    assert table.schema == pl.Schema(SCHEMA)


def test_a_dataset_of_one_image_has_a_table(tmp_path):
    assert clean(tmp_path, exact=[0], joined=[0], split=["train"]) == [None]


def test_of_exact_copies_in_one_split_the_first_stays(tmp_path):
    reasons = clean(
        tmp_path,
        exact=[0, 1, 0, 0],
        joined=[0, 1, 0, 0],
        split=["train"] * 4,
        labels=["rust", "rust", "rust", "rust"],
    )
    assert reasons == [None, None, "exact copy of source row 100", "exact copy of source row 100"]


def test_no_copy_straddles_the_splits_of_the_clean_list(tmp_path):
    # Rows 0, 1, 2 are near; 3 and 4 are near and exact.
    reasons = clean(
        tmp_path,
        exact=[0, 1, 2, 3, 3, 5],
        joined=[0, 0, 0, 3, 3, 5],
        split=["test", "train", "train", "test", "val", "test"],
        labels=["rust"] * 6,
    )
    assert reasons == [
        "copy of source row 101 in train",
        None,
        None,
        "copy of source row 104 in val",
        None,
        None,
    ]


def test_copies_with_different_labels_are_all_dropped_and_the_labels_named(tmp_path):
    reasons = clean(
        tmp_path,
        exact=[0, 0, 2],
        joined=[0, 0, 0],
        split=["train", "test", "test"],
        labels=["rust", "blight", "rust"],
    )
    # What is dropped is no copy any more: row 2 has nothing left in train.
    assert reasons == ["exact copies with different labels: blight, rust"] * 2 + [None]


def test_images_in_no_split_are_dropped_for_exact_copies_only(tmp_path):
    reasons = clean(
        tmp_path, exact=[0, 1, 1, 3], joined=[0, 0, 0, 3], split=[None, None, "val", None], labels=["rust"] * 4
    )
    assert reasons == [None, "exact copy of source row 102", None, None]


def test_without_vectors_exact_copies_alone_decide(tmp_path):
    reasons = clean(tmp_path, exact=[0, 1, 0], joined=None, split=["train", "train", "test"], labels=["rust"] * 3)
    assert reasons == [None, None, "copy of source row 100 in train"]


def test_the_clean_list_of_random_groups_has_one_of_each_exact_group_and_no_group_in_two_splits(tmp_path):
    rng = np.random.default_rng(0)
    exact = np.minimum.reduce([np.arange(N), rng.integers(0, N, N)])
    exact = exact[exact][exact][exact]
    joined = np.minimum(exact, exact // 4 * 4)
    joined = np.array([joined[exact == e].min() for e in exact])
    split = rng.choice(["train", "val", "test"], N).tolist()
    reasons = clean(tmp_path, exact=exact.tolist(), joined=joined.tolist(), split=split, labels=["rust"] * N)
    kept = np.array([reason is None for reason in reasons])
    assert len(np.unique(exact[kept])) == kept.sum()
    assert set(joined[kept]) == set(joined)
    for group in set(joined):
        assert len({split[row] for row in np.flatnonzero(kept & (joined == group))}) == 1


def test_the_table_is_the_same_every_time(measured):
    assert issues_of(measured).equals(issues_of(measured))
