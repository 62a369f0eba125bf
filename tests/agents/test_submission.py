"""Submissions as agents write them: good ones are read in any order, bad and hostile ones named and never run."""

import io
import json
import os
import pickle
import zipfile

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agml_assets.agents.scoring import judge
from agml_assets.agents.submission import InvalidSubmission, read_submission, validate
from tests.agents.invented_tasks import IDS, invent_task

GOOD = "id,label\nb,1\na,0\nd,2\nc,0\n"
NUMBERS = {"submission": {"id_column": None, "columns": {"x": "number"}}, "metric": "mean_absolute_error"}


@pytest.fixture
def task(tmp_path):
    return invent_task(tmp_path)


def problems_of(task, content, name="submission.csv"):
    workspace = task.env.parent / "workspace"
    (workspace / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    found = validate(task, workspace)
    assert (judge(task, workspace).score is None) == bool(found)
    return " ".join(found)


def test_rows_are_put_in_the_order_of_the_answers(task):
    assert problems_of(task, GOOD) == ""
    assert read_submission(task, task.env.parent / "workspace")["label"].to_list() == [0, 1, 0, 2]
    assert judge(task, task.env.parent / "workspace").score == 0.75


def test_further_columns_a_mark_at_the_start_and_windows_line_ends_do_no_harm(task):
    text = "\ufeff" + "id,extra,label\r\na,x,0.0\r\nb,,1\r\n c ,y, 1 \r\nd,z,2\r\n"
    assert problems_of(task, text) == ""
    assert judge(task, task.env.parent / "workspace").score == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("id,label\n", "4 ids ('a', 'b', 'c', ...) missing"),
        ("id,lable\na,0\n", "no column 'label'. Did you mean 'lable'?"),
        ("id,label\na,0\nb,1\nc,1\n", "1 id ('d') missing"),
        (GOOD + "e,1\n", "1 id ('e') not known"),
        (GOOD + "a,1\n", "1 id ('a') more than once"),
        (GOOD.replace("b,1", "b,one"), "column 'label': row 1: 'one' is no finite number"),
        (GOOD.replace("b,1", "b,"), "row 1: None is no finite number"),
        (GOOD.replace("b,1", "b,1.5"), "is no whole number"),
        (GOOD.replace("b,1", "b,nan"), "is no finite number"),
        (GOOD.replace("b,1", "b,1e999"), "is no finite number"),
        (GOOD.replace("b,1", "b,1,2"), "it is no CSV"),
        ("id,label,label\na,0,0\n", "'label' stands twice"),
        ("id,label\n" + "a,0\n" * 5000, "5001 lines"),
        ("," * 5000 + "\n", "more than 4096 columns"),
        (b"id,label\na,\xff\n", "no UTF-8"),
        (b"\x80\x04\x95", "no UTF-8"),
    ],
)
def test_what_is_wrong_is_said(task, text, said):
    assert said in problems_of(task, text)


def test_messages_say_nothing_of_the_answers(tmp_path):
    secret = "the-secret-class"
    task = invent_task(
        tmp_path,
        pl.DataFrame({"id": IDS, "label": [secret] * 4}),
        submission={"id_column": "id", "columns": {"label": "text"}},
    )
    for text in ("id,label\n", "id,label\na,x\n", "id,x\na,1\n", "id,label\na,x\nb,x\nc,x\nd,x\nd,x\n"):
        assert secret not in problems_of(task, text)


def test_where_no_column_names_the_rows_their_order_and_number_count(tmp_path):
    task = invent_task(tmp_path, pl.DataFrame({"x": [1.0, 2.0]}), **NUMBERS)
    assert problems_of(task, "text_id,x\n0,1\n1,4\n") == ""
    assert judge(task, tmp_path / "workspace").score == 1
    assert "it has 1 rows; there are 2 examples" in problems_of(task, "x\n1\n")


def test_truth_is_written_in_many_ways(tmp_path):
    answers = pl.DataFrame({"id": IDS, "yes": [True, True, False, False]})
    task = invent_task(tmp_path, answers, submission={"id_column": "id", "columns": {"yes": "boolean"}})
    assert problems_of(task, "id,yes\na,True\nb,1\nc,false\nd,0.0\n") == ""
    assert judge(task, tmp_path / "workspace").score == 1
    assert "is neither true nor false" in problems_of(task, "id,yes\na,True\nb,2\nc,false\nd,0\n")


def test_probabilities_have_a_column_a_class(tmp_path):
    answers = pl.DataFrame({"": ["0", "1"], "label": [0, 2]})
    submission = {"id_column": "", "probabilities": True}
    task = invent_task(tmp_path, answers, metric="probability_accuracy", submission=submission)
    # As pandas writes a frame with its index; columns may stand in any order.
    assert problems_of(task, ",2,0,1\n0,0.1,0.8,0.1\n1,0.1,0.8,0.1\n") == ""
    assert judge(task, tmp_path / "workspace").score == 0.5
    assert "2 columns of probabilities for 3 classes" in problems_of(task, ",0,1\n0,1,0\n1,1,0\n")


def test_a_number_too_large_for_its_scale_has_no_score(tmp_path):
    task = invent_task(tmp_path, pl.DataFrame({"x": [1.0, -1e308]}), **NUMBERS)
    (tmp_path / "workspace" / "submission.csv").write_text("x\n1\n1.7e308\n")
    verdict = judge(task, tmp_path / "workspace")
    assert verdict.score is None
    assert "no finite number" in verdict.reason


# --- Other formats ---------------------------------------------------------------------------------


@pytest.fixture
def json_task(tmp_path):
    return invent_task(
        tmp_path / "json", submission={"file": "s.json", "id_column": "id", "columns": {"label": "integer"}}
    )


@pytest.fixture
def npz_task(tmp_path):
    return invent_task(
        tmp_path / "npz", submission={"file": "s.npz", "id_column": "id", "columns": {"label": "integer"}}
    )


def test_json_is_a_list_of_objects_or_an_object_of_lists(json_task):
    rows = [{"id": one, "label": 1} for one in IDS]
    assert problems_of(json_task, json.dumps(rows), "s.json") == ""
    assert problems_of(json_task, json.dumps({"id": IDS, "label": [1, 1, 1, 1]}), "s.json") == ""
    assert judge(json_task, json_task.env.parent / "workspace").score == 0.5


def test_probabilities_come_in_every_format(tmp_path):
    answers = pl.DataFrame({"idx": ["0", "1"], "label": [0, 2]})
    table = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]])
    for suffix in ("json", "npz"):
        declared = {"file": f"s.{suffix}", "id_column": "idx", "probabilities": True}
        task = invent_task(tmp_path / suffix, answers, metric="probability_accuracy", submission=declared)
        stream = io.BytesIO()
        np.savez(stream, idx=np.array([0, 1]), probabilities=np.asfortranarray(table))
        text = json.dumps({"idx": [0, 1], "probabilities": table.tolist()})
        assert problems_of(task, text if suffix == "json" else stream.getvalue(), f"s.{suffix}") == ""
        assert judge(task, tmp_path / suffix / "workspace").score == 0.5


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"id": ["a"], "label": [NaN]}',
        '{"id": ["a"], "id": ["a"], "label": [1]}',
        '{"id": ["a"], "label": [[1]]}',
        '{"id": ["a"], "label": [1, 2]}',
        '[{"id": "a"}, {"label": 1}]',
        '{"id": ["\\ud800"], "label": [1]}',
        '{"id": ["a"], "label": [' + "9" * 5000 + "]}",
        "null",
        "{}",
        "[]",
        "1",
    ],
)
def test_bad_json_is_named(json_task, text):
    assert "s.json: " in problems_of(json_task, text, "s.json")


def test_npz_holds_an_array_a_column(npz_task):
    stream = io.BytesIO()
    np.savez(stream, id=np.array(IDS), label=np.array([0, 1, 1, 2], np.uint8))
    assert problems_of(npz_task, stream.getvalue(), "s.npz") == ""
    assert judge(npz_task, npz_task.env.parent / "workspace").score == 1


class Payload:
    """Unpickled, it makes a file."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return os.mkdir, (str(self.file),)


def test_a_pickle_is_refused_without_being_loaded(npz_task, task, tmp_path):
    trap = tmp_path / "trap"
    pickled = pickle.dumps(Payload(trap))
    stream = io.BytesIO()
    np.savez(stream, id=np.array(IDS), label=np.array([Payload(trap)] * 4, dtype=object))
    for content in (pickled, stream.getvalue()):
        assert problems_of(npz_task, content, "s.npz")
        assert problems_of(task, content)
    assert not trap.exists()
    pickle.loads(pickled)
    assert trap.exists(), "the trap works"


def test_an_archive_that_unpacks_to_more_than_is_allowed_is_refused(tmp_path):
    declared = {"file": "s.npz", "id_column": None, "columns": {"label": "integer"}, "max_mb": 1}
    task = invent_task(tmp_path, pl.DataFrame({"label": [1]}), submission=declared)
    stream = io.BytesIO()
    np.savez_compressed(stream, label=np.zeros(3_000_000, np.int64))
    assert len(stream.getvalue()) < 100_000
    assert "more than 1 MB" in problems_of(task, stream.getvalue(), "s.npz")


def test_an_array_that_claims_to_be_huge_is_refused(npz_task):
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000,), }"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("label.npy", content)
    assert "ends too early" in problems_of(npz_task, stream.getvalue(), "s.npz")


# --- Hostile files ---------------------------------------------------------------------------------


def test_a_link_to_the_answers_is_not_followed(task, tmp_path):
    (tmp_path / "private" / "good.csv").write_text(GOOD)
    (tmp_path / "workspace" / "submission.csv").symlink_to(tmp_path / "private" / "good.csv")
    assert validate(task, tmp_path / "workspace")
    (tmp_path / "workspace" / "submission.csv").unlink()
    os.mkfifo(tmp_path / "workspace" / "submission.csv")
    assert validate(task, tmp_path / "workspace")


def test_a_link_on_the_way_is_not_followed(tmp_path):
    declared = {"file": "out/s.csv", "id_column": "id", "columns": {"label": "integer"}}
    task = invent_task(tmp_path, submission=declared)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "s.csv").write_text(GOOD)
    (tmp_path / "workspace" / "out").symlink_to(tmp_path / "elsewhere")
    assert validate(task, tmp_path / "workspace")


def test_too_large_a_file_is_refused_unread(tmp_path):
    declared = {"id_column": "id", "columns": {"label": "integer"}, "max_mb": 1}
    task = invent_task(tmp_path, submission=declared)
    with (tmp_path / "workspace" / "submission.csv").open("wb") as file:
        file.truncate(10**12)
    assert "larger than" in validate(task, tmp_path / "workspace")[0]


def test_no_submission_is_said_so(task, tmp_path):
    with pytest.raises(InvalidSubmission, match="There is no file 'submission.csv'"):
        read_submission(task, tmp_path / "workspace")


FUZZED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
TEXT = st.text(max_size=8)
VALUE = st.one_of(TEXT, st.floats(), st.integers(), st.booleans(), st.none())


@FUZZED
@given(st.one_of(st.binary(max_size=200), st.lists(st.lists(VALUE, max_size=4), max_size=6)))
def test_no_csv_crashes_the_judge(task, content):
    if isinstance(content, list):
        lines = [",".join(map(str, row)) for row in content]
        content = "\n".join(["id,label", *lines]).encode(errors="surrogatepass")
    problems_of(task, content)


@FUZZED
@given(st.recursive(VALUE, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner))))
def test_no_json_crashes_the_judge(json_task, document):
    problems_of(json_task, json.dumps(document), "s.json")


@FUZZED
@given(st.integers(0, 700), st.integers(0, 255), st.integers(1, 800))
def test_no_damaged_archive_crashes_the_judge(npz_task, place, value, length):
    stream = io.BytesIO()
    np.savez_compressed(stream, id=np.array(IDS), label=np.array([0.0, 1, 1, 2]))
    content = bytearray(stream.getvalue())
    content[place % len(content)] = value
    problems_of(npz_task, bytes(content[:length]), "s.npz")
    problems_of(npz_task, bytes(content), "s.npz")
