"""Images downloaded from a server on this machine, which breaks off, fails for now, and fails for good."""

import json
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar

import pytest

from agml_assets.agents.tasks.fathomnet import SUMS, Downloaded, download_images
from agml_assets.errors import UserError

CONTENT = bytes(range(256)) * 200


class Server(BaseHTTPRequestHandler):
    asked: ClassVar[Counter] = Counter()

    def do_GET(self):
        self.asked[self.path] += 1
        first = self.asked[self.path] == 1
        if self.path.startswith("/gone"):
            self.send_error(404)
            return
        if self.path.startswith("/busy") and self.asked[self.path] <= 2:
            self.send_error(503)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        broken = self.path.startswith("/never") or (self.path.startswith("/breaks") and first)
        self.wfile.write(CONTENT[: 1000 if broken else None])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    Server.asked = Counter()
    running = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.fixture
def listed(tmp_path, server):
    def write(*names):
        images = [{"file_name": f"{name}.png", "coco_url": f"{server}/{name}"} for name in names]
        (tmp_path / "train.json").write_text(json.dumps({"images": images}))
        return tmp_path / "train.json"

    return write


def fetch(dataset, tmp_path):
    return download_images(dataset, tmp_path / "images", pause_s=0.01)


def test_images_arrive_whole_though_the_server_breaks_off(listed, tmp_path):
    names = ["good", "breaks", "busy"]
    assert fetch(listed(*names), tmp_path) == Downloaded(3, 0)
    assert all((tmp_path / "images" / f"{name}.png").read_bytes() == CONTENT for name in names)
    assert Server.asked == {"/good": 1, "/breaks": 2, "/busy": 3}
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == [
        "breaks.png", "busy.png", SUMS, "good.png",
    ]  # fmt: skip


def test_what_is_there_stays_and_what_is_damaged_is_fetched_again(listed, tmp_path):
    dataset = listed("a", "b", "c")
    fetch(dataset, tmp_path)
    (tmp_path / "images" / "b.png").write_bytes(CONTENT[:-1])
    (tmp_path / "images" / "c.png").unlink()
    assert fetch(dataset, tmp_path) == Downloaded(2, 1)
    assert Server.asked["/a"] == 1
    assert (tmp_path / "images" / "b.png").read_bytes() == CONTENT


def test_one_image_that_cannot_be_had_does_not_cost_the_others(listed, tmp_path):
    with pytest.raises(UserError, match=r"2 of 4 images .*gone.png: HTTP Error 404.*never.png") as error:
        fetch(listed("a", "gone", "never", "b"), tmp_path)
    assert "Run the same again" in error.value.message
    assert Server.asked["/gone"] == 1
    assert Server.asked["/never"] == 5
    assert sorted(path.name for path in (tmp_path / "images").glob("*.png")) == ["a.png", "b.png"]


@pytest.mark.parametrize(
    ("name", "url"),
    [("../a.png", "http://x"), ("", "http://x"), ("a.png", "file:///etc/passwd"), (SUMS, "http://x")],
)
def test_names_and_addresses_that_lead_elsewhere_are_refused(tmp_path, name, url):
    (tmp_path / "train.json").write_text(json.dumps({"images": [{"file_name": name, "coco_url": url}]}))
    with pytest.raises(UserError, match="The list of images"):
        fetch(tmp_path / "train.json", tmp_path)


def test_a_list_that_is_none_is_named(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        fetch(tmp_path / "train.json", tmp_path)
    (tmp_path / "train.json").write_text("{}")
    with pytest.raises(UserError, match="must be JSON with `images`"):
        fetch(tmp_path / "train.json", tmp_path)
