"""Progress lines say done, total, rate and time left, and are right after a resumed start."""

import pytest

from agml_assets.progress import Progress, describe_progress


class Clock:
    """A clock that a test sets."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr("agml_assets.progress.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_a_line_has_done_total_rate_and_time_left():
    line = describe_progress("images decoded", 500, 2000, 250, 100)
    assert line == "images decoded: 500 of 2000 (25%), 2.5 a second, 0:10:00 left"


def test_there_is_no_rate_before_anything_was_done():
    assert describe_progress("images", 5, 10, 0, 3) == "images: 5 of 10 (50%)"
    assert describe_progress("images", 0, 0, 0, 0) == "images: 0 of 0 (0%)"


def test_lines_come_every_ten_seconds_and_at_the_end(clock):
    lines = []
    progress = Progress("images", lines.append)
    for done in range(31):
        progress(done, 30)
        clock.now += 1
    assert len(lines) == 3
    assert lines[0] == "images: 10 of 30 (33%), 1.0 a second, 0:00:20 left"
    assert lines[1] == "images: 20 of 30 (67%), 1.0 a second, 0:00:10 left"
    assert lines[-1] == "images: 30 of 30 in 30.0 s"


def test_what_an_earlier_run_did_is_not_in_the_rate(clock):
    lines = []
    progress = Progress("images", lines.append)
    progress(900, 1000)
    clock.now += 10
    progress(920, 1000)
    assert lines == ["images: 920 of 1000 (92%), 2.0 a second, 0:00:40 left"]


def test_the_rate_is_right_from_the_second_shard_on(clock):
    lines = []
    progress = Progress("images", lines.append)
    for done in (100, 200):
        clock.now += 20
        progress(done, 400)
    assert lines[-1] == "images: 200 of 400 (50%), 5.0 a second, 0:00:40 left"


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    progress = Progress("images", lambda _: None)
    for done in (0, 5, 10):
        progress(done, 10)
    assert "images:" in capsys.readouterr().err


def test_no_bar_where_there_is_no_terminal(capsys):
    progress = Progress("images", lambda _: None)
    for done in (0, 10):
        progress(done, 10)
    assert capsys.readouterr().err == ""
