"""A lock keeps a second process out, names its holder, and dies with its process."""

import logging
import subprocess
import sys
import threading
import time
from pathlib import Path

from agml_assets.locks import Unfinished, exclusive, remove_unfinished

HOLD = """
import sys, time
from pathlib import Path
from agml_assets.locks import exclusive
with exclusive(Path(sys.argv[1]), "dataset 'beans'", "run 42"):
    print("held", flush=True)
    time.sleep(60)
"""


def hold(lock):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def test_a_killed_holder_frees_the_lock_and_the_waiter_had_named_it(tmp_path, caplog):
    lock = tmp_path / "beans.lock"
    holder = hold(lock)
    killer = subprocess.Popen(
        [sys.executable, "-c", f"import time, os; time.sleep(2.5); os.kill({holder.pid}, 9)"]
    )
    started = time.monotonic()
    with caplog.at_level(logging.WARNING), exclusive(lock, "dataset 'beans'", "run 43") as killed:
        waited = time.monotonic() - started
    killer.wait()
    holder.wait()
    assert waited > 1.0
    assert killed == "run 42"
    assert f"Waiting for dataset 'beans': held by run 42 (process {holder.pid} on " in caplog.text


def test_a_free_lock_is_taken_at_once_again_and_again(tmp_path):
    for _ in range(3):
        with exclusive(tmp_path / "beans.lock", "dataset 'beans'", "run 1") as killed:
            assert killed is None


def test_two_processes_are_never_inside_together(tmp_path):
    worker = """
import sys, time
from pathlib import Path
from agml_assets.locks import exclusive
lock, log = Path(sys.argv[1]), Path(sys.argv[2])
for _ in range(5):
    with exclusive(lock, "it", sys.argv[3]):
        for word in ("in", "out"):
            with log.open("a") as file:
                file.write(f"{sys.argv[3]} {word}\\n")
            time.sleep(0.02)
"""
    log = tmp_path / "log"
    command = [sys.executable, "-c", worker, str(tmp_path / "it.lock"), str(log)]
    workers = [subprocess.Popen([*command, name]) for name in "ab"]
    assert [w.wait() for w in workers] == [0, 0]
    lines = log.read_text().splitlines()
    assert len(lines) == 20
    for entered, left in zip(lines[::2], lines[1::2], strict=True):
        assert (entered[2:], left[2:], entered[0]) == ("in", "out", left[0])


def test_the_lock_is_freed_when_the_work_fails_and_holds_within_one_process_too(tmp_path):
    lock, order = tmp_path / "beans.lock", []

    def second():
        with exclusive(lock, "it", "second"):
            order.append("second")

    waiter = threading.Thread(target=second)
    try:
        with exclusive(lock, "it", "first"):
            waiter.start()
            time.sleep(0.2)
            order.append("first")
            raise RuntimeError
    except RuntimeError:
        waiter.join(timeout=20)
    assert order == ["first", "second"]
    assert not list(tmp_path.glob("*.holder.json"))


def test_a_note_that_says_nothing_stops_nobody(tmp_path, caplog):
    lock = tmp_path / "beans.lock"
    holder = hold(lock)
    (tmp_path / "beans.holder.json").write_text("[]")
    threading.Timer(1.5, holder.kill).start()
    with caplog.at_level(logging.WARNING), exclusive(lock, "dataset 'beans'", "run 43"):
        pass
    holder.wait()
    assert f"held by another process (lock {lock})" in caplog.text


UNFINISHED = """
import sys, time
from pathlib import Path
from agml_assets.locks import Unfinished
file = Unfinished(Path(sys.argv[1]), "array.npy")
file.path.write_text("half")
print(file.path, flush=True)
time.sleep(60)
"""


def test_an_unfinished_file_is_removed_only_when_its_writer_is_dead(tmp_path):
    writer = subprocess.Popen([sys.executable, "-c", UNFINISHED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    file = Path(writer.stdout.readline().strip())
    assert list(remove_unfinished([file])) == []
    assert file.read_text() == "half"
    writer.kill()
    writer.wait()
    assert list(remove_unfinished([file])) == [file]
    assert not file.exists()


def test_a_file_that_was_given_its_name_stays_and_another_goes(tmp_path):
    with Unfinished(tmp_path, "kept") as stage:
        stage.write_text("whole")
        stage.replace(tmp_path / "kept")
    with Unfinished(tmp_path, "dropped"):
        pass
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("kept", "whole")]


def test_cleaning_up_all_the_time_never_takes_a_file_from_its_writers(tmp_path):
    write = """
import sys
from pathlib import Path
from agml_assets.locks import Unfinished
folder = Path(sys.argv[1])
for number in range(300):
    with Unfinished(folder, sys.argv[2]) as stage:
        stage.write_text(str(number))
        stage.replace(folder / sys.argv[2])
"""
    writers = [subprocess.Popen([sys.executable, "-c", write, str(tmp_path), name]) for name in "ab"]
    while any(writer.poll() is None for writer in writers):
        list(remove_unfinished(tmp_path.glob(".*.tmp")))
    assert [writer.returncode for writer in writers] == [0, 0]
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "299", "b": "299"}


def test_a_lock_can_be_held_where_the_note_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr("agml_assets.locks.Unfinished", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with exclusive(tmp_path / "beans.lock", "dataset 'beans'", "run 1"):
        assert not list(tmp_path.glob("*.holder.json"))
