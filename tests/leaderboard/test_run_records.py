"""A record is accepted, accepted with named warnings, or refused with file, position and reason."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agml_assets.leaderboard.catalogue import Catalogue
from agml_assets.leaderboard.record_files import RecordFile, read_record_files
from agml_assets.leaderboard.run_records import (
    AcceptedRecord,
    Refusal,
    RunRecord,
    check_files,
    check_record,
    describe_records,
)
from tests.leaderboard.records import file_of, odd_records, record, tuned

BEANS = Catalogue(({"name": "beans"}, {"name": "bean_rust"}), found=("datasets.json",))


def outcome(**fields):
    return check_record(record(**fields), "beans", 1, BEANS)


def warnings(**fields):
    return [warning.name for warning in outcome(**fields).warnings]


def without(*names):
    return {key: value for key, value in record().items() if key not in names}


def test_a_complete_record_is_accepted_without_a_word():
    assert outcome().warnings == ()
    assert check_record(tuned("clip", 0.5), "beans", 1, BEANS).warnings == ()


@pytest.mark.parametrize("name", ["model", "task", "metrics"])
def test_a_record_without_a_required_field_is_refused(name):
    assert check_record(without(name), "beans", 3, BEANS) == Refusal("beans", 3, f"'{name}' is required")


def test_optional_fields_may_be_left_out_and_recommended_ones_are_missed():
    least = {name: record()[name] for name in ("model", "task", "metrics")}
    accepted = check_record(least, "beans", 1, BEANS)
    assert [warning.name for warning in accepted.warnings] == ["recommended_field_missing"]
    assert "benchmark_id, timestamp, dataset, num_samples, device" in accepted.warnings[0].message


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"model": "  "}, "'model' must not be blank"),
        ({"model": 7}, "'model' should be a valid string (got 7)"),
        ({"num_samples": "200"}, "'num_samples' should be a valid integer (got '200')"),
        ({"num_samples": -1}, "'num_samples' should be greater than or equal to 0"),
        ({"benchmark_id": True}, "'benchmark_id' should be a valid number"),
        ({"train_pct": 170.0}, "'train_pct' should be less than or equal to 100"),
        ({"metrics": {}}, "at least one finite number"),
        ({"metrics": {"f1": "0.7", "ok": True}}, "at least one finite number"),
        ({"metrics": [0.5]}, "'metrics' should be a valid dictionary (got an array)"),
        ({"finetune": {"epochs": "ten"}}, "'finetune.epochs' should be a valid number (got 'ten')"),
        ({"optimized": 1}, "'optimized' must be 'yes' or 'no'"),
        ({"predictions": "../secret.parquet"}, "'predictions' must be one file in the folder"),
        ({"predictions": ""}, "'predictions' must be one file in the folder"),
        ({"predictions": "."}, "'predictions' must be one file in the folder"),
        ({"predictions": "clip/"}, "'predictions' must be one file in the folder"),
        ({"predictions": "*.parquet"}, "'predictions' must be one file in the folder"),
        ({"extra": [10**400]}, "beyond 1.8e308"),
        ({"\ud800x": 1}, r"half of a character is in the key '\ud800x'"),
        ({"metrics": {"f1": 0.5, "\udc00": 1}}, r"half of a character is in the key '\udc00'"),
    ],
)
def test_a_field_of_the_wrong_kind_is_refused_by_name(fields, reason):
    refused = outcome(**fields)
    assert isinstance(refused, Refusal)
    assert reason in refused.reason


def test_what_is_no_object_is_refused():
    found = check_files([RecordFile("beans", [None, [], "x", True, 5, record()])], BEANS)
    assert [(one.position, one.reason) for one in found.refused] == [
        (1, "it must be a JSON object, not null"),
        (2, "it must be a JSON object, not an array"),
        (3, "it must be a JSON object, not a text"),
        (4, "it must be a JSON object, not true or false"),
        (5, "it must be a JSON object, not a number"),
    ]
    assert [one.position for one in found.accepted] == [6]
    assert found.refused[0].where == "beans.json, record 1"


def test_a_file_that_holds_no_records_is_refused_as_a_whole():
    files = [
        RecordFile("a", None, "it is not valid JSON: x"),
        RecordFile("b", {"leaderboard": []}),
        RecordFile("c", {"model": "clip"}),
    ]
    reasons = {one.dataset: (one.position, one.reason) for one in check_files(files, BEANS).refused}
    assert reasons["a"] == (None, "it is not valid JSON: x")
    assert "ready leaderboard" in reasons["b"][1]
    assert reasons["c"] == (None, "it must hold a JSON array of run records, not an object")


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"dataset": "owner/peas"}, "other_dataset"),
        ({"timestamp": "yesterday"}, "timestamp_not_iso"),
        ({"result_type": "Fine-tuned"}, "result_type_contradicts_finetune"),
        ({"finetune": {}}, "result_type_contradicts_finetune"),
        ({"optimized": True}, "optimized_not_yes_or_no"),
        ({"task": "counting"}, "unknown_task"),
        ({"metrics": {"precision": 0.5}}, "ranked_by_first_metric"),
        ({"metrics": {"f1": 0.5, "curve": [1, 2]}}, "metric_not_a_number"),
        ({"metrics": {"f1": 71.2}}, "score_out_of_range"),
        ({"metrics": {"f1": 0.5, "skipped_samples": 201}}, "skipped_out_of_range"),
        ({"test_pct": 15.0}, "split_not_100_percent"),
        ({"prompt": "which crop?"}, "unknown_field"),
    ],
)
def test_what_is_odd_is_named(fields, name):
    assert name in warnings(**fields)


def test_an_unknown_dataset_is_named_with_the_nearest_one():
    accepted = check_record(record(dataset=None), "beens", 1, BEANS)
    unknown = next(warning for warning in accepted.warnings if warning.name == "unknown_dataset")
    assert unknown.message == "the catalogue has no dataset 'beens'. Did you mean 'beans'?"


def test_without_a_catalogue_no_dataset_is_unknown():
    assert check_record(record(), "beans", 1, Catalogue()).warnings == ()


def test_a_key_that_is_given_twice_is_named(tmp_path):
    good = json.dumps(record())
    twice = good.replace('"f1": 0.5', '"f1": 0.2, "f1": 0.9').replace(
        '"split"', '"extra": [{"a": 1, "a": 2}], "split"'
    )
    (tmp_path / "beans.json").write_text(f"[{good}, {twice}]")
    first, second = check_files(read_record_files(tmp_path), BEANS).accepted
    assert first.warnings == ()
    assert second.record.metrics["f1"] == 0.9
    assert second.warnings[-1].name == "repeated_key"
    assert second.warnings[-1].message == "given twice, of which the last counts: a, f1"


def test_unknown_fields_are_kept():
    accepted = outcome(prompt="which crop?", finetune={"optimiser": "adam"})
    assert accepted.record.model_extra == {"prompt": "which crop?"}
    assert accepted.record.finetune.model_extra == {"optimiser": "adam"}
    assert "prompt, finetune.optimiser" in accepted.warnings[-1].message


def test_whole_numbers_may_be_written_with_a_decimal_point():
    assert outcome(num_samples=200.0).record.num_samples == 200
    assert isinstance(outcome(num_samples=200.5), Refusal)


def test_the_presence_of_finetune_decides_the_variant():
    assert RunRecord.model_validate(record()).variant == "zero-shot"
    assert RunRecord.model_validate(record(finetune={})).variant == "fine-tuned"
    assert RunRecord.model_validate(record(finetune=None)).variant == "zero-shot"


def test_a_time_without_an_offset_is_utc():
    times = {
        RunRecord.model_validate(record(timestamp=f"2026-08-11T05:16:17{end}")).time()
        for end in ("", "Z", "+00:00")
    }
    assert len(times) == 1


@settings(max_examples=50, deadline=None)
@given(st.lists(odd_records, max_size=6))
def test_every_record_is_accepted_or_refused_whatever_it_is(values):
    found = check_files([file_of(*values)], BEANS)
    places = [one.position for one in (*found.accepted, *found.refused)]
    assert sorted(places) == list(range(1, len(values) + 1))
    assert all(isinstance(one, AcceptedRecord) for one in found.accepted)
    assert all(one.reason and one.dataset == "beans" for one in found.refused)
    json.dumps(describe_records(found), allow_nan=False)
