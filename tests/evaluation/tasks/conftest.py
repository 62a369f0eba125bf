"""Miniature folders in the layout of the published tasks: pictures of 16 x 16 pixels, tables of a few rows."""

import functools
from pathlib import Path

import pytest
from PIL import Image

from agml_assets.evaluation.tasks import read_task
from agml_assets.registry.tasks import load_tasks


@functools.cache
def shipped():
    return load_tasks()


class Folder:
    """A task's folder, filled by a test."""

    def __init__(self, root):
        self.root = root

    def picture(self, *names):
        for name in names:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            shade = sum(name.encode()) % 256
            Image.new("RGB", (16, 16), (shade, 255 - shade, 128)).save(
                path, "PNG" if path.suffix.lower() == ".png" else "JPEG"
            )

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def entry(self, key, **changes):
        return shipped().get(key).model_copy(update={"path": self.root, **changes})

    def read(self, key, **changes):
        data = read_task(self.entry(key, **changes))
        for images in data.examples["images"]:
            for image in images:
                if "#" not in image:
                    assert not Path(image).is_absolute()
                    with Image.open(data.root / image) as opened:
                        assert opened.size == (16, 16)
        return data


@pytest.fixture(autouse=True)
def no_registry_of_the_shell(monkeypatch):
    monkeypatch.delenv("AGML_TASKS", raising=False)
    monkeypatch.delenv("AGML_TASK_DATA", raising=False)


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "task"
    root.mkdir()
    return Folder(root)


@pytest.fixture
def rows():
    """Example -> (split, label, images, group)."""

    def of(data):
        columns = data.examples.select("example", "split", "label", "images", "group")
        return {
            example: (split, label, images, group) for example, split, label, images, group in columns.iter_rows()
        }

    return of
