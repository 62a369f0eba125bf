import logging
import os
from pathlib import Path

import pytest
from PIL import Image

from agml_assets.dataset.sources import open_source
from agml_assets.dataset.sources.folder import list_fingerprint
from agml_assets.errors import UserError
from agml_assets.registry.datasets import DatasetEntry


def put(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(path, "PNG")


def source(root: Path, **values: object):
    return open_source(DatasetEntry(name="leaves", source="folder", path=root, **values))


def listed(root: Path, **values: object) -> list[tuple[str | None, int | None, str | None]]:
    return [(e.file, e.label, e.native_split) for e in source(root, **values).examples()]


def test_each_folder_is_a_class_and_order_is_by_bytes(tmp_path):
    put(tmp_path, "rust/b.png", "rust/a.png", "Zebra/x.png", "blight/10.png", "blight/9.png")
    info = source(tmp_path).info()
    assert info.class_names == ("Zebra", "blight", "rust")
    assert info.num_rows == 5
    assert info.native_splits == ()
    assert listed(tmp_path) == [
        ("Zebra/x.png", 0, None),
        ("blight/10.png", 1, None),
        ("blight/9.png", 1, None),
        ("rust/a.png", 2, None),
        ("rust/b.png", 2, None),
    ]


def test_examples_carry_paths_and_start_anywhere(tmp_path):
    put(tmp_path, "a/1.png", "a/2.png", "b/3.png")
    examples = list(source(tmp_path).examples(start=1))
    assert [e.source_row for e in examples] == [1, 2]
    assert [e.image for e in examples] == [tmp_path / "a/2.png", tmp_path / "b/3.png"]


def test_all_image_suffixes_count_in_any_case(tmp_path):
    names = ["1.jpg", "2.JPEG", "3.Png", "4.bmp", "5.gif", "6.tif", "7.TIFF", "8.webp"]
    put(tmp_path, *(f"a/{name}" for name in names))
    assert [file for file, *_ in listed(tmp_path)] == [f"a/{name}" for name in names]


def test_other_files_are_counted_and_hidden_ones_ignored(tmp_path, caplog):
    put(tmp_path, "a/1.png", "a/.hidden.png", ".git/x.png", "a/._1.png")
    (tmp_path / "a/notes.txt").touch()
    (tmp_path / "README.md").touch()
    (tmp_path / "a/.DS_Store").touch()
    assert listed(tmp_path) == [("a/1.png", 0, None)]
    assert source(tmp_path).info().class_names == ("a",)
    assert "2 files are no images" in caplog.text


def test_an_empty_folder_stays_a_class(tmp_path):
    put(tmp_path, "b/1.png")
    (tmp_path / "a").mkdir()
    assert source(tmp_path).info().class_names == ("a", "b")
    assert listed(tmp_path) == [("b/1.png", 1, None)]


@pytest.mark.parametrize(
    ("train", "val", "test"),
    [
        ("train", "val", "test"),
        ("Training", "valid", "testing"),
        ("TRAIN", "validation", "Test"),
        ("train", "dev", "test"),
    ],
)
def test_split_folders_become_native_splits_and_share_their_classes(tmp_path, train, val, test):
    put(tmp_path, f"{test}/b/1.png", f"{train}/a/2.png", f"{val}/c/3.png")
    info = source(tmp_path).info()
    assert info.class_names == ("a", "b", "c")
    assert info.native_splits == ("train", "val", "test")
    assert listed(tmp_path) == [
        (f"{train}/a/2.png", 0, "train"),
        (f"{val}/c/3.png", 2, "val"),
        (f"{test}/b/1.png", 1, "test"),
    ]


def test_native_splits_train_reads_train_alone(tmp_path):
    put(tmp_path, "train/a/1.png", "test/b/2.png")
    assert listed(tmp_path, native_splits="train") == [("train/a/1.png", 0, None)]
    assert source(tmp_path, native_splits="train").info().class_names == ("a",)


def test_without_train_the_first_split_is_read_and_said_so(tmp_path, caplog):
    put(tmp_path, "test/a/1.png", "val/a/2.png")
    assert listed(tmp_path, native_splits="train") == [("val/a/2.png", 0, None)]
    assert "there is no split train; val is read" in caplog.text


def test_images_of_a_split_outside_classes_are_unlabelled(tmp_path):
    put(tmp_path, "train/a/1.png", "test/2.png")
    assert listed(tmp_path) == [("train/a/1.png", 0, "train"), ("test/2.png", None, "test")]


def test_images_beside_the_class_folders_are_named_and_left_out(tmp_path, caplog):
    put(tmp_path, "a/1.png", "preview.png")
    assert listed(tmp_path) == [("a/1.png", 0, None)]
    assert "outside class folders are left out: preview.png" in caplog.text


def test_classes_called_like_splits_are_warned_of(tmp_path, caplog):
    put(tmp_path, "train/1.png", "test/2.png")
    assert source(tmp_path).info().class_names == ("test", "train")
    assert "called like splits: test, train" in caplog.text


def test_folders_inside_class_folders_are_refused(tmp_path):
    put(tmp_path, "apple/rust/1.png", "apple/scab/2.png")
    with pytest.raises(UserError, match=r"'leaves'.*'apple/rust'.*not supported"):
        source(tmp_path).info()


def test_splits_beside_other_folders_are_refused(tmp_path):
    put(tmp_path, "train/a/1.png", "other/b/2.png")
    with pytest.raises(UserError, match=r"'other/b' holds images, but .* not supported"):
        source(tmp_path).info()


@pytest.mark.parametrize("names", [(), ("flat.png",)])
def test_a_folder_without_class_folders_is_refused(tmp_path, names):
    put(tmp_path, *names)
    with pytest.raises(UserError, match="holds no class folders"):
        source(tmp_path).info()


def test_class_folders_without_any_image_are_refused(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/notes.txt").touch()
    with pytest.raises(UserError, match="holds no images"):
        source(tmp_path).info()


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(UserError, match=r"no folder .*nowhere"):
        source(tmp_path / "nowhere")


def test_links_out_of_the_folder_are_never_followed(tmp_path, caplog):
    put(tmp_path, "secret/1.png", "data/a/2.png")
    root = tmp_path / "data"
    (root / "a/3.png").symlink_to(tmp_path / "secret/1.png")
    (root / "b").symlink_to(tmp_path / "secret")
    assert listed(root) == [("a/2.png", 0, None)]
    assert "links out of the folder are left out: a/3.png, b" in caplog.text


def test_a_split_that_is_a_link_out_of_the_folder_is_not_followed(tmp_path, caplog):
    put(tmp_path, "secret/a/1.png", "data/train/a/2.png")
    (tmp_path / "data/test").symlink_to(tmp_path / "secret")
    assert listed(tmp_path / "data") == [("train/a/2.png", 0, "train")]
    assert "left out: test" in caplog.text


def test_links_within_the_folder_and_to_the_folder_are_followed(tmp_path):
    put(tmp_path, "data/a/1.png")
    (tmp_path / "data/b").mkdir()
    (tmp_path / "data/b/2.png").symlink_to("../a/1.png")
    (tmp_path / "link").symlink_to("data")
    assert [file for file, *_ in listed(tmp_path / "link")] == ["a/1.png", "b/2.png"]


def test_broken_links_are_no_images(tmp_path):
    put(tmp_path, "a/1.png")
    (tmp_path / "a/2.png").symlink_to("annexed.png")
    assert [file for file, *_ in listed(tmp_path)] == ["a/1.png"]


def test_names_are_unicode_and_composed_the_same_everywhere(tmp_path):
    decomposed, composed = "Caf\u0065\u0301", "Caf\u00e9"
    put(tmp_path, f"train/{composed}/葉.png", f"test/{decomposed}/лист.png")
    assert source(tmp_path).info().class_names == (composed,)
    assert listed(tmp_path) == [(f"train/{composed}/葉.png", 0, "train"), (f"test/{composed}/лист.png", 0, "test")]
    assert all(e.image.is_file() for e in source(tmp_path).examples())


def test_names_that_are_no_utf8_are_spelled_out(tmp_path):
    put(tmp_path, os.fsdecode(b"a/\xe9.png"))
    (example,) = source(tmp_path).examples()
    assert example.file == r"a/\xe9.png"
    assert example.image.is_file()


def test_the_fingerprint_follows_content_and_ignores_what_is_hidden(tmp_path):
    put(tmp_path, "a/1.png", "a/2.png")
    before = source(tmp_path).info().fingerprint
    (tmp_path / "a/.DS_Store").write_bytes(b"x")
    assert source(tmp_path).info().fingerprint == before == list_fingerprint(tmp_path)
    (tmp_path / "b").mkdir()
    with_class = list_fingerprint(tmp_path)
    assert with_class != before
    os.utime(tmp_path / "a/1.png", ns=(1, 1))
    assert list_fingerprint(tmp_path) != with_class


def test_the_fingerprint_does_not_depend_on_where_the_folder_lies(tmp_path):
    put(tmp_path, "here/a/1.png")
    before = list_fingerprint(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    assert list_fingerprint(tmp_path / "there") == before


def test_nothing_is_said_about_a_clean_folder(tmp_path, caplog):
    put(tmp_path, "a/1.png", "b/2.png")
    with caplog.at_level(logging.INFO):
        listed(tmp_path)
    assert caplog.text == ""
