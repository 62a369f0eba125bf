"""The artifact store: round trips, atomic writes, sidecars, and paths that stay inside."""

import json

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


def test_an_artifact_without_its_sidecar_counts_as_absent(tmp_path, monkeypatch):
    store = ArtifactStore(tmp_path)
    store.write("beans", "room/value.json", {"n": 1}, SIDECAR)

    def crash(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ArtifactStore, "write_text", crash)
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


@pytest.mark.parametrize(
    ("dataset", "file"),
    [("..", "a.json"), ("beans", "../a.json"), ("beans", "/etc/a.json"), ("a\\b", "a.json"), ("", "a")],
)
def test_no_path_leaves_the_results_root(store, dataset, file):
    with pytest.raises(UserError):
        store.write(dataset, file, {}, SIDECAR)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float32(1), {1, 2}])
def test_json_is_strict(value):
    with pytest.raises((ValueError, TypeError)):
        dump_json({"value": value})


def test_a_failure_is_noted_until_the_artifact_is_made(store):
    store.record_failure("beans", "room/value.json", error="no luck", run_id="r1")
    assert store.failure("beans", "room/value.json")["error"] == "no luck"
    store.write("beans", "room/value.json", {}, SIDECAR)
    assert store.failure("beans", "room/value.json") is None


def test_sidecars_are_plain_json(tmp_path):
    store = ArtifactStore(tmp_path)
    store.write("beans", "room/value.json", {}, SIDECAR)
    values = json.loads((tmp_path / "beans/room/value.json.meta.json").read_text())
    assert values["artifact"] == "room/name"
