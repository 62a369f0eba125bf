"""A lock keeps a second process out, names its holder, and dies with its process."""

import logging
import subprocess
import sys
import threading
import time

from agml_assets.locks import exclusive

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
    with caplog.at_level(logging.WARNING), exclusive(lock, "dataset 'beans'", "run 43"):
        waited = time.monotonic() - started
    killer.wait()
    holder.wait()
    assert waited > 1.0
    assert f"Waiting for dataset 'beans': held by run 42 (process {holder.pid} on " in caplog.text


def test_a_free_lock_is_taken_at_once_again_and_again(tmp_path):
    for _ in range(3):
        with exclusive(tmp_path / "beans.lock", "dataset 'beans'", "run 1"):
            pass


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
