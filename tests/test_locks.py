"""A lock keeps a second process out, names its holder, and dies with its process."""

import logging
import subprocess
import sys
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
