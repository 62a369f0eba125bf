"""Workspaces by content: what is kept, what is left out, what comes back."""

import json
import os
import zipfile

import pytest
from blake3 import blake3

from agml_assets.agents import snapshots
from agml_assets.agents.snapshots import (
    ReadOnly,
    SnapshotStore,
    lay_out,
    pack,
    read_packed,
    unpack,
    write_beneath,
)
from agml_assets.errors import UserError
from tests.agents.tiny_task import make_task

NOTHING = ReadOnly()


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("one")
    (folder / "sub" / "b.txt").write_text("two")
    return folder


@pytest.fixture
def store(tmp_path):
    return SnapshotStore(tmp_path / "blobs")


def test_each_content_is_kept_once_by_its_blake3(workspace, store):
    (workspace / "again.txt").write_text("one")
    taken = store.take(workspace, NOTHING)
    assert dict(taken.files) == {
        "a.txt": blake3(b"one").hexdigest(),
        "again.txt": blake3(b"one").hexdigest(),
        "sub/b.txt": blake3(b"two").hexdigest(),
    }
    assert sorted(path.name for path in store.folder.iterdir()) == sorted(set(taken.files.values()))


def test_a_file_of_the_same_size_and_time_with_other_content_is_seen(workspace, store):
    before = store.take(workspace, NOTHING).files["a.txt"]
    status = (workspace / "a.txt").stat()
    (workspace / "a.txt").write_text("eno")
    os.utime(workspace / "a.txt", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert store.take(workspace, NOTHING).files["a.txt"] != before


def test_links_are_noted_and_never_followed(workspace, store, tmp_path):
    (tmp_path / "secret.txt").write_text("answers")
    (workspace / "link.txt").symlink_to(tmp_path / "secret.txt")
    (workspace / "folder").symlink_to(tmp_path)
    os.mkfifo(workspace / "pipe")
    taken = store.take(workspace, NOTHING)
    assert set(taken.files) == {"a.txt", "sub/b.txt"}
    assert taken.links == {"folder": str(tmp_path), "link.txt": str(tmp_path / "secret.txt")}
    assert blake3(b"answers").hexdigest() not in {path.name for path in store.folder.iterdir()}


def test_large_files_and_too_many_bytes_are_named_and_left_out(workspace, store, monkeypatch):
    monkeypatch.setattr(snapshots, "LARGEST_FILE", 10)
    monkeypatch.setattr(snapshots, "LARGEST_SNAPSHOT", 12)
    (workspace / "huge.bin").write_bytes(b"x" * 11)
    (workspace / "z.csv").write_bytes(b"y" * 9)
    taken = store.take(workspace, NOTHING, {"z.csv": 100})
    assert set(taken.files) == {"z.csv", "a.txt"}
    assert taken.left_out == {"huge.bin": 11, "sub/b.txt": 3}
    assert set(store.take(workspace, NOTHING, {"huge.bin": 11}).files) == {"huge.bin"}
    assert "huge.bin" in store.take(workspace, NOTHING, {"huge.bin": 10}).left_out


def test_links_count_like_files_and_only_some_of_what_is_left_out_is_named(workspace, store, monkeypatch):
    monkeypatch.setattr(snapshots, "MOST_FILES", 4)
    monkeypatch.setattr(snapshots, "MOST_NAMED", 3)
    for place in range(6):
        (workspace / f"link{place}").symlink_to("a.txt")
    taken = store.take(workspace, NOTHING)
    assert len(taken.files) + len(taken.links) == 4
    assert (len(taken.left_out), taken.unnamed) == (3, 1)
    assert store.read_snapshot(store.keep_snapshot(taken)) == taken
    (workspace / "a.txt").write_text("changed")
    store.restore(taken, workspace, NOTHING)
    assert len(list(workspace.glob("link*"))) == 6  # which of them had no name is not known
    assert (workspace / "a.txt").read_text() != "changed"


def test_a_workspace_comes_back_as_it_was(workspace, store, tmp_path):
    (workspace / "link").symlink_to("a.txt")
    taken = store.take(workspace, NOTHING)
    (workspace / "a.txt").write_text("changed")
    (workspace / "later.txt").write_text("later")
    (workspace / "sub" / "b.txt").unlink()
    (workspace / "sub").rmdir()
    (tmp_path / "outside").mkdir()
    (workspace / "sub").symlink_to(tmp_path / "outside")
    (workspace / "link").unlink()
    store.restore(taken, workspace, NOTHING)
    assert store.take(workspace, NOTHING) == taken
    assert not (tmp_path / "outside" / "b.txt").exists()
    assert (workspace / "sub" / "b.txt").read_text() == "two"


def test_read_only_files_and_public_data_are_in_no_snapshot(tmp_path, store):
    task = make_task(tmp_path / "task")
    read_only = ReadOnly.of(task)
    lay_out(task, tmp_path / "workspace")
    (tmp_path / "workspace" / "data").mkdir()
    (tmp_path / "workspace" / "data" / "x").write_text("x")
    assert set(store.take(tmp_path / "workspace", read_only).files) == {"train.py"}
    assert read_only.files == {"rules.txt", "notes/fixed.txt"}
    for path in ("rules.txt", "notes/fixed.txt", "data", "data/any/thing"):
        assert path in read_only
    for path in ("train.py", "notes/new.txt", "database"):
        assert path not in read_only


@pytest.mark.parametrize("target", ["/etc/passwd", "../../outside.txt"])
def test_a_starter_link_that_leads_out_is_refused(tmp_path, target):
    task = make_task(tmp_path / "task")
    (task.env / "link").symlink_to(target)
    with pytest.raises(UserError, match="leads out of"):
        lay_out(task, tmp_path / "workspace")


def test_a_starter_link_within_stays_a_link(tmp_path):
    task = make_task(tmp_path / "task")
    (task.env / "link").symlink_to("train.py")
    lay_out(task, tmp_path / "workspace")
    assert (tmp_path / "workspace" / "link").readlink().name == "train.py"


def test_a_packed_workspace_is_unpacked_as_it_was(workspace, store, tmp_path):
    first = store.take(workspace, NOTHING)
    (workspace / "a.txt").write_text("changed")
    last = store.take(workspace, NOTHING)
    pack(store, {7: ([first], last)}, tmp_path / "workspaces.zip")
    packed = read_packed(tmp_path / "workspaces.zip", 7)
    assert (packed.steps, packed.final) == ((first,), last)
    unpack(tmp_path / "workspaces.zip", packed.steps[0], tmp_path / "back")
    assert (tmp_path / "back" / "a.txt").read_text() == "one"
    with zipfile.ZipFile(tmp_path / "workspaces.zip") as archive:
        assert len([name for name in archive.namelist() if name.startswith("blobs/")]) == 3
    with pytest.raises(UserError, match="no workspace of seed 8"):
        read_packed(tmp_path / "workspaces.zip", 8)


@pytest.mark.parametrize("path", ["../out.txt", "/tmp/out.txt", "a/../../out.txt", "", "a//b"])
def test_a_hostile_zip_writes_nothing_outside(tmp_path, path):
    digest = blake3(b"x").hexdigest()
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr(f"blobs/{digest}", "x")
        archive.writestr("seeds/1.json", json.dumps({"steps": [], "final": {"files": {path: digest}}}))
    with pytest.raises(UserError, match="leads out"):
        unpack(tmp_path / "bad.zip", read_packed(tmp_path / "bad.zip", 1).final, tmp_path / "into" / "here")
    assert not list(tmp_path.rglob("out.txt"))


def test_a_content_that_is_not_its_digest_is_refused(tmp_path):
    digest = blake3(b"x").hexdigest()
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr(f"blobs/{digest}", "y")
        archive.writestr("seeds/1.json", json.dumps({"steps": [], "final": {"files": {"a": digest}}}))
    with pytest.raises(UserError, match="not what its digest says"):
        unpack(tmp_path / "bad.zip", read_packed(tmp_path / "bad.zip", 1).final, tmp_path / "into")


def test_writing_beneath_replaces_a_link_in_the_way_and_leaves_its_target(tmp_path):
    (tmp_path / "victim").write_text("safe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").symlink_to(tmp_path / "victim")
    write_beneath(tmp_path / "folder", "a", b"new")
    assert (tmp_path / "victim").read_text() == "safe"
    assert (tmp_path / "folder" / "a").read_text() == "new"
    assert not (tmp_path / "folder" / "a").is_symlink()
