"""What only a GPU can show: the same numbers within a tolerance, pinned batches in order, memory, the lock.

Every test is skipped where there is no CUDA. The tolerances are those of `docs/gpu.md`.
"""

import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock, Timeout

from agml_assets.device import feed, half_precision, mixed_precision
from agml_assets.embeddings.embedder import PACKAGED_MODEL, ImageEmbedder
from agml_assets.embeddings.images import encode_from_pixels
from agml_assets.training.reference_trainer import ReferenceTrainer

PIXELS = np.random.default_rng(0).integers(0, 256, (96, 8, 8, 3), dtype=np.uint8).repeat(32, 1).repeat(32, 2)


@pytest.fixture(autouse=True)
def gpu():
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a GPU with CUDA")
    yield torch.device("cuda")
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


@pytest.fixture
def mapped(tmp_path):
    """The pixels as a mapped file, as they lie in the store."""
    np.save(tmp_path / "pixels.npy", PIXELS)
    return np.load(tmp_path / "pixels.npy", mmap_mode="r")


def on_the_processor(monkeypatch, work):
    import torch

    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        return work()


def embed(precision, pixels, batch_size=32):
    embedder = ImageEmbedder(PACKAGED_MODEL, precision=precision, batch_size=batch_size)
    try:
        return encode_from_pixels(embedder, pixels)(range(len(pixels))), embedder.device
    finally:
        embedder.close()


@pytest.mark.parametrize(("precision", "cosine"), [("float32", 0.9999), ("bfloat16", 0.999), ("float16", 0.999)])
def test_vectors_of_the_gpu_are_those_of_the_processor(precision, cosine, mapped, monkeypatch):
    expected, device = on_the_processor(monkeypatch, lambda: embed("float32", mapped))
    assert device == "cpu"
    vectors, device = embed(precision, mapped)
    assert device == "cuda"
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert (vectors * expected).sum(axis=1).min() >= cosine


def test_batches_arrive_whole_and_in_order_however_slow_the_work(gpu):
    import torch

    expected = [np.random.default_rng(i).integers(0, 256, (64, 224, 224, 3), dtype=np.uint8) for i in range(12)]
    sums = []
    for _, tensor in feed(range(12), lambda i: expected[i], gpu):
        assert tensor.is_cuda
        for _ in range(20):  # keeps the GPU busy while the next batch is copied
            torch.randn(2048, 2048, device=gpu) @ torch.randn(2048, 2048, device=gpu)
        sums.append(tensor.long().sum((1, 2, 3)))
        del tensor
    for batch, found in enumerate(sums):
        np.testing.assert_array_equal(found.cpu().numpy(), expected[batch].sum((1, 2, 3), dtype=np.int64))


def test_the_next_batch_is_loaded_while_the_gpu_computes(gpu):
    loading = threading.Event()

    def load(batch):
        if batch == 1:
            loading.set()
        return np.zeros((2, 2), np.uint8)

    batches = feed(range(3), load, gpu)
    next(batches)
    assert loading.wait(5)
    batches.close()


def test_a_full_gpu_halves_the_batch_and_gives_the_same_vectors(gpu, mapped):
    import torch

    expected, _ = embed("float32", mapped, batch_size=4)
    images = np.concatenate([mapped] * 20)
    total = torch.cuda.get_device_properties(gpu).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, 3 * 2**30 / total))  # 1,920 images need more
    embedder = ImageEmbedder(PACKAGED_MODEL, batch_size=len(images))
    vectors = embedder.encode_pixels(images)
    assert embedder.batch_size < len(images)
    embedder.close()
    assert (vectors[:96] * expected).sum(axis=1).min() > 0.99999
    np.testing.assert_allclose(vectors[96:192], vectors[:96], atol=1e-5)


def test_the_gpu_is_held_while_a_model_is_loaded_and_free_afterwards(gpu, mapped):
    import torch

    name = torch.cuda.get_device_properties(0).uuid
    lock = FileLock(Path(tempfile.gettempdir()) / "agml-assets-locks" / f"gpu-{name}.lock", mode=0o666)
    embedder = ImageEmbedder(PACKAGED_MODEL)
    embedder.encode_pixels(mapped[:2])
    with pytest.raises(Timeout):
        lock.acquire(timeout=0)
    embedder.close()
    lock.acquire(timeout=0)
    lock.release()
    assert torch.cuda.memory_allocated() < 2**20


def train(work_dir, pixels, **other):
    trainer = ReferenceTrainer(
        PACKAGED_MODEL, **{"epochs": 1, "learning_rate": 1e-4, "batch_size": 24, "image_size": 96} | other
    )
    labels = np.arange(len(pixels)) % 3
    return trainer.train(pixels, np.arange(72), labels, 3, work_dir, np.arange(72, 96), pixels_digest="p")


def test_a_training_on_the_gpu_begins_as_on_the_processor(mapped, tmp_path, monkeypatch, gpu):
    expected = on_the_processor(monkeypatch, lambda: train(tmp_path / "cpu", mapped))
    full = train(tmp_path / "full", mapped, precision="float32")
    mixed = train(tmp_path / "mixed", mapped)
    assert mixed.identity["precision"] == half_precision(gpu)
    assert full.identity["precision"] == "float32"
    # Of the first batch, before any update: dropout apart, which each device draws for itself, only rounding.
    assert np.abs(full.true_eval - expected.true_eval).max() < 0.1
    assert np.abs(mixed.true_eval - expected.true_eval).max() < 0.1


def test_a_training_that_does_not_fit_goes_on_with_fewer_images_at_once(gpu, tmp_path):
    import torch

    pixels = np.concatenate([PIXELS] * 4)
    total = torch.cuda.get_device_properties(gpu).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, 1.5 * 2**30 / total))
    trainer = ReferenceTrainer(PACKAGED_MODEL, epochs=1, learning_rate=1e-4, batch_size=256, image_size=224)
    labels = np.arange(len(pixels)) % 3
    training = trainer.train(pixels, np.arange(256), labels, 3, tmp_path, np.arange(256, 300), pixels_digest="p")
    assert training.images_at_once < 256
    assert np.isfinite(training.probabilities).all()


def test_reading_the_pixels_does_not_keep_the_gpu_waiting(gpu, tmp_path):
    import torch

    np.save(tmp_path / "pixels.npy", np.concatenate([PIXELS] * 16))
    pixels = np.load(tmp_path / "pixels.npy", mmap_mode="r")
    embedder = ImageEmbedder(PACKAGED_MODEL, precision=half_precision(gpu), batch_size=128)
    embedder.encode_pixels(pixels)  # loads and tunes
    start = time.perf_counter()
    embedder.encode_pixels(pixels)
    whole = time.perf_counter() - start
    inputs = embedder._look_up(torch.from_numpy(pixels[:128, 16:240, 16:240]).to(gpu))
    start = time.perf_counter()
    with torch.inference_mode(), mixed_precision(gpu, embedder.precision):
        for _ in range(len(pixels) // 128):
            embedder.backend.forward(inputs).float().cpu()
    assert whole < 2 * (time.perf_counter() - start)
    embedder.close()
