"""One process at a time computes on a GPU; within a process nobody waits for himself."""

import logging
import tempfile
import threading
from types import SimpleNamespace

import pytest

from agml_assets.device import use_device
from tests.test_locks import hold


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A machine with one GPU, as far as its lock goes."""
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
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
