"""The artifact store: round trips, atomic writes, sidecars, and paths that stay inside."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from agml_assets.errors import UserError
from agml_assets.store import ArtifactStore, dump_json

SIDECAR = {"artifact": "room/name", "code_version": "1", "inputs": {"room/other": "abc"}, "settings": {"k": 5}}
VALUES = {
    "room/frame.parquet": pl.DataFrame({"row": [0, 1], "name": pl.Series(["a", None], dtype=pl.Enum(["a", "b"]))}),
    "room/array.npy": np.arange(12, dtype=np.float32).reshape(4, 3),
    "room/arrays.npz": {"ids": np.arange(3), "kind": np.asarray("exact")},
    "room/value.json": {"é": [1, 2.5, None, True]},
    "room/page.html": "<p>ü</p>",
}


def same(a, b):
    if isinstance(a, pl.DataFrame):
        return a.equals(b) and a.schema == b.schema
    if isinstance(a, dict) and isinstance(next(iter(a.values())), np.ndarray):
        return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    root = tmp_path / "results" if request.param == "local" else f"memory://{tmp_path.name}"
    return ArtifactStore(root, scratch=tmp_path / "scratch")


@pytest.mark.parametrize("file", VALUES)
def test_what_is_written_is_read_back_with_its_sidecar(store, file):
    written = store.write("beans", file, VALUES[file], SIDECAR)
    assert same(VALUES[file], store.read("beans", file))
    assert store.sidecar("beans", file) == written
    assert (written.settings, written.inputs) == ({"k": 5}, {"room/other": "abc"})


@pytest.mark.parametrize("file", VALUES)
def test_the_same_value_gives_the_same_bytes_and_another_gives_another_digest(store, file):
    first = store.write("beans", file, VALUES[file], SIDECAR)
    assert store.write("beans", file, VALUES[file], SIDECAR).digest == first.digest
    other = {"room/value.json": {"é": []}, "room/page.html": "<p></p>"}.get(file)
    if other is not None:
        assert store.write("beans", file, other, SIDECAR).digest != first.digest


def test_a_local_array_is_memory_mapped(tmp_path):
    store = ArtifactStore(tmp_path)
    store.write("beans", "room/array.npy", VALUES["room/array.npy"], SIDECAR)
    assert isinstance(store.read("beans", "room/array.npy"), np.memmap)


def test_a_finished_file_is_moved_into_place(store, tmp_path):
    file = tmp_path / "finished.npy"
    np.save(file, np.arange(5))
    store.write("beans", "room/array.npy", file, SIDECAR)
    assert not file.exists()
    np.testing.assert_array_equal(store.read("beans", "room/array.npy"), np.arange(5))


def test_a_crash_while_writing_leaves_the_old_artifact_whole(tmp_path, monkeypatch):
    store = ArtifactStore(tmp_path)
    store.write("beans", "room/value.json", {"n": 1}, SIDECAR)

    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("agml_assets.store._dump", crash)
    with pytest.raises(KeyboardInterrupt):
        store.write("beans", "room/value.json", {"n": 2}, SIDECAR)
    assert store.read("beans", "room/value.json") == {"n": 1}
    assert store.sidecar("beans", "room/value.json") is not None
    assert {p.name for p in (tmp_path / "beans/room").iterdir()} == {"value.json", "value.json.meta.json"}


def test_a_file_that_cannot_be_put_into_place_leaves_the_old_one_or_none(store, monkeypatch):
    store.write("beans", "room/array.npy", np.arange(3), SIDECAR)

    def crash(*_):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(ArtifactStore, "_put", crash)
        with pytest.raises(OSError, match="no space"):
            store.write("beans", "room/array.npy", np.arange(4), SIDECAR)
    assert store.sidecar("beans", "room/array.npy") is None
    assert sorted(p.name for p in store.path("beans", "room").iterdir()) == ["array.npy"]
    store.write("beans", "room/array.npy", np.arange(4), SIDECAR)
    np.testing.assert_array_equal(store.read("beans", "room/array.npy"), np.arange(4))


@pytest.mark.parametrize("info", [{"loss": float("nan")}, {"count": np.int64(3)}])
def test_facts_that_are_not_json_leave_the_old_artifact_whole(store, info):
    old = store.write("beans", "room/value.json", {"n": 1}, SIDECAR)
    with pytest.raises((ValueError, TypeError)):
        store.write("beans", "room/value.json", {"n": 2}, {**SIDECAR, "info": info})
    assert store.sidecar("beans", "room/value.json") == old
    assert store.read("beans", "room/value.json") == {"n": 1}


@pytest.mark.parametrize("value", [{"loss": float("nan")}, [float("inf")]])
def test_a_value_that_is_not_json_is_refused_before_anything_changes(store, value):
    old = store.write("beans", "room/value.json", {"n": 1}, SIDECAR)
    with pytest.raises(ValueError, match="JSON"):
        store.write("beans", "room/value.json", value, SIDECAR)
    assert store.sidecar("beans", "room/value.json") == old


REWRITE = """
import sys, numpy as np
from agml_assets.store import ArtifactStore
store, n = ArtifactStore(sys.argv[1]), 0
side = {"artifact": "a", "code_version": "1", "inputs": {}, "settings": {}}
while True:
    n += 1
    store.write("beans", "room/array.npy", np.full(500_000, n), side)
    print(n, flush=True)
"""


@pytest.mark.slow
def test_sigkill_at_any_moment_leaves_the_artifact_whole_or_absent(tmp_path):
    for delay in np.linspace(0, 0.05, 12):
        command = [sys.executable, "-c", REWRITE, str(tmp_path)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert writer.stdout.readline() == "1\n"
        time.sleep(delay)
        writer.kill()
        writer.communicate()
        store = ArtifactStore(tmp_path)
        if store.sidecar("beans", "room/array.npy") is not None:
            assert store.is_intact("beans", "room/array.npy")
            assert len(np.unique(store.read("beans", "room/array.npy"))) == 1


def test_text_is_utf8_whatever_the_locale(tmp_path):
    store = ArtifactStore(tmp_path)
    for file in ("room/value.json", "room/page.html"):
        store.write("beans", file, VALUES[file], {**SIDECAR, "info": {"class": "é"}})
    read = (
        "from agml_assets.store import ArtifactStore; import sys; s = ArtifactStore(sys.argv[1]);"
        "print(ascii([s.read('beans', 'room/value.json'), s.read('beans', 'room/page.html'),"
        "dict(s.sidecar('beans', 'room/page.html').info)]))"
    )
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", read, str(tmp_path)],
        env={**os.environ, **locale},
        capture_output=True,
        text=True,
        check=False,
    )
    expected = [VALUES["room/value.json"], VALUES["room/page.html"], {"class": "é"}]
    assert done.stdout.strip() == ascii(expected), done.stderr


def test_an_artifact_without_its_sidecar_counts_as_absent(tmp_path, monkeypatch):
    store = ArtifactStore(tmp_path)
    store.write("beans", "room/value.json", {"n": 1}, SIDECAR)
    put = ArtifactStore._put

    def crash(self, finished, path):
        if path.name.endswith(".meta.json"):
            raise KeyboardInterrupt
        put(self, finished, path)

    with monkeypatch.context() as patch:
        patch.setattr(ArtifactStore, "_put", crash)
        with pytest.raises(KeyboardInterrupt):
            store.write("beans", "room/value.json", {"n": 2}, SIDECAR)
    assert store.sidecar("beans", "room/value.json") is None
    store.write("beans", "room/value.json", {"n": 3}, SIDECAR)
    assert store.sidecar("beans", "room/value.json") is not None


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"artifact": "x"}', b'"text"'])
def test_a_damaged_sidecar_counts_as_absent(tmp_path, damage):
    store = ArtifactStore(tmp_path)
    store.write("beans", "room/value.json", {"n": 1}, SIDECAR)
    (tmp_path / "beans/room/value.json.meta.json").write_bytes(damage)
    assert store.sidecar("beans", "room/value.json") is None


def test_a_file_that_was_cut_short_counts_as_absent(tmp_path):
    store = ArtifactStore(tmp_path)
    store.write("beans", "room/value.json", {"n": 1}, SIDECAR)
    (tmp_path / "beans/room/value.json").write_text("{")
    assert store.sidecar("beans", "room/value.json") is None


def test_what_is_removed_to_save_space_goes_on_vouching(store):
    written = store.write("beans", "room/array.npy", np.arange(3), SIDECAR)
    store.remove("beans", "room/array.npy")
    kept = store.sidecar("beans", "room/array.npy")
    assert (kept.digest, kept.removed) == (written.digest, True)
    with pytest.raises(FileNotFoundError):
        store.read("beans", "room/array.npy")


def test_what_was_removed_is_not_read_from_a_copy_made_before(store):
    store.write("beans", "room/array.npy", np.arange(3), SIDECAR)
    store.read("beans", "room/array.npy")
    store.remove("beans", "room/array.npy")
    assert not list(store.scratch.rglob("*.npy"))
    with pytest.raises(FileNotFoundError):
        store.read("beans", "room/array.npy")


def test_arrays_of_a_remote_store_are_staged_under_the_scratch_folder_and_mapped(tmp_path, monkeypatch):
    monkeypatch.setenv("AGML_SCRATCH", str(tmp_path / "scratch"))
    store = ArtifactStore(f"memory://{tmp_path.name}-staged")
    for value in (np.arange(3), np.arange(4)):
        written = store.write("beans", "room/array.npy", value, SIDECAR)
        array = store.read("beans", "room/array.npy")
        assert isinstance(array, np.memmap)
        copy = Path(array.filename)
        assert copy.is_relative_to(tmp_path / "scratch")
        assert copy.name == f"{written.digest}.npy"
        np.testing.assert_array_equal(array, value)
    assert store.local_folder("beans", ".work/x").is_relative_to(tmp_path / "scratch")


def test_staged_copies_go_with_their_store_and_arrays_in_use_stay_readable(tmp_path):
    store = ArtifactStore(f"memory://{tmp_path.name}-gone", scratch=tmp_path / "scratch")
    store.write("beans", "room/array.npy", np.arange(3), SIDECAR)
    array = store.read("beans", "room/array.npy")
    store.discard_staged()
    assert list((tmp_path / "scratch").iterdir()) == []
    np.testing.assert_array_equal(array, np.arange(3))
    np.testing.assert_array_equal(store.read("beans", "room/array.npy"), np.arange(3))
    del store
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_file_moved_to_a_remote_store_is_read_without_fetching_it(tmp_path, monkeypatch):
    store = ArtifactStore(f"memory://{tmp_path.name}-moved", scratch=tmp_path / "scratch")
    file = store.local_folder("beans", ".work/x") / "big.npy"
    np.save(file, np.arange(5))
    store.write("beans", "room/array.npy", file, SIDECAR)
    monkeypatch.setattr(store.root.fs, "get_file", None)
    np.testing.assert_array_equal(store.read("beans", "room/array.npy"), np.arange(5))
    assert not file.exists()


def test_a_scratch_folder_under_the_guessable_name_that_is_another_users_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("AGML_SCRATCH", raising=False)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    owner = os.getuid()
    store = ArtifactStore(f"memory://{tmp_path.name}-other")
    store.local_folder("beans", "x")
    folder = tmp_path / f"agml-assets-{owner}"
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr("os.getuid", lambda: owner + 1)
    folder.rename(tmp_path / f"agml-assets-{owner + 1}")
    with pytest.raises(UserError, match=r"another user's.*AGML_SCRATCH"):
        store.local_folder("beans", "x")


def test_files_that_a_killed_process_left_go_and_those_of_a_living_one_stay(tmp_path):
    hold = (
        "from agml_assets.locks import Unfinished; import sys, time, pathlib\n"
        "files = [Unfinished(pathlib.Path(f), 'array.npy') for f in sys.argv[1:]]\n"
        "print('held', flush=True); time.sleep(60)"
    )
    folders = [tmp_path / "beans/room", tmp_path / "_platform/embeddings/cache/x", tmp_path / "maize/room"]
    command = [sys.executable, "-c", hold, *map(str, folders)]
    killed, living = (subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2))
    for process in (killed, living):
        assert process.stdout.readline() == "held\n"
    killed.kill()
    killed.communicate()
    store = ArtifactStore(tmp_path)
    store.write("beans", "room/array.npy", np.arange(3), SIDECAR)
    store.remove_leftovers("beans")
    left = [sum(name.name.startswith(".") for name in folder.iterdir()) for folder in folders]
    assert left == [1, 1, 2]  # another dataset's are its own run's business
    assert store.is_intact("beans", "room/array.npy")
    living.kill()
    living.communicate()
    store.remove_leftovers("beans")
    assert [path.name for path in folders[0].iterdir() if path.name.startswith(".")] == []


def test_a_finished_file_on_another_disk_is_copied_into_place(tmp_path):
    if not os.access("/dev/shm", os.W_OK) or Path("/dev/shm").stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second disk here")
    store = ArtifactStore(tmp_path)
    with tempfile.NamedTemporaryFile(dir="/dev/shm", suffix=".npy", delete=False) as file:
        np.save(file, np.arange(5))
    store.write("beans", "room/array.npy", Path(file.name), SIDECAR)
    assert not Path(file.name).exists()
    np.testing.assert_array_equal(store.read("beans", "room/array.npy"), np.arange(5))
    assert {path.name for path in (tmp_path / "beans/room").iterdir()} == {"array.npy", "array.npy.meta.json"}


def test_the_digest_is_the_blake3_of_the_file(tmp_path):
    from blake3 import blake3

    written = ArtifactStore(tmp_path).write("beans", "room/value.json", [1], SIDECAR)
    content = (tmp_path / "beans/room/value.json").read_bytes()
    assert (written.digest, written.bytes) == (blake3(content).hexdigest(), len(content))


def test_a_changed_byte_is_found(tmp_path):
    store = ArtifactStore(tmp_path)
    store.write("beans", "room/value.json", {"n": 1}, SIDECAR)
    assert store.is_intact("beans", "room/value.json")
    file = tmp_path / "beans/room/value.json"
    file.write_text(file.read_text().replace("1", "2"))
    assert store.sidecar("beans", "room/value.json") is not None
    assert not store.is_intact("beans", "room/value.json")
    assert not store.is_intact("beans", "room/absent.json")


@pytest.mark.parametrize(
    ("dataset", "file"),
    [
        ("..", "a.json"),
        ("beans", "../a.json"),
        ("beans", "/etc/a.json"),
        ("a\\b", "a.json"),
        ("", "a.json"),
        ("beans", ""),
        ("/proc/none", "a.json"),
        ("a/../../b", "a.json"),
        ("beans/..", "a.json"),
        ("beans", "a\0.json"),
    ],
)
def test_no_path_leaves_the_results_root(store, dataset, file):
    with pytest.raises(UserError, match="not a place inside the results root"):
        store.write(dataset, file, {}, SIDECAR)
    with pytest.raises(UserError):
        store.read(dataset, file)
    with pytest.raises(UserError):
        store.local_folder(dataset, file)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float32(1), {1, 2}])
def test_json_is_strict(value):
    with pytest.raises((ValueError, TypeError)):
        dump_json({"value": value})


def test_a_failure_is_noted_until_the_artifact_is_made(store):
    store.record_failure("beans", "room/value.json", error="no luck", run_id="r1")
    assert store.failure("beans", "room/value.json")["error"] == "no luck"
    store.write("beans", "room/value.json", {}, SIDECAR)
    assert store.failure("beans", "room/value.json") is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"inputs": None},
        {"inputs": {"room/other": 1}},
        {"settings": []},
        {"info": None},
        {"digest": 5},
        {"removed": "no"},
    ],
)
def test_a_sidecar_with_fields_of_another_type_counts_as_absent(tmp_path, wrong):
    store = ArtifactStore(tmp_path)
    store.write("beans", "room/value.json", {}, SIDECAR)
    note = tmp_path / "beans/room/value.json.meta.json"
    note.write_text(json.dumps({**json.loads(note.read_text()), **wrong}))
    assert store.sidecar("beans", "room/value.json") is None


def test_a_root_that_may_not_be_read_is_named_with_what_to_do(tmp_path):
    store = ArtifactStore(tmp_path / "results")
    store.write("beans", "room/value.json", {}, SIDECAR)
    (tmp_path / "results").chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # nobody; permissions mean nothing to root
    try:
        with pytest.raises(UserError, match=rf"results root {store.root} .*Permission denied.*\$AGML_RESULTS"):
            store.sidecar("beans", "room/value.json")
    finally:
        os.seteuid(user)
        (tmp_path / "results").chmod(0o700)


def test_sidecars_are_plain_json(tmp_path):
    store = ArtifactStore(tmp_path)
    store.write("beans", "room/value.json", {}, SIDECAR)
    values = json.loads((tmp_path / "beans/room/value.json.meta.json").read_text())
    assert values["artifact"] == "room/name"
