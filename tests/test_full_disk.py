"""A full disk: said in words, before or at the write; what was stored is whole, and runs go on once there is room.

The disk is a small file system in memory, which only root may mount; elsewhere these tests are skipped.
"""

import os
import shutil
import subprocess
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

import agml_assets
from agml_assets.dataset import decode_pass
from agml_assets.embeddings.cache import EmbeddingCache, embed_in_shards
from agml_assets.errors import UserError
from agml_assets.store import ArtifactStore
from agml_assets.training.reference_trainer import ReferenceTrainer
from tests.same_files import artifacts, different, unfinished
from tests.tiny import write_images, write_registry

SIDECAR = {"artifact": "room/name", "code_version": "1", "inputs": {}, "settings": {}}
PAGE = 4096
FULL = r"The disk of .* is full \(.* free\): .* could not be written\..* AGML_RESULTS .*run the same again"


@pytest.fixture
def disk(tmp_path):
    """A disk of a megabyte; `resize` changes that, `fill` leaves so many pages free."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", folder).returncode != 0:
        pytest.skip("file systems cannot be mounted here")

    def fill(pages=0):
        (folder / "filler").write_bytes(bytes(shutil.disk_usage(folder).free - pages * PAGE))

    def resize(size):
        assert mount("-o", f"remount,size={size}", folder).returncode == 0

    yield SimpleNamespace(folder=folder, fill=fill, empty=(folder / "filler").unlink, resize=resize)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def mount(*arguments):
    return subprocess.run(["mount", *map(str, arguments)], capture_output=True, check=False)


VALUES = {
    "room/array.npy": lambda n: np.random.default_rng(n).random(n),
    "room/arrays.npz": lambda n: {"a": np.random.default_rng(n).random(n)},
    "room/frame.parquet": lambda n: pl.DataFrame({"x": np.random.default_rng(n).random(n)}),
    "room/value.json": lambda n: list(range(n)),
    "room/page.html": lambda n: "x" * n * 8,
}


@pytest.mark.parametrize("file", VALUES)
def test_an_artifact_that_does_not_fit_leaves_the_old_one_and_is_written_once_there_is_room(disk, file):
    store, make = ArtifactStore(disk.folder), VALUES[file]
    old = store.write("beans", file, make(100), SIDECAR)
    disk.fill(pages=10)
    with pytest.raises(UserError, match=FULL):
        store.write("beans", file, make(30_000), SIDECAR)
    assert store.sidecar("beans", file) == old
    assert store.is_intact("beans", file)
    assert unfinished(disk.folder) == []
    disk.empty()
    new = store.write("beans", file, make(30_000), SIDECAR)
    assert new.digest != old.digest
    assert store.is_intact("beans", file)


def test_an_artifact_that_fits_without_its_sidecar_leaves_the_old_one(disk):
    store = ArtifactStore(disk.folder)
    old = store.write("beans", "room/array.npy", np.arange(100), SIDECAR)
    disk.fill(pages=1)
    with pytest.raises(UserError, match=FULL):
        store.write("beans", "room/array.npy", np.arange(200), SIDECAR)
    assert store.sidecar("beans", "room/array.npy") == old
    assert store.is_intact("beans", "room/array.npy")


def test_a_finished_file_is_kept_where_its_sidecar_does_not_fit(disk):
    store = ArtifactStore(disk.folder)
    finished = store.local_folder("beans", ".work/decode") / "pixels.npy"
    np.save(finished, np.arange(100))
    (disk.folder / "beans/room").mkdir()
    disk.fill()
    with pytest.raises(UserError, match=FULL):
        store.write("beans", "room/array.npy", finished, SIDECAR)
    assert finished.exists()
    disk.empty()
    store.write("beans", "room/array.npy", finished, SIDECAR)
    np.testing.assert_array_equal(store.read("beans", "room/array.npy"), np.arange(100))


@pytest.fixture
def run(disk, tmp_path):
    """Run phase 1 of `tiny` with its results on the small disk."""
    registry = write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images"))

    def run(**given):
        return agml_assets.run("tiny", registry=registry, results=disk.folder / "results", phases=1, **given)

    return run


def test_pixels_that_will_not_fit_are_refused_before_an_image_is_decoded(disk, run, monkeypatch):
    monkeypatch.setattr(decode_pass, "measure_in_order", None)
    with pytest.raises(UserError, match=r"24 images need 4\.7 MB more in .*, where .* are free\..*AGML_RESULTS"):
        run()
    assert unfinished(disk.folder) == []


def test_a_disk_that_fills_up_while_decoding_is_named_and_the_next_try_succeeds(disk, run, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(decode_pass._Work, "require_space", lambda *_: None)
        with pytest.raises(UserError, match=FULL):
            run()
    disk.resize("50m")
    run()
    assert ArtifactStore(disk.folder / "results").is_intact("tiny", "dataset/pixels.npy")


def test_a_run_on_a_full_disk_leaves_the_old_report_whole(disk, run, monkeypatch):
    disk.resize("50m")
    run()
    tiny = disk.folder / "results" / "tiny"
    before = artifacts(tiny)
    disk.fill()
    with pytest.raises(UserError, match="full|are free"):
        run(force=True)
    assert different(artifacts(tiny), before) == []
    store = ArtifactStore(disk.folder / "results")
    assert all(store.is_intact("tiny", name) for name in before if f"{name}.meta.json" in before)
    disk.empty()
    run(force=True)
    assert different(artifacts(tiny), before) == []
    assert unfinished(disk.folder) == []


def encode(rows):
    return np.ones((len(rows), 1000), dtype=np.float32)


def test_vectors_that_do_not_fit_are_refused_in_words_and_give_their_room_back(disk, tmp_path):
    cache = EmbeddingCache(ArtifactStore(tmp_path / "results"), {"model": "m"})
    with pytest.raises(UserError, match=r"is full .*1000 vectors of 1000 numbers could not be written"):
        embed_in_shards(encode, [f"image{n}" for n in range(1000)], cache, disk.folder / "vectors.npy", 10)
    assert list(disk.folder.iterdir()) == []


def test_shards_that_were_cached_before_the_disk_was_full_are_found_again(disk, tmp_path):
    images = [f"image{n}" for n in range(300)]
    cache = EmbeddingCache(ArtifactStore(disk.folder), {"model": "m"})
    with pytest.raises(UserError, match=FULL):
        embed_in_shards(encode, images, cache, tmp_path / "vectors.npy", 20)
    assert unfinished(disk.folder) == []
    disk.resize("50m")
    use = embed_in_shards(encode, images, cache, tmp_path / "vectors.npy", 20)
    assert (use.hits > 100, use.hits % 20, use.hits + use.misses) == (True, 0, 300)


def test_a_checkpoint_that_does_not_fit_leaves_the_last_one_to_go_on_from(disk):
    disk.resize("70m")  # one checkpoint of this network and its optimizer, not two
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, size=(8, 256, 256, 3), dtype=np.uint8)
    rows, labels = np.arange(6), np.arange(8) % 2
    trainer = ReferenceTrainer("efficientnet_lite0", epochs=3, image_size=32)

    def train():
        return trainer.train(pixels, rows, labels, 2, disk.folder, np.arange(6, 8), pixels_digest="d")

    with pytest.raises(UserError, match=r"is full .*the checkpoint could not be written"):
        train()
    assert [path.name for path in disk.folder.iterdir()] == ["checkpoint.pt"]
    disk.resize("200m")
    assert train().resumed_epochs == 1
