"""One process at a time computes on a GPU; within a process nobody waits for himself. How batches get there."""

import logging
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest

from agml_assets.device import feed, half_precision, hold_gpu, mixed_precision, one_ahead, use_device
from tests.test_locks import hold


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A machine with one GPU, as far as its lock goes."""
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="GPU-1"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / "agml-assets-locks" / "gpu-GPU-1.lock"


def test_the_gpu_is_held_until_the_end_and_steps_of_one_process_share_it(gpu):
    holder = gpu.with_suffix(".holder.json")
    with use_device("embedding") as outer:
        assert outer == "cuda"
        with use_device("comparing images") as inner:
            assert inner == "cuda"
        assert "embedding" in holder.read_text()
    assert not holder.exists()


def test_a_gpu_is_held_by_its_number_and_one_that_is_not_there_is_not(gpu):
    with hold_gpu(0, "agent starter"):
        assert "agent starter" in gpu.with_suffix(".holder.json").read_text()
        with use_device("embedding") as inner:
            assert inner == "cuda"
    gpu.unlink()
    with hold_gpu(1, "agent starter"):
        assert not gpu.exists()


def test_another_process_on_the_gpu_is_waited_for_and_named(gpu, caplog):
    gpu.parent.mkdir()
    other = hold(gpu)
    with caplog.at_level(logging.WARNING):
        threading.Timer(2.5, other.kill).start()
        with use_device("embedding") as device:
            assert other.poll() is not None
            assert device == "cuda"
    assert "Waiting for GPU GPU-1" in caplog.text
    assert "run 42" in caplog.text


def test_without_a_gpu_nothing_is_held(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with use_device("embedding") as device:
        assert device == "cpu"
    assert list(tmp_path.iterdir()) == []


# --- how batches get there -------------------------------------------------------------------------


def test_results_come_in_order_and_exactly_one_is_made_ahead():
    started, finished = [], []

    def work(item):
        started.append(item)
        finished.append(threading.Event())
        finished[item].set()
        return item * 10

    seen = []
    for result in one_ahead(range(6), work):
        turn = len(seen)
        if turn + 1 < 6:
            while len(finished) < turn + 2:
                pass  # the next is made while this one is in hand
            finished[turn + 1].wait(5)
        assert len(started) == min(turn + 2, 6)
        seen.append(result)
    assert seen == [0, 10, 20, 30, 40, 50]
    assert list(one_ahead([], work)) == []


def test_an_error_of_loading_reaches_the_caller_at_its_batch():
    def work(item):
        if item == 2:
            raise OSError("disk gone")
        return item

    results = one_ahead(range(5), work)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(OSError, match="disk gone"):
        next(results)


def test_a_caller_that_stops_leaves_no_thread():
    before = threading.active_count()
    with closing(one_ahead(range(100), lambda item: item)) as results:
        next(results)
    assert threading.active_count() == before


def test_on_the_processor_a_batch_is_loaded_when_it_is_asked_for():
    import torch

    loaded = []

    def load(batch):
        loaded.append(batch)
        return np.full((2, 2), batch, np.uint8)

    for number, (batch, tensor) in enumerate(feed(range(3), load, torch.device("cpu"))):
        assert loaded == list(range(number + 1))
        assert batch == number
        assert tensor.dtype == torch.uint8
        assert (tensor == number).all()


def test_mixed_precision_shortens_products_and_nothing_else():
    import torch

    one, device = torch.ones(3, 3), torch.device("cpu")
    with mixed_precision(device, "bfloat16"):
        assert (one @ one).dtype == torch.bfloat16
        assert torch.nn.functional.layer_norm(one, (3,)).dtype == torch.float32
    with mixed_precision(device, "float32"):
        assert (one @ one).dtype == torch.float32


@pytest.mark.parametrize(("native", "expected"), [(True, "bfloat16"), (False, "float16")])
def test_a_gpu_without_bfloat16_takes_float16(native, expected, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: native)
    assert half_precision(torch.device("cuda")) == expected
    assert half_precision(torch.device("cpu")) == "bfloat16"


ALLOCATE = """
import resource
import torch
from agml_assets.device import kept_memory

def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(25_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

model = [torch.ones(10_000_000) for _ in range(3)]
del model
with kept_memory(torch.device("cpu")):
    kept = min(new_pages() for _ in range(20))  # the first ones of a new process still make their room
print(kept, new_pages())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be told to keep memory")
def test_memory_of_one_batch_serves_the_next_and_is_given_back_at_the_end():
    # In a process of its own: what other tests have left in this one's memory would serve as well.
    done = subprocess.run([sys.executable, "-c", ALLOCATE], capture_output=True, text=True, check=True)
    kept, after = map(int, done.stdout.split())
    assert kept < 100 < 10_000 < after
