"""Data fetched from a server of the test's own: resumed, verified, unpacked, never outside the task's folder."""

import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from filelock import FileLock

from agml_assets.errors import UserError
from agml_assets.evaluation.tasks import download as module
from agml_assets.evaluation.tasks import download_task
from agml_assets.registry.tasks import DownloadFile, TaskEntry


class Server:
    """Files by path; `cut` ends the next answers early, `refuse` answers with errors, `asked` records requests."""

    def __init__(self):
        self.files, self.asked, self.cut, self.refuse, self.tag, self.ranges = {}, [], [], [], '"1"', True
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                wanted = self.headers.get("Range")
                server.asked.append((self.path, wanted))
                if server.refuse:
                    return self.send_error(server.refuse.pop(0))
                if self.path not in server.files:
                    return self.send_error(404)
                content, start = server.files[self.path], 0
                if wanted and server.ranges and self.headers.get("If-Range") == server.tag:
                    start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
                    if start >= len(content):
                        return self.send_error(416)
                    self.send_response(206)
                    self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
                else:
                    self.send_response(200)
                if server.tag:
                    self.send_header("ETag", server.tag)
                self.send_header("Content-Length", str(len(content) - start))
                self.end_headers()
                end = min(len(content), start + server.cut.pop(0)) if server.cut else len(content)
                self.wfile.write(content[start:end])
                if end < len(content):
                    self.close_connection = True
                return None

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(module, "_PAUSE", 0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = Server()
    yield server
    server.close()


def entry(tmp_path, *files, instructions=""):
    return TaskEntry.model_validate(
        {
            "key": "toy", "path": tmp_path / "toy", "modality": "drawings",
            "download": {"files": [DownloadFile(**file) for file in files], "instructions": instructions},
        }
    )  # fmt: skip


def tar(*members, mode="w:gz"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                name, content = member
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zipped(*members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".downloads" not in path.parts
    }


def nothing_unfinished(folder):
    names = {path.name for path in (folder / ".downloads").iterdir()} - {"lock"}
    return all(name.endswith(".done") for name in names)


def test_a_file_is_fetched_once_and_verified(server, tmp_path):
    server.files["/a.csv"] = b"x,y\n1,2\n"
    task = entry(
        tmp_path,
        {"url": f"{server.url}/a.csv", "file": "tables/a.csv", "bytes": 8,
         "md5": hashlib.md5(b"x,y\n1,2\n").hexdigest(), "sha256": hashlib.sha256(b"x,y\n1,2\n").hexdigest()},
        instructions="Ask the owner for the rest.",
    )  # fmt: skip
    done = download_task(task)
    assert done == module.Downloaded(tmp_path / "toy", ("tables/a.csv",), "Ask the owner for the rest.")
    assert contents(tmp_path / "toy") == {"tables/a.csv": b"x,y\n1,2\n"}
    assert download_task(task).fetched == ()
    assert len(server.asked) == 1


def test_an_interrupted_file_goes_on_where_it_ended(server, tmp_path):
    content = os.urandom(300_000)
    server.files["/big"] = content
    server.cut = [100_000, 50_000]
    download_task(
        entry(tmp_path, {"url": f"{server.url}/big", "file": "big", "md5": hashlib.md5(content).hexdigest()})
    )
    assert [wanted for _, wanted in server.asked] == [None, "bytes=100000-", "bytes=150000-"]
    assert contents(tmp_path / "toy") == {"big": content}
    assert nothing_unfinished(tmp_path / "toy")


def test_a_later_call_goes_on_where_an_earlier_one_gave_up(server, tmp_path):
    content = os.urandom(200_000)
    server.files["/big"] = content
    server.cut = [120_000]
    task = entry(tmp_path, {"url": f"{server.url}/big", "file": "big"})
    server.refuse = []
    original, module._ATTEMPTS = module._ATTEMPTS, 1
    try:
        server.cut = [120_000, 0]
        with pytest.raises(UserError, match="cannot be fetched: .* What was fetched is kept; call again"):
            download_task(task)
    finally:
        module._ATTEMPTS = original
    assert contents(tmp_path / "toy") == {}
    download_task(task)
    assert server.asked[-1] == ("/big", "bytes=120000-")
    assert contents(tmp_path / "toy") == {"big": content}


def test_parts_of_two_versions_are_never_joined(server, tmp_path):
    server.files["/big"], server.cut = b"a" * 1000, [400]
    served = []
    original = module._stream

    def change_in_between(*arguments):
        whole = original(*arguments)
        served.append(whole)
        server.files["/big"], server.tag = b"b" * 900, '"2"'
        return whole

    module._stream = change_in_between
    try:
        download_task(entry(tmp_path, {"url": f"{server.url}/big", "file": "big"}))
    finally:
        module._stream = original
    assert contents(tmp_path / "toy") == {"big": b"b" * 900}


def test_a_server_that_cannot_go_on_sends_all_again(server, tmp_path):
    content = os.urandom(5000)
    server.files["/big"], server.cut, server.ranges = content, [2000], False
    download_task(entry(tmp_path, {"url": f"{server.url}/big", "file": "big"}))
    assert contents(tmp_path / "toy") == {"big": content}


def test_passing_faults_are_tried_again_and_lasting_ones_are_said(server, tmp_path):
    server.files["/a"] = b"a"
    server.refuse = [503, 429]
    download_task(entry(tmp_path, {"url": f"{server.url}/a", "file": "a"}))
    assert len(server.asked) == 3
    with pytest.raises(UserError, match="/gone answered 404"):
        download_task(entry(tmp_path, {"url": f"{server.url}/gone", "file": "b"}))
    server.refuse = [503] * 5
    with pytest.raises(UserError, match="cannot be fetched: 503"):
        download_task(entry(tmp_path, {"url": f"{server.url}/a", "file": "c"}))


@pytest.mark.parametrize(
    ("promise", "message"),
    [
        ({"md5": "0" * 32}, "its md5 is"),
        ({"sha256": "0" * 64}, "its sha256 is"),
        ({"bytes": 7}, "has 8 bytes, but 7"),
    ],
)
def test_another_file_than_published_is_refused_and_fetched_anew(server, tmp_path, promise, message):
    server.files["/a"] = b"x,y\n1,2\n"
    task = entry(tmp_path, {"url": f"{server.url}/a", "file": "a", **promise})
    for _ in range(2):
        with pytest.raises(UserError, match=message):
            download_task(task)
    assert contents(tmp_path / "toy") == {}
    assert len(server.asked) == 2


def test_several_parts_make_one_archive(server, tmp_path):
    whole = zipped(("G1/1.jpg", os.urandom(3000)), ("G1/2.jpg", b"two"))
    cuts = [whole[:1000], whole[1000:1500], whole[1500:]]
    server.files = {f"/part_a{letter}": part for letter, part in zip("abc", cuts, strict=True)}
    server.cut = [1000, 200]
    task = entry(
        tmp_path, {"url": [f"{server.url}/part_a{i}" for i in "abc"], "file": "image/all.zip", "unpack": "image"}
    )
    download_task(task)
    assert contents(tmp_path / "toy")["image/G1/2.jpg"] == b"two"
    assert nothing_unfinished(tmp_path / "toy")
    assert download_task(task).fetched == ()


def test_a_part_that_was_killed_while_it_was_joined_is_joined_once(server, tmp_path):
    server.files = {"/a": b"first", "/b": b"second"}
    state = tmp_path / "toy/.downloads"
    state.mkdir(parents=True)
    (state / "all.joined").write_bytes(b"firstsec")  # killed in the middle of the second part
    (state / "all.joined.json").write_text(json.dumps({"parts": 1, "bytes": 5}))
    download_task(entry(tmp_path, {"url": [f"{server.url}/a", f"{server.url}/b"], "file": "all"}))
    assert contents(tmp_path / "toy") == {"all": b"firstsecond"}
    assert [path for path, _ in server.asked] == ["/b"]


@pytest.mark.parametrize("archive", [tar, lambda *m: tar(*m, mode="w"), lambda *m: tar(*m, mode="w:xz"), zipped])
def test_archives_are_unpacked_beside_what_is_there_and_removed(server, tmp_path, archive):
    server.files["/x"] = archive(("train/a/1.jpg", b"one"), ("./train/b/2.jpg", b"two"), ("readme", b""))
    (tmp_path / "toy/deep/train/a").mkdir(parents=True)
    (tmp_path / "toy/deep/train/a/0.jpg").write_bytes(b"zero")
    task = entry(tmp_path, {"url": f"{server.url}/x", "file": "x", "unpack": "deep"})
    assert download_task(task).fetched == ("x",)
    assert contents(tmp_path / "toy") == {
        "deep/train/a/0.jpg": b"zero", "deep/train/a/1.jpg": b"one", "deep/train/b/2.jpg": b"two",
        "deep/readme": b"",
    }  # fmt: skip
    assert nothing_unfinished(tmp_path / "toy")
    assert download_task(task).fetched == ()


def link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def linked_zip():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo("out")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc")
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        tar(("ok", b"1"), ("../escaped", b"2")),
        tar(("ok", b"1"), ("/tmp/escaped", b"2")),
        tar(("ok", b"1"), ("a/../../escaped", b"2")),
        tar(("ok", b"1"), link("out", "/etc")),
        tar(("ok", b"1"), link("out", "../.."), ("out/escaped", b"2")),
        tar(("ok", b"1"), link("out", "../../../etc/hostname", tarfile.LNKTYPE)),
        tar(("ok", b"1"), link("pipe", "", tarfile.FIFOTYPE)),
        tar(("ok", b"1"), link("device", "", tarfile.CHRTYPE)),
        zipped(("ok", b"1"), ("../escaped", b"2")),
        zipped(("ok", b"1"), ("..\\escaped", b"2")),
        linked_zip(),
    ],
)
def test_archives_that_lead_out_leave_nothing_behind(server, tmp_path, content):
    server.files["/x"] = content
    with pytest.raises(UserError, match="Nothing was unpacked"):
        download_task(entry(tmp_path, {"url": f"{server.url}/x", "file": "x", "unpack": "."}))
    assert contents(tmp_path / "toy") == {}
    assert not (tmp_path / "escaped").exists()
    assert not list(tmp_path.rglob("unpacked-*"))


def test_an_archive_that_grows_beyond_measure_is_stopped(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_FLOOR", 100_000)
    server.files["/x"] = tar(("bomb", b"\0" * 5_000_000))
    with pytest.raises(UserError, match="unpacks to more than 0.1 MB, 20 times its size"):
        download_task(entry(tmp_path, {"url": f"{server.url}/x", "file": "x", "unpack": "."}))
    assert contents(tmp_path / "toy") == {}
    assert not list(tmp_path.rglob("unpacked-*"))


def test_an_archive_of_too_many_files_is_stopped(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MAX_FILES", 3)
    server.files["/x"] = tar(*((str(i), b"") for i in range(4)))
    with pytest.raises(UserError, match="more than 3 files"):
        download_task(entry(tmp_path, {"url": f"{server.url}/x", "file": "x", "unpack": "."}))


@pytest.mark.parametrize(
    "content",
    [b"", b"<html>log in</html>", tar(("a", os.urandom(5000)))[:-2000], zipped(("a", os.urandom(5000)))[:-30]],
)
def test_damaged_archives_are_said_and_fetched_anew(server, tmp_path, content):
    server.files["/x"] = content
    task = entry(tmp_path, {"url": f"{server.url}/x", "file": "x", "unpack": "."})
    with pytest.raises(UserError, match="the archive is damaged"):
        download_task(task)
    assert contents(tmp_path / "toy") == {}
    server.files["/x"] = tar(("a", b"1"))
    download_task(task)
    assert contents(tmp_path / "toy") == {"a": b"1"}


def test_a_wrong_checksum_inside_a_zip_is_damage(server, tmp_path):
    content = bytearray(zipped(("a", b"0123456789" * 5)))
    content[14:18] = b"\0\0\0\0"  # the CRC in the local header
    start = content.index(b"PK\1\2")
    content[start + 16 : start + 20] = b"\0\0\0\0"  # and in the directory
    server.files["/x"] = bytes(content)
    with pytest.raises(UserError, match="the archive is damaged"):
        download_task(entry(tmp_path, {"url": f"{server.url}/x", "file": "x", "unpack": "."}))


def test_nothing_is_written_through_a_link_that_leads_out(server, tmp_path):
    server.files["/x"] = tar(("train/a", b"1"))
    (tmp_path / "toy").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "toy/train").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="leads out of .* by a link"):
        download_task(entry(tmp_path, {"url": f"{server.url}/x", "file": "x", "unpack": "."}))
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_was_removed_again_is_fetched_again(server, tmp_path):
    server.files = {"/x": tar(("train/a", b"1"), ("val/b", b"2")), "/y": b"y"}
    task = entry(
        tmp_path,
        {"url": f"{server.url}/x", "file": "x", "unpack": "data"},
        {"url": f"{server.url}/y", "file": "y"},
    )
    download_task(task)
    assert download_task(task).fetched == ()
    shutil.rmtree(tmp_path / "toy/data/val")
    assert download_task(task).fetched == ("x",)
    assert contents(tmp_path / "toy") == {"data/train/a": b"1", "data/val/b": b"2", "y": b"y"}


def test_a_file_that_a_person_put_there_is_kept(server, tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/a").write_bytes(b"mine")
    assert download_task(entry(tmp_path, {"url": f"{server.url}/a", "file": "a"})).fetched == ()
    task = entry(tmp_path, {"url": f"{server.url}/a", "file": "a", "md5": "0" * 32})
    with pytest.raises(UserError, match="damaged, or another version. Remove"):
        download_task(task)
    assert (tmp_path / "toy/a").read_bytes() == b"mine"
    assert server.asked == []


def test_two_processes_do_not_fetch_into_one_folder(server, tmp_path):
    (tmp_path / "toy/.downloads").mkdir(parents=True)
    with FileLock(tmp_path / "toy/.downloads/lock"), pytest.raises(UserError, match="another process"):
        download_task(entry(tmp_path, {"url": f"{server.url}/a", "file": "a"}))


def test_a_disk_that_is_too_small_is_said_before_anything_is_fetched(server, tmp_path, monkeypatch):
    server.files["/a"] = b"x" * 1000
    usage = module.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage._replace(free=10))
    with pytest.raises(UserError, match="are to be fetched, but the disk"):
        download_task(entry(tmp_path, {"url": f"{server.url}/a", "file": "a"}))


def test_a_task_for_which_an_account_is_needed_gives_instructions(tmp_path):
    done = download_task(entry(tmp_path, instructions="Accept the conditions first."))
    assert (done.fetched, done.instructions) == ((), "Accept the conditions first.")
