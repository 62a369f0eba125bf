"""Staged records are appended once, all or none, whatever the order, and what is there keeps its lines."""

import errno
import json
import multiprocessing
import os
import shutil
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agml_assets.errors import UserError
from agml_assets.leaderboard.catalogue import Catalogue
from agml_assets.leaderboard.staging import stage
from tests.leaderboard.records import odd_records, record, scored, tuned, write

NONE = Catalogue()


@pytest.fixture
def places(tmp_path):
    return tmp_path / "performance", tmp_path / "staging"


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())} if folder.is_dir() else {}


def test_staged_records_follow_those_that_are_there(places):
    performance, staging = places
    write(performance, "beans", [scored("old", 0.1)])
    write(staging, "beans", [scored("new", 0.2)])
    write(staging, "peas", [scored("new", 0.3)])
    merges = stage(performance, staging, NONE)
    assert [merge.describe() for merge in merges] == [
        "beans.json: 1 existing + 1 staged = 2 total",
        "peas.json: 0 existing + 1 staged = 1 total",
    ]
    assert [one["model"] for one in json.loads((performance / "beans.json").read_text())] == ["old", "new"]
    assert set(contents(staging)) == {"beans.json", "peas.json"}
    assert set(contents(performance)) == {"beans.json", "peas.json"}


def test_a_merged_file_reads_as_if_written_at_once(places):
    performance, staging = places
    records = [scored("a", 0.1), tuned("b", 1e-7), record("c", notes="ü \ud83d\ude00 \n")]
    write(performance, "beans", records[:1])
    write(staging, "beans", records[1:])
    stage(performance, staging, NONE)
    assert (performance / "beans.json").read_bytes() == write(
        places[0].parent / "once", "beans", records
    ).read_bytes()


def test_lines_that_are_there_stay_as_they_are(places):
    performance, staging = places
    performance.mkdir()
    odd = '[ {"model":"ü","task":"classification",\n "metrics":{"f1":1E-7}} ]\r\n'
    (performance / "beans.json").write_text(odd, encoding="utf-8", newline="")
    write(staging, "beans", [scored("new", 0.2)])
    stage(performance, staging, NONE)
    text = (performance / "beans.json").read_bytes().decode()
    assert text.startswith(odd.removesuffix(" ]\r\n"))
    assert [one["model"] for one in json.loads(text)] == ["ü", "new"]


@pytest.mark.parametrize("empty", ["[]", "[\n]\n", " [ ] "])
def test_a_file_with_an_empty_list_is_filled(places, empty):
    performance, staging = places
    performance.mkdir()
    (performance / "beans.json").write_text(empty)
    write(staging, "beans", [scored("new", 0.2)])
    stage(performance, staging, NONE)
    assert len(json.loads((performance / "beans.json").read_text())) == 1


def test_a_record_that_is_there_is_recognised_whatever_its_layout(places):
    performance, staging = places
    there = scored("a", 0.5)
    write(performance, "beans", [there])
    write(staging, "beans", [dict(reversed(there.items())) | {"num_samples": 200.0}, scored("b", 0.5)])
    before = (performance / "beans.json").read_text()
    (merge,) = stage(performance, staging, NONE)
    assert merge.describe() == "beans.json: 1 existing + 2 staged - 1 already there = 2 total"
    assert (performance / "beans.json").read_text().startswith(before.rstrip().removesuffix("]").rstrip())


def test_a_record_staged_twice_in_one_file_is_added_once(places):
    performance, staging = places
    write(staging, "beans", [scored("a", 0.5), scored("a", 0.5)])
    (merge,) = stage(performance, staging, NONE)
    assert (len(merge.added), merge.already_there) == (1, 1)


@pytest.mark.parametrize("spelled", ["2026-08-11T05:16:17Z", "2026-08-11T07:16:17+02:00", " 2026-08-11T05:16:17 "])
def test_a_time_may_be_spelled_otherwise(places, spelled):
    performance, staging = places
    write(performance, "beans", [scored("a", 0.5, timestamp="2026-08-11T05:16:17+00:00")])
    write(staging, "beans", [scored("a", 0.5, timestamp=spelled)])
    assert stage(performance, staging, NONE)[0].already_there == 1
    write(staging, "beans", [scored("a", 0.6, timestamp=spelled)])
    with pytest.raises(UserError, match="with other values as record 1"):
        stage(performance, staging, NONE)


def test_line_ends_stay_as_they_are(places):
    performance, staging = places
    path = write(performance, "beans", [scored("old", 0.1)])
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    write(staging, "beans", [scored("new", 0.2)])
    stage(performance, staging, NONE)
    expected = write(performance.parent / "once", "beans", [scored("old", 0.1), scored("new", 0.2)]).read_bytes()
    assert path.read_bytes() == expected.replace(b"\n", b"\r\n")


def test_a_link_is_followed_within_the_folder_and_not_out_of_it(places, tmp_path):
    performance, staging = places
    inside = write(performance / "real", "beans", [scored("old", 0.1)])
    outside = write(tmp_path / "elsewhere", "peas", [scored("old", 0.1)])
    (performance / "beans.json").symlink_to(inside)
    write(staging, "beans", [scored("new", 0.2)])
    stage(performance, staging, NONE)
    assert (performance / "beans.json").is_symlink()
    assert len(json.loads(inside.read_text())) == 2
    (performance / "peas.json").symlink_to(outside)
    write(staging, "peas", [scored("new", 0.2)])
    with pytest.raises(UserError, match=r"peas.json: .* a link that leads out of its folder"):
        stage(performance, staging, NONE)
    assert len(json.loads(outside.read_text())) == 1


def test_two_names_of_one_file_are_not_staged_at_once(places):
    performance, staging = places
    (performance / "peas.json").parent.mkdir()
    (performance / "peas.json").symlink_to("beans.json")
    for name in ("beans", "peas"):
        write(staging, name, [scored(name, 0.2)])
    with pytest.raises(UserError, match="its file is that of beans"):
        stage(performance, staging, NONE)


@pytest.mark.parametrize("length", [245, 250])
def test_the_longest_names_can_be_staged(places, length):
    write(places[1], "n" * length, [scored("a", 0.5)])
    stage(*places, NONE)
    assert len(json.loads((places[0] / f"{'n' * length}.json").read_text())) == 1


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("place", ["a_file", "a_file/below", "/proc/nowhere", "x" * 300])
def test_a_folder_that_cannot_be_written_to_is_found_by_a_dry_run_too(tmp_path, place, dry_run):
    (tmp_path / "a_file").write_text("x")
    write(tmp_path / "staging", "beans", [scored("a", 0.5)])
    with pytest.raises(UserError, match="cannot be merged into"):
        stage(tmp_path / place, tmp_path / "staging", NONE, dry_run=dry_run)
    assert (tmp_path / "a_file").read_text() == "x"


def test_a_file_that_cannot_be_written_is_said_in_words(places, monkeypatch):
    write(places[1], "beans", [scored("a", 0.5)])

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UserError, match="No space left on device"):
        stage(*places, NONE)
    assert contents(places[0]) == {}


def test_a_file_without_a_name_is_refused(places):
    write(places[1], "", [scored("a", 0.5)])
    with pytest.raises(UserError, match="names no dataset"):
        stage(*places, NONE)


def test_what_is_no_regular_file_is_refused_and_not_waited_for(places):
    places[1].mkdir()
    os.mkfifo(places[1] / "beans.json")
    with pytest.raises(UserError, match="no regular file"):
        stage(*places, NONE)


def test_the_same_run_with_other_values_is_refused(places):
    performance, staging = places
    write(performance, "beans", [scored("z", 0.4), scored("a", 0.5)])
    write(staging, "beans", [scored("a", 0.6)])
    with pytest.raises(UserError, match=r"beans.json, record 1: .* as record 2 of beans.json; correct that one"):
        stage(performance, staging, NONE)


@pytest.mark.parametrize(
    "other",
    [
        {"dataset_config": "augmented"},
        {"split": "test"},
        {"timestamp": "2026-08-12"},
        {"finetune": {}},
        {"model": "b"},
    ],
)
def test_another_run_is_another_record(places, other):
    performance, staging = places
    write(performance, "beans", [scored("a", 0.5)])
    write(staging, "beans", [scored("a", 0.6) | other])
    assert stage(performance, staging, NONE)[0].total == 2


def test_one_refused_record_keeps_all_out_and_every_refusal_is_listed(places):
    performance, staging = places
    write(performance, "beans", [scored("old", 0.1)])
    write(staging, "beans", [scored("new", 0.2), {"model": "x"}, scored("y", "high")])
    write(staging, "peas", [scored("fine", 0.2)])
    write(staging, "rice", {"leaderboard": []})
    (staging / "rye.json").write_text("[{")
    before = contents(performance)
    with pytest.raises(UserError) as error:
        stage(performance, staging, NONE)
    for place in ("beans.json, record 2: 'task' is required", "beans.json, record 3", "rice.json: ", "rye.json: "):
        assert place in error.value.message
    assert "Nothing was written: 4 refused" in error.value.message
    assert contents(performance) == before


@pytest.mark.parametrize("name", ["index", "global"])
def test_manifests_cannot_be_staged(places, name):
    write(places[1], name, [scored("a", 0.5)])
    with pytest.raises(UserError, match=rf"{name}.json: it is made from the run records"):
        stage(*places, NONE)


def test_a_key_given_twice_is_refused(places):
    places[1].mkdir()
    (places[1] / "beans.json").write_text(
        '[{"model": "a", "task": "classification", "metrics": {"f1": 0.1, "f1": 0.9}}]'
    )
    with pytest.raises(UserError, match="record 1: a key is given twice in one object: f1"):
        stage(*places, NONE)


def test_tens_of_thousands_of_keys_are_read_in_a_moment(places):
    write(places[1], "beans", [record("a", metrics={f"m{n}": 0.1 for n in range(40_000)})])
    start = time.process_time()
    stage(*places, NONE, dry_run=True)
    assert time.process_time() - start < 5


def test_a_damaged_file_is_not_appended_to(places):
    performance, staging = places
    performance.mkdir()
    (performance / "beans.json").write_text("[1, ")
    write(staging, "beans", [scored("a", 0.5)])
    with pytest.raises(UserError, match=r"beans.json, to which it would be appended: it is not valid JSON"):
        stage(performance, staging, NONE)


def test_a_dry_run_says_the_same_and_writes_nothing(places):
    performance, staging = places
    write(performance, "beans", [scored("old", 0.1)])
    write(staging, "beans", [scored("old", 0.1), scored("new", 0.2)])
    write(staging, "peas", [scored("new", 0.2)])
    before = contents(performance)
    planned = [merge.describe() for merge in stage(performance, staging, NONE, dry_run=True)]
    assert contents(performance) == before
    assert [merge.describe() for merge in stage(performance, staging, NONE)] == planned


def test_a_dry_run_makes_no_folder(places):
    write(places[1], "beans", [scored("a", 0.5)])
    stage(*places, NONE, dry_run=True)
    assert not places[0].exists()


def test_a_crash_while_writing_leaves_the_old_file_and_the_next_call_goes_on(places, monkeypatch):
    performance, staging = places
    write(performance, "peas", [scored("old", 0.1)])
    for name in ("beans", "peas"):
        write(staging, name, [scored("new", 0.2)])
    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", lambda handle: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            stage(performance, staging, NONE)
    assert len(json.loads((performance / "peas.json").read_text())) == 1
    assert set(contents(performance)) == {"peas.json"}
    stage(performance, staging, NONE)
    assert len(json.loads((performance / "peas.json").read_text())) == 2


def test_what_a_killed_process_left_is_removed(places):
    performance, staging = places
    performance.mkdir()
    (performance / ".beans.json.x1.tmp").write_text("[")
    write(staging, "beans", [scored("new", 0.2)])
    stage(performance, staging, NONE)
    assert set(contents(performance)) == {"beans.json"}


def _stage_from(performance, staging, start):
    start.wait()
    stage(performance, staging, NONE)


def test_two_that_stage_at_once_lose_nothing(tmp_path):
    context = multiprocessing.get_context("fork")
    start = context.Barrier(3)
    staged = [write(tmp_path / f"s{n}", "beans", [scored(f"m{n}", 0.1)]).parent for n in range(3)]
    workers = [context.Process(target=_stage_from, args=(tmp_path / "p", one, start)) for one in staged]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    models = {one["model"] for one in json.loads((tmp_path / "p" / "beans.json").read_text())}
    assert models == {"m0", "m1", "m2"}


times = st.one_of(
    st.none(), st.sampled_from(["2026-08-11T05:16:17+02:00", "2026-08-11", "2025-01-01T00:00:00Z", "x"])
)
good_records = st.builds(
    lambda model, f1, time: scored(model, f1, timestamp=time),
    st.sampled_from("abcdefgh"),
    st.sampled_from([0.1, 0.2]),
    times,
)


def _runs_are_distinct(records):
    keys = [(one["model"], one["timestamp"]) for one in records if one["timestamp"]]
    return len(keys) == len(set(keys))


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_any_order_of_staging_gives_the_same_files(tmp_path_factory, data):
    names = ("beans", "peas", "rice")
    staged = {name: data.draw(st.lists(good_records, max_size=5).filter(_runs_are_distinct)) for name in names}
    root = tmp_path_factory.mktemp("order")
    results = []
    for turn in range(2):
        performance, staging = root / f"p{turn}", root / f"s{turn}"
        write(performance, "beans", [scored("there", 0.9)])
        for name in data.draw(st.permutations(names)):
            write(staging, name, data.draw(st.permutations(staged[name])))
        stage(performance, staging, NONE)
        results.append(contents(performance))
        stage(performance, staging, NONE)
        assert contents(performance) == results[-1]
    assert results[0] == results[1]
    shutil.rmtree(root)


@settings(max_examples=40, deadline=None)
@given(values=st.lists(odd_records, max_size=4))
def test_whatever_is_staged_is_either_there_afterwards_or_refused(tmp_path_factory, values):
    root = tmp_path_factory.mktemp("odd")
    write(root / "s", "beans", values)
    try:
        (merge,) = stage(root / "p", root / "s", NONE)
    except UserError as error:
        assert "refused" in error.message
        assert not (root / "p" / "beans.json").exists()
    else:
        assert len(merge.added) + merge.already_there == len(values)
        there = json.loads((root / "p" / "beans.json").read_text()) if values else []
        assert all(value in there for value in values)
    shutil.rmtree(root)
