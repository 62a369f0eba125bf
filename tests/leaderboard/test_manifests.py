"""The manifests where the published records are silent: fine-tuned runs, ties, odd records, ready boards."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agml_assets.leaderboard.catalogue import Catalogue
from agml_assets.leaderboard.javascript import dump_json
from agml_assets.leaderboard.manifests import build_global, build_index
from agml_assets.leaderboard.record_files import RecordFile, read_record_files
from agml_assets.leaderboard.site_rows import dataset_table
from tests.leaderboard.records import file_of, odd_records, record, scored, tuned, write

NONE = Catalogue()


def entries(*records):
    return build_global([file_of(*records)], NONE)


def test_keys_are_those_of_the_site_in_its_order():
    assert list(entries(record())[0]) == [
        "model", "dataset", "percentiles", "scores", "crop_types", "machine_learning_task", "benchmarkId",
        "variant", "optimized", "platform", "splitBreakdown", "datasetConfig", "notes",
    ]  # fmt: skip


def test_the_best_run_of_each_model_and_variant_stands_best_first():
    found = entries(scored("a", 0.3), scored("a", 0.6), tuned("a", 0.5), tuned("a", 0.9), scored(" b ", 0.7))
    assert [(one["model"], one["variant"], one["scores"]["f1"]) for one in found] == [
        ("a", "fine-tuned", 0.9),
        ("b", "zero-shot", 0.7),
        ("a", "zero-shot", 0.6),
    ]


def test_of_equal_runs_the_first_counts_and_equal_models_have_different_percentiles():
    found = entries(scored("a", 0.5, device="one"), scored("b", 0.5), scored("a", 0.5, device="two"))
    assert [(one["model"], one["platform"], one["percentiles"]["f1"]) for one in found] == [
        ("a", "one", 100),
        ("b", "cuda", 0),
    ]


def test_a_single_model_has_percentile_100_and_a_missing_score_none():
    assert entries(scored("a", 0.0))[0]["percentiles"] == {
        "f1": 100,
        "map": None,
        "precision": None,
        "recall": None,
    }


@pytest.mark.parametrize(
    ("task", "metrics", "score"),
    [
        ("classification", {"accuracy": 0.9, "f1": 0.1}, 0.1),
        ("classification", {"top1_accuracy": 0.2, "accuracy": "0.9"}, 0.2),
        ("detection", {"f1_at_iou50": 0.9, "map50": 0.4, "map": None}, 0.4),
        ("segmentation", {"mean_iou": 0.3, "iou": 0.2}, 0.2),
        ("segmentation", {"dice": 0.8, "loss": 3}, 0.8),
        ("constructor", {"x": 1, "10": 2, "2": 3}, 3),
        ("classification", [None, 0.7], 0.7),
    ],
)
def test_the_primary_metric_is_the_tasks_first_number_or_the_first_at_all(task, metrics, score):
    better = {"model": "z", "task": "classification", "metrics": {"f1": score + 1e-9}}
    worse = {"model": "y", "task": "classification", "metrics": {"f1": score - 1e-9}}
    found = entries(worse, {"model": "x", "task": task, "metrics": metrics}, better)
    assert [one["model"] for one in found] == ["z", "x", "y"]


def test_a_run_is_fine_tuned_where_finetune_is_an_object():
    variants = [
        entries(record(finetune=value))[0]["variant"] for value in ({}, {"epochs": 1}, None, [], "yes", True)
    ]
    assert variants == ["fine-tuned", "fine-tuned", "zero-shot", "zero-shot", "zero-shot", "zero-shot"]


def test_notes_say_how_a_fine_tuned_run_was_trained():
    finetune = {
        "train_samples": 2000,
        "val_samples": 300.0,
        "epochs": 10,
        "lr": 0.00001,
        "weight_decay": 1e-7,
        "split_seed": 42,
        "train_ratio": 0.80,
    }
    (found,) = entries(record(finetune=finetune, num_samples=None, notes=" by hand "))
    assert found["notes"] == (
        "Fine-tuned · trained on 2000 images from this dataset · validated on 300 images · 10 epochs · "
        "lr=0.00001 · weight decay=1e-7 · seed=42 · train ratio=0.8\n\nby hand"
    )
    assert found["splitBreakdown"] == "87/-/13"


def test_shares_are_rounded_with_halves_up():
    (found,) = entries(record(num_samples=975, finetune={"train_samples": 25}))
    assert found["splitBreakdown"] == "3/98/-"


def test_no_images_no_split():
    (found,) = entries(record(num_samples=0))
    assert found["splitBreakdown"] is None
    assert found["notes"] == "Zero-shot · evaluated on 0 images"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("yes", True),
        ("\ufeffyes\u2028", True),
        ("yes\x1f", False),
        (" YES ", True),
        ("no", False),
        ("true", False),
        (True, True),
        (0, False),
        ([], True),
        (None, False),
    ],
)
def test_optimised_is_yes_or_what_is_true(value, expected):
    assert entries(record(optimized=value))[0]["optimized"] is expected
    assert entries(record(optimized="no", finetune={"optimized": value}))[0]["optimized"] is expected


def test_what_the_generator_leaves_out_is_left_out():
    left_out = [
        None,
        5,
        [],
        {"metrics": {"f1": 1}},
        {"model": " ", "metrics": {"f1": 1}},
        {"model": 3, "metrics": {"f1": 1}},
        {"model": "a"},
        {"model": "a", "metrics": None},
        {"model": "a", "metrics": {"f1": "1"}},
        {"model": "a", "metrics": {"": 1}},
    ]
    assert entries(*left_out) == []


def test_a_dataset_without_rows_stands_in_the_index():
    files = [file_of(), RecordFile("odd", {"a": 1}), RecordFile("bad", None, "it is not valid JSON")]
    assert build_index(files) == ["beans", "odd"]
    assert build_global(files, NONE) == []


def test_facts_come_from_the_catalogue_as_they_stand_there():
    known = Catalogue(
        ({"name": "beans", "crop_types": [" Bean "], "machine_learning_task": " image_classification "},)
    )
    (found,) = build_global([file_of(record())], known)
    assert (found["crop_types"], found["machine_learning_task"]) == ([" bean "], " image_classification ")


def test_a_ready_board_is_taken_over_in_rank_order():
    ready = [
        {"model": "second", "rank": 2, "categoryScores": {"f1": 0.1, "x": 1}, "variant": "zero-shot"},
        {"model": " first ", "rank": 1, "optimized": "no", "platform": " cpu ", "benchmarkId": "b"},
        {"model": ""},
        "text",
    ]
    first, second = build_global([RecordFile("beans", {"leaderboard": ready})], NONE)
    assert (first["model"], first["optimized"], first["platform"], first["benchmarkId"]) == (
        "first",
        False,
        "cpu",
        "b",
    )
    assert "scores" not in first
    assert first["variant"] is None
    assert second["scores"] == {"f1": 0.1, "x": 1}
    assert second["percentiles"]["f1"] == 100


def test_a_ready_board_without_ranks_is_ordered_by_score():
    ready = {"leaderboard": [{"model": "low", "score": 0.1}, {"model": "high", "score": 0.9}]}
    assert [one["model"] for one in build_global([RecordFile("beans", ready)], NONE)] == ["high", "low"]


def test_the_page_takes_other_names_for_the_fields_of_a_ready_board():
    ready = {
        "metric": " f1 ",
        "leaderboard": [{"name": "b", "value": "0.5"}, {"model_name": "a", "metric_value": 0.7}],
    }
    table = dataset_table(ready)
    assert table["metric"] == "f1"
    assert [(one["model"], one["score"], one["datasetConfig"]) for one in table["entries"]] == [
        ("a", 0.7, "raw"),
        ("b", 0.5, "raw"),
    ]


def test_the_page_takes_no_list_for_metrics_and_the_generator_does():
    odd = {"model": "a", "metrics": [0.5]}
    assert dataset_table([odd]) == {"metric": None, "entries": []}
    assert len(entries(odd)) == 1


def test_times_are_per_image():
    finetune = {"train_samples": 400, "training_time_seconds": 800}
    (entry,) = dataset_table([record(finetune=finetune)])["entries"]
    assert (entry["trainTimePerImage"], entry["infTimePerImage"]) == (2, 0.1)
    assert entry["trainPercentage"] == pytest.approx(100 * 400 / 600)


def test_reading_changes_no_file(tmp_path):
    write(tmp_path, "beans", [record()])
    write(tmp_path, "index", ["old"])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    files = read_record_files(tmp_path)
    build_global(files, NONE)
    assert [file.dataset for file in files] == ["beans"]
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_datasets_are_in_the_order_of_code_units(tmp_path):
    for name in ("b", "_", "B", "a_1", "a1"):
        write(tmp_path, name, [])
    assert build_index(read_record_files(tmp_path)) == ["B", "_", "a1", "a_1", "b"]


@settings(max_examples=50, deadline=None)
@given(st.lists(odd_records, max_size=8))
def test_no_record_crashes_the_generator_or_the_page(values):
    written = dump_json(build_global([file_of(*values)], NONE))
    assert json.loads(written) is not None
    assert not written.endswith("\n")
    dump_json(dataset_table(values))


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(max_size=3), odd_records, max_size=3), st.lists(odd_records, max_size=4))
def test_no_ready_board_crashes_the_generator_or_the_page(extra, board):
    document = {**extra, "leaderboard": board}
    dump_json(build_global([RecordFile("beans", document)], NONE))
    dump_json(dataset_table(document))
