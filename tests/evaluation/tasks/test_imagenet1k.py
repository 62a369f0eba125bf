"""ImageNet-1K as folders, as Parquet files and as a saved dataset; images in tables are opened where they lie."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from agml_assets.errors import UserError
from agml_assets.evaluation.tasks import ImageOpener


def jpeg(shade):
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16), (shade, shade, shade)).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def table(labels, shades, names=("tench", "goldfish", "shark")):
    features = {"image": {"_type": "Image"}, "label": {"names": list(names), "_type": "ClassLabel"}}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    images = [{"bytes": jpeg(shade), "path": f"{shade}.JPEG"} for shade in shades]
    return pa.table({"image": images, "label": pa.array(labels, pa.int64())}).replace_schema_metadata(metadata)


def shade(opened):
    with Image.open(io.BytesIO(opened) if isinstance(opened, bytes) else opened) as image:
        return image.convert("RGB").getpixel((8, 8))[0]


def test_folders(folder, rows):
    folder.picture("train/n01/a.JPEG", "train/n02/b.JPEG", "val/n02/c.JPEG")
    data = folder.read("imagenet1k")
    assert data.class_names == ("n01", "n02")
    assert rows(data)["val/n02/c.JPEG"][:2] == ("test", 1)
    assert ImageOpener(data.root)("val/n02/c.JPEG") == folder.root / "val/n02/c.JPEG"


def test_parquet_files_of_the_hub(folder, rows):
    data_folder = folder.root / "data"
    data_folder.mkdir()
    pq.write_table(table([1, 0, 2], [10, 20, 30]), data_folder / "train-00000-of-00002.parquet", row_group_size=2)
    pq.write_table(table([2], [40]), data_folder / "train-00001-of-00002.parquet")
    pq.write_table(table([0, 1], [50, 60]), data_folder / "validation-00000-of-00001.parquet")
    pq.write_table(table([-1], [70]), data_folder / "test-00000-of-00001.parquet")
    data = folder.read("imagenet1k", n_train=None, n_test=None, n_classes=None)
    assert data.class_names == ("tench", "goldfish", "shark")
    assert [(split, label) for split, label, *_ in rows(data).values()] == [
        ("train", 1), ("train", 0), ("train", 2), ("train", 2), ("test", 0), ("test", 1),
    ]  # fmt: skip
    opened = ImageOpener(data.root)
    references = [image for (image,) in data.examples["images"].to_list()]
    assert references[2] == "data/train-00000-of-00002.parquet#2"
    wanted = [10, 20, 30, 40, 50, 60]
    assert [
        abs(shade(opened(reference)) - want) <= 2 for reference, want in zip(references, wanted, strict=True)
    ] == ([True] * 6)
    assert abs(shade(opened(references[0])) - 10) <= 2  # back again, out of order
    with pytest.raises(UserError, match="no image in row 9"):
        opened("data/train-00000-of-00002.parquet#9")


def test_a_dataset_saved_by_the_library(folder, rows):
    for split, labels, shades in (("train", [2, 1], [80, 90]), ("validation", [2], [100])):
        (folder.root / split).mkdir()
        saved = table(labels, shades)
        file = folder.root / split / "data-00000-of-00001.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, saved.schema) as writer:
            writer.write_table(saved, max_chunksize=1)
    data = folder.read("imagenet1k")
    assert [(split, label) for split, label, *_ in rows(data).values()] == [
        ("train", 2),
        ("train", 1),
        ("test", 2),
    ]
    opened = ImageOpener(data.root)
    assert abs(shade(opened("train/data-00000-of-00001.arrow#1")) - 90) <= 2


def test_splits_whose_tables_declare_other_classes_are_refused(folder):
    pq.write_table(table([0], [10]), folder.root / "train-0.parquet")
    pq.write_table(table([0], [10], ("goldfish", "tench", "shark")), folder.root / "validation-0.parquet")
    with pytest.raises(UserError, match="has other classes"):
        folder.read("imagenet1k")


def test_tables_without_declared_classes_are_refused(folder):
    pq.write_table(pa.table({"label": [0]}), folder.root / "train-0.parquet")
    pq.write_table(pa.table({"label": [0]}), folder.root / "validation-0.parquet")
    with pytest.raises(UserError, match="declaring its classes"):
        folder.read("imagenet1k")


def test_neither_folders_nor_tables(folder):
    with pytest.raises(UserError, match="(?s)folders train and val.*hf auth login"):
        folder.read("imagenet1k")
