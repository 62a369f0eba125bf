import io
import json
import logging
import shutil
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from datasets import Image as ImageFeature
from PIL import Image

from agml_assets.dataset.sources import Example, open_source
from agml_assets.dataset.sources.columns import compound_labels, plain_labels
from agml_assets.errors import UserError
from agml_assets.registry.datasets import DatasetEntry


@pytest.fixture(autouse=True)
def offline(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The real library with a cache of its own and no network; it reads its settings when it is imported."""
    import huggingface_hub.constants

    cache = tmp_path_factory.mktemp("hf")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    yield cache
    datasets.enable_progress_bars()


def png(shade: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (4, 4), (shade, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


def table(labels: list, feature=None, **columns) -> Dataset:
    """A dataset of one image per label; `columns` maps a name to a feature and its values."""
    features = {"image": ImageFeature(), "label": feature or ClassLabel(names=["blight", "rust"])}
    features |= {name: kind for name, (kind, _) in columns.items()}
    values = {"image": [{"bytes": png(i), "path": f"{i}.png"} for i in range(len(labels))], "label": labels}
    return Dataset.from_dict(values | {n: v for n, (_, v) in columns.items()}, features=Features(features))


def saved(data: Dataset | DatasetDict, path: Path) -> Path:
    data.save_to_disk(str(path))
    return path


def parquet(images: list, path: Path) -> Path:
    """A Parquet file of one class, whose images are stored as they are given."""
    features = Features({"image": ImageFeature(), "label": ClassLabel(names=["a"])})
    stored = pa.array(images, pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    table = pa.table({"image": stored, "label": [0] * len(images)}, schema=features.arrow_schema)
    pq.write_table(table, path)
    return path


def source(path: Path | None, name: str = "leaves", **values):
    return open_source(DatasetEntry(name=name, source="hf", path=path, **values))


def examples(path: Path, **values) -> list[Example]:
    return list(source(path, **values).examples())


def labels(path: Path, **values) -> list[int | None]:
    return [example.label for example in examples(path, **values)]


def imagefolder(root: Path, *names: str) -> Path:
    for shade, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(shade))
    return root


# --- Places ---------------------------------------------------------------------------------------


def test_a_saved_dataset_gives_encoded_bytes_labels_and_metadata(tmp_path):
    path = saved(table([1, 0], field=(Value("string"), ["north", None])), tmp_path / "d")
    info = source(path).info()
    assert info.class_names == ("blight", "rust")
    assert info.metadata_columns == {"field": None}
    assert info.native_splits == ()
    assert info.num_rows == 2
    assert examples(path) == [
        Example(0, png(0), "0.png", 1, None, {"field": "north"}),
        Example(1, png(1), "1.png", 0, None, {"field": None}),
    ]


def test_a_parquet_file_keeps_its_features(tmp_path):
    table([1, 0, 1]).to_parquet(str(tmp_path / "leaves.parquet"))
    info = source(tmp_path / "leaves.parquet").info()
    assert info.class_names == ("blight", "rust")
    assert labels(tmp_path / "leaves.parquet") == [1, 0, 1]


def test_a_folder_of_parquet_files_has_their_splits(tmp_path):
    table([0, 1]).to_parquet(str(tmp_path / "test-00000-of-00001.parquet"))
    table([1, 1]).to_parquet(str(tmp_path / "train-00000-of-00001.parquet"))
    assert source(tmp_path).info().native_splits == ("train", "test")
    assert labels(tmp_path) == [1, 1, 0, 1]


def test_an_image_folder_gives_paths_and_names_inside_it(tmp_path):
    root = imagefolder(tmp_path / "d", "train/rust/1.png", "train/blight/2.png", "validation/rust/3.png")
    info = source(root).info()
    assert info.class_names == ("blight", "rust")
    assert info.native_splits == ("train", "val")
    assert {(e.file, e.label, e.native_split) for e in examples(root)} == {
        ("train/rust/1.png", 1, "train"),
        ("train/blight/2.png", 0, "train"),
        ("validation/rust/3.png", 1, "val"),
    }
    assert all(e.image == root / e.file for e in examples(root))


@pytest.fixture
def two_configs(tmp_path: Path) -> Path:
    root = tmp_path / "several"
    for config, given in {"raw": [0, 1, 1], "augmented": [1]}.items():
        (root / config).mkdir(parents=True)
        table(given).to_parquet(str(root / config / "train.parquet"))
    configs = "\n".join(f"- config_name: {c}\n  data_files: {c}/*.parquet" for c in ("raw", "augmented"))
    (root / "README.md").write_text(f"---\nconfigs:\n{configs}\n---\n")
    return root


def test_several_configurations_without_a_default_are_listed(two_configs):
    with pytest.raises(UserError, match=r"'leaves'.*set hf_config_name to one of: raw, augmented"):
        source(two_configs)


def test_the_configuration_asked_for_is_read_and_recorded(two_configs):
    assert labels(two_configs, hf_config_name="raw") == [0, 1, 1]
    assert source(two_configs, hf_config_name="augmented").info().resolved["config"] == "augmented"


def test_an_unknown_configuration_is_refused_with_the_known_ones(two_configs):
    with pytest.raises(UserError, match=r"no configuration 'row'.*raw, augmented"):
        source(two_configs, hf_config_name="row")


@pytest.fixture
def cached_hub_dataset(tmp_path: Path, offline: Path) -> str:
    """A hub dataset as the library leaves it in its cache, under the commit that it was resolved to."""
    table([0, 1]).to_parquet(str(tmp_path / "train.parquet"))
    datasets.load_dataset("parquet", data_files=str(tmp_path / "train.parquet"))
    (built,) = (p.parent for p in offline.glob("parquet/*/*/*/dataset_info.json"))
    commit = "0123456789abcdef0123456789abcdef01234567"
    folder = offline / "owner___leaves" / "default" / "0.0.0" / commit
    shutil.copytree(built, folder)
    (folder / "parquet-train.arrow").rename(folder / "leaves-train.arrow")
    facts = json.loads((folder / "dataset_info.json").read_text())
    facts |= {"dataset_name": "leaves", "config_name": "default"}
    (folder / "dataset_info.json").write_text(json.dumps(facts))
    return commit


def test_the_commit_and_configuration_of_a_cached_hub_dataset_are_recorded(cached_hub_dataset):
    info = source(None, "owner/leaves").info()
    assert info.num_rows == 2
    assert info.resolved["revision"] == cached_hub_dataset
    assert info.resolved["config"] == "default"


def test_another_revision_than_the_cached_one_is_never_passed_off_as_it(cached_hub_dataset):
    assert source(None, "owner/leaves", revision=cached_hub_dataset).info().num_rows == 2
    with pytest.raises(UserError, match=r"only 0123456789abcdef0123456789abcdef01234567 is in the cache"):
        source(None, "owner/leaves", revision="f" * 40)


def test_a_hub_dataset_without_network_says_what_to_do():
    with pytest.raises(UserError, match=r"(?s)'leaves'.*'owner/leaves' cannot be loaded.*HF_HUB_OFFLINE.*path"):
        source(None, "owner/leaves")


def test_a_local_copy_says_why_it_has_no_revision(tmp_path):
    resolved = source(saved(table([0]), tmp_path / "d")).info().resolved
    assert (resolved["revision"], resolved["revision_reason"]) == (None, "local copy")
    assert json.loads(json.dumps(dict(resolved))) == resolved


def without_rows(path: Path) -> Path:
    return saved(DatasetDict({"train": table([0]), "test": table([])}), path / "d")


def with_broken_state(path: Path) -> Path:
    (saved(table([0]), path / "d") / "state.json").write_text("{}")
    return path / "d"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: saved(table([]), p / "d"), "/d, or one of its splits, has no rows"),
        (without_rows, "/d, or one of its splits, has no rows"),
        (with_broken_state, "/d cannot be loaded: '_data_files'"),
        (lambda p: p / "nowhere", "nothing at .*nowhere"),
        (lambda p: (p / "d.csv").write_text("a") and p / "d.csv", "neither a folder nor a Parquet file"),
        (lambda p: (p / "d.parquet").write_text("junk") and p / "d.parquet", "d.parquet cannot be loaded"),
        (lambda p: p, "cannot be loaded"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_to_do(tmp_path, make, message):
    with pytest.raises(UserError, match=f"'leaves'.*{message}"):
        source(make(tmp_path))


def test_a_cache_that_cannot_be_written_to_is_not_blamed_on_the_dataset(tmp_path, monkeypatch):
    table([0, 1]).to_parquet(str(tmp_path / "d.parquet"))
    (tmp_path / "home").touch()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "home" / "datasets")
    with pytest.raises(UserError, match=r"'leaves'.*cannot use its cache .*home/datasets.*\$HF_HOME"):
        source(tmp_path / "d.parquet")


def test_scripts_are_never_run(tmp_path):
    script = tmp_path / "d" / "d.py"
    script.parent.mkdir()
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(UserError, match="scripts are no longer supported"):
        source(tmp_path / "d")
    assert not (tmp_path / "ran").exists()


# --- Splits ---------------------------------------------------------------------------------------


@pytest.fixture
def four_splits(tmp_path: Path) -> Path:
    given = {"extra": [0], "test": [1, 1], "valid": [0, 0], "train": [1, 0, 1]}
    return saved(DatasetDict({name: table(values) for name, values in given.items()}), tmp_path / "d")


def test_all_splits_are_read_train_validation_test_then_others(four_splits):
    found = examples(four_splits)
    assert [e.native_split for e in found] == ["train"] * 3 + ["val"] * 2 + ["test"] * 2 + ["extra"]
    assert [e.source_row for e in found] == list(range(8))
    assert [e.label for e in found] == [1, 0, 1, 0, 0, 1, 1, 0]
    info = source(four_splits).info()
    assert info.native_splits == ("train", "val", "test", "extra")
    assert info.resolved["splits"] == {"train": 3, "valid": 2, "test": 2, "extra": 1}


def test_reading_starts_at_any_row_of_any_split(four_splits):
    everything = examples(four_splits)
    for start in range(9):
        assert list(source(four_splits).examples(start)) == everything[start:]


def test_native_splits_train_reads_the_published_images_alone(four_splits):
    assert labels(four_splits, native_splits="train") == [1, 0, 1]
    assert source(four_splits, native_splits="train").info().native_splits == ()


def test_without_train_the_first_split_is_read_and_said_so(tmp_path, caplog):
    path = saved(DatasetDict({"test": table([0]), "dev": table([1])}), tmp_path / "d")
    assert labels(path, native_splits="train") == [1]
    assert "there is no split train; dev is read" in caplog.text


def test_a_column_that_names_the_split_is_the_native_split(tmp_path):
    path = saved(table([0, 1, 0], split=(Value("string"), ["train", "test", "val"])), tmp_path / "d")
    assert source(path).info().native_splits == ("train", "test", "val")
    assert [e.native_split for e in examples(path)] == ["train", "test", "val"]


def test_a_split_without_labels_is_unlabelled(tmp_path, caplog):
    path = saved(DatasetDict({"train": table([0, 1]), "test": table([0]).remove_columns("label")}), tmp_path / "d")
    assert labels(path) == [0, 1, None]
    assert "split test has no labels" in caplog.text


def test_splits_that_disagree_on_the_classes_are_refused(tmp_path):
    other = table([0], ClassLabel(names=["rust", "blight"]))
    path = saved(DatasetDict({"train": table([0, 1]), "test": other}), tmp_path / "d")
    with pytest.raises(UserError, match=r"column 'label'.*'train'.*'test'.*native_splits: train"):
        source(path)
    assert labels(path, native_splits="train") == [0, 1]


# --- Roles of columns -----------------------------------------------------------------------------


def test_roles_go_by_type_not_by_name(tmp_path):
    features = Features({"id": Value("int64"), "kind": ClassLabel(names=["a", "b"]), "photo": ImageFeature()})
    rows = {"id": [7], "kind": [1], "photo": [{"bytes": png(1), "path": None}]}
    path = saved(Dataset.from_dict(rows, features=features), tmp_path / "d")
    info = source(path).info()
    assert (info.resolved["image_col"], info.resolved["label_col"]) == ("photo", "kind")
    assert info.metadata_columns == {"id": None}
    assert examples(path) == [Example(0, png(1), None, 1, None, {"id": 7})]


def test_further_class_columns_are_metadata_with_their_names(tmp_path):
    crop = (ClassLabel(names=["bean", "coffee"]), [1, 0])
    path = saved(table([0, 1], crop=crop), tmp_path / "d")
    assert source(path).info().metadata_columns == {"crop": ("bean", "coffee")}
    assert [e.metadata["crop"] for e in examples(path)] == [1, 0]


def test_images_are_never_decoded_and_further_ones_never_read(tmp_path, monkeypatch):
    mask = (ImageFeature(), [{"bytes": b"no image", "path": None}] * 2)
    raw = (Value("binary"), [b"x", b"y"])
    frames = (datasets.List(ImageFeature()), [[], []])
    path = saved(table([0, 1], mask=mask, raw=raw, frames=frames), tmp_path / "d")

    def decode(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(ImageFeature, "decode_example", decode)
    assert source(path).info().metadata_columns == {}
    assert [e.metadata for e in examples(path)] == [{}, {}]


def test_metadata_columns_can_be_chosen_or_switched_off(tmp_path):
    columns = {name: (Value("int64"), [1]) for name in ("a", "b", "c")}
    path = saved(table([0], **columns), tmp_path / "d")
    assert list(source(path).info().metadata_columns) == ["a", "b", "c"]
    assert list(source(path, metadata_cols=("c", "a")).info().metadata_columns) == ["c", "a"]
    assert source(path, metadata_cols=()).info().metadata_columns == {}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"label_col": "lable"}, r"label_col names 'lable'.*Did you mean 'label'.*image \(Image\)"),
        ({"image_col": "picture"}, "image_col names 'picture'"),
        ({"compound_label_cols": ("label", "crop")}, "compound_label_cols names 'crop'"),
        ({"metadata_cols": ("field",)}, "metadata_cols names 'field'"),
        ({"metadata_cols": ("mask",)}, "metadata_cols names mask, which hold files"),
        ({"image_col": "label"}, "column 'label' holds no images"),
        ({"label_col": "image"}, "column 'image' .* cannot be a label"),
        ({"label_col": "mask"}, "column 'mask' .* cannot be a label"),
        ({"label_col": "tags"}, "column 'tags' .* cannot be a label"),
        ({"label_col": "weight"}, "'weight' holds 0.5, which is no class"),
    ],
)
def test_a_wrong_column_is_refused_with_the_columns_that_there_are(tmp_path, override, message):
    extra = {
        "mask": (ImageFeature(), [{"bytes": png(1), "path": None}]),
        "tags": (datasets.List(Value("string")), [["x"]]),
        "weight": (Value("float32"), [0.5]),
    }
    path = saved(table([0], **extra), tmp_path / "d")
    with pytest.raises(UserError, match=f"(?s)'leaves'.*{message}"):
        source(path, **override)


def test_without_a_class_column_the_columns_are_listed(tmp_path):
    path = saved(table(["a"], Value("string")), tmp_path / "d")
    with pytest.raises(UserError, match=r"no ClassLabel column.*label \(string\).*Set label_col"):
        source(path)


def test_without_an_image_column_the_columns_are_listed(tmp_path):
    path = saved(table([0]).remove_columns("image"), tmp_path / "d")
    with pytest.raises(UserError, match=r"no Image column.*label \(ClassLabel\).*Set image_col"):
        source(path)


# --- Labels ---------------------------------------------------------------------------------------


def test_declared_classes_stay_when_no_image_has_them(tmp_path):
    names = ClassLabel(names=["a", "empty", "b"])
    assert source(saved(table([0, 2], names), tmp_path / "d")).info().class_names == ("a", "empty", "b")


def test_missing_declared_labels_are_unlabelled(tmp_path):
    assert labels(saved(table([1, -1, None, 0]), tmp_path / "d")) == [1, None, None, 0]


def test_a_label_without_a_name_is_refused(tmp_path):
    broken = table([0, 1, 5], Value("int64"))
    broken._info.features["label"] = ClassLabel(names=["a", "b"])
    broken.info.features["label"] = ClassLabel(names=["a", "b"])
    with pytest.raises(UserError, match="class 5, in row 2, but declares only the 2 classes"):
        source(saved(broken, tmp_path / "d"))


@pytest.mark.parametrize(
    ("feature", "given", "names", "expected"),
    [
        (Value("string"), ["rust", None, "", "blight", "rust"], ("blight", "rust"), [1, None, None, 0, 1]),
        (Value("int64"), [10, 9, -1, None, 10], ("9", "10"), [1, 0, None, None, 1]),
        (Value("uint8"), [5, 0], ("0", "5"), [1, 0]),
        (Value("float64"), [2.0, float("nan"), None, 0.0], ("0", "2"), [1, None, None, 0]),
        (Value("bool"), [True, False, None], ("False", "True"), [1, 0, None]),
    ],
)
def test_plain_labels_become_classes_and_the_mapping_is_kept(tmp_path, feature, given, names, expected):
    path = saved(table(given, feature), tmp_path / "d")
    info = source(path, label_col="label").info()
    assert info.class_names == names
    assert info.resolved["label_mapping"] == {name: label for label, name in enumerate(names)}
    assert labels(path, label_col="label") == expected


def test_nothing_is_mapped_where_classes_are_declared(tmp_path):
    assert "label_mapping" not in source(saved(table([0]), tmp_path / "d")).info().resolved


@pytest.mark.parametrize("values", [[None, float("nan")], [-1, -100], []])
def test_a_column_without_any_label_is_refused(values):
    with pytest.raises(UserError, match="no row of 'label' has a label"):
        plain_labels(values, "Dataset 'd'", "label")


def test_infinity_is_no_class():
    with pytest.raises(UserError, match="inf, which is no class"):
        plain_labels([float("inf")], "Dataset 'd'", "label")


def test_classes_called_like_splits_are_warned_of(tmp_path, caplog):
    source(saved(table([0], ClassLabel(names=["test", "train"])), tmp_path / "d"))
    assert "classes are called like splits: test, train" in caplog.text


# --- Compound labels ------------------------------------------------------------------------------


def test_compound_labels_join_names_and_values_in_the_given_order(tmp_path):
    # As published: "Bottle Gourd, Alternaria_Leaf_Blight" and "grade1, elakki-bale, scale-1".
    path = saved(
        table([0, 1, 0], crop=(Value("string"), ["b", "a", "a"]), grade=(Value("int64"), [1, 2, 10])),
        tmp_path / "d",
    )
    columns = ("crop", "label", "grade")
    info = source(path, compound_label_cols=columns, label_col="label").info()
    assert info.class_names == ("a, blight, 10", "a, rust, 2", "b, blight, 1")
    assert labels(path, compound_label_cols=columns) == [2, 1, 0]
    assert info.metadata_columns == {}
    assert info.resolved["compound_label_cols"] == list(columns)


def test_compound_labels_ignore_a_default_label_column_that_is_absent(tmp_path):
    path = saved(table([0], crop=(Value("string"), ["a"])).rename_column("label", "disease"), tmp_path / "d")
    entry = {"compound_label_cols": ("crop", "disease"), "label_col": "label"}
    assert source(path, **entry).info().class_names == ("a, blight",)


def test_a_missing_component_makes_the_image_unlabelled(tmp_path):
    path = saved(table([0, -1, 1], crop=(Value("string"), [None, "a", "b"])), tmp_path / "d")
    assert labels(path, compound_label_cols=("crop", "label")) == [None, None, 0]


@pytest.mark.parametrize(
    ("feature", "given"),
    [
        (Value("int64"), [-1, 2, None]),
        (Value("float64"), [float("nan"), 2.0, -1.0]),
        (Value("string"), ["", "2", None]),
    ],
)
def test_what_is_no_label_alone_is_none_as_a_component(tmp_path, feature, given):
    path = saved(table([0, 1, 0], crop=(feature, given)), tmp_path / "d")
    assert source(path, compound_label_cols=("crop", "label")).info().class_names == ("2, rust",)
    assert labels(path, compound_label_cols=("crop", "label")) == [None, 0, None]


def test_combinations_that_would_share_a_name_are_refused():
    with pytest.raises(UserError, match=r"\('a', 'b, c'\) and \('a, b', 'c'\).*'a, b, c'"):
        compound_labels([["a, b", "a"], ["c", "b, c"]], "Dataset 'd'")


# --- Images in every form -------------------------------------------------------------------------


def test_images_come_as_bytes_as_path_or_not_at_all(tmp_path):
    (tmp_path / "local.png").write_bytes(png(9))
    forms = [
        {"bytes": png(1), "path": "a/b.png"},
        {"bytes": png(2), "path": None},
        {"bytes": None, "path": str(tmp_path / "local.png")},
        {"bytes": None, "path": "gone.png"},
        None,
    ]
    path = parquet(forms, tmp_path / "d.parquet")
    assert [(e.image, e.file) for e in examples(path)] == [
        (png(1), "a/b.png"),
        (png(2), None),
        (tmp_path / "local.png", "local.png"),
        (tmp_path / "gone.png", "gone.png"),
        (None, None),
    ]


@pytest.mark.parametrize(
    "images", [[png(1)], [{"bytes": png(1)}], [{"path": None, "bytes": png(1)}]], ids=["binary", "bytes", "struct"]
)
def test_parquet_without_image_features_is_read_by_override(tmp_path, images):
    pq.write_table(pa.table({"photo": images, "kind": ["a"]}), tmp_path / "d.parquet")
    (example,) = examples(tmp_path / "d.parquet", image_col="photo", label_col="kind")
    assert example.image == png(1)


def test_paths_in_a_text_column_start_at_the_dataset(tmp_path):
    imagefolder(tmp_path, "images/1.png")
    pq.write_table(pa.table({"photo": ["images/1.png"], "kind": ["a"]}), tmp_path / "d.parquet")
    (example,) = examples(tmp_path / "d.parquet", image_col="photo", label_col="kind")
    assert (example.image, example.file) == (tmp_path / "images/1.png", "images/1.png")


def test_images_inside_a_local_archive_are_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("rust/leaf.png", png(3))
    url = f"zip://rust/leaf.png::{tmp_path}/all.zip"
    (example,) = examples(parquet([{"bytes": None, "path": url}], tmp_path / "d.parquet"))
    assert (example.image, example.file) == (png(3), "rust/leaf.png")


def test_an_image_behind_a_url_that_cannot_be_reached_is_missing_and_said_so(tmp_path, caplog):
    url = f"zip://leaf.png::{tmp_path}/gone.zip"
    (example,) = examples(parquet([{"bytes": None, "path": url}], tmp_path / "d.parquet"))
    assert (example.image, example.file) == (None, "leaf.png")
    assert "gone.zip cannot be read" in caplog.text


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with an image, and an archive of it, beside the dataset's own folder `d`."""
    imagefolder(tmp_path / "secret", "1.png")
    with zipfile.ZipFile(tmp_path / "secret" / "all.zip", "w") as archive:
        archive.writestr("1.png", png(3))
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "link.png").symlink_to(tmp_path / "secret" / "1.png")
    (tmp_path / "d" / "loop.png").symlink_to("loop.png")
    return tmp_path / "secret"


@pytest.mark.parametrize(
    "path",
    [
        "{}/1.png",
        "../secret/1.png",
        "file://{}/1.png",
        "zip://1.png::{}/all.zip",
        "zip://1.png::file://{}/all.zip",
        "zip://1.png::../secret/all.zip",
        "link.png",
        "loop.png",
        "no\0file.png",
    ],
)
def test_a_row_never_opens_a_file_outside_of_its_dataset(elsewhere, path, caplog, monkeypatch):
    folder = elsewhere.parent / "d"
    monkeypatch.chdir(folder)
    images = [{"bytes": None, "path": path.format(elsewhere)}] * 3
    found = examples(parquet(images, folder / "d.parquet"))
    assert [e.image for e in found] == [None] * 3
    assert caplog.text.count("images outside of its folder are never opened") == 1


def test_files_in_the_cache_of_the_library_belong_to_a_dataset(tmp_path, offline):
    (file := offline / "downloads" / "1.png").parent.mkdir()
    file.write_bytes(png(1))
    (example,) = examples(parquet([{"bytes": None, "path": str(file)}], tmp_path / "d.parquet"))
    assert example.image == file


# --- Identity and size ----------------------------------------------------------------------------


def test_the_fingerprint_follows_a_local_copy_whatever_it_claims(tmp_path):
    path = saved(table([0, 1]), tmp_path / "d")
    before = source(path).info().fingerprint
    assert source(path).info().fingerprint == before
    (arrow,) = path.glob("*.arrow")
    state = (path / "state.json").read_bytes()
    shutil.rmtree(path)
    saved(table([1, 1]), path)
    (path / "state.json").write_bytes(state)  # which holds the library's own fingerprint
    assert arrow.exists()
    assert source(path).info().fingerprint != before


def test_rows_are_read_a_few_at_a_time(tmp_path):
    big = bytes(2_000_000)
    rows = {"image": [{"bytes": big, "path": None}] * 64, "label": [0] * 64}
    features = Features({"image": ImageFeature(), "label": ClassLabel(names=["a"])})
    path = saved(Dataset.from_dict(rows, features=features), tmp_path / "d")
    stream = source(path).examples()
    tracemalloc.start()
    sizes = [len(e.image) for e in stream]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sizes == [2_000_000] * 64
    assert peak < 40 * 2_000_000  # and not all 64, nor 64 twice


def test_nothing_is_said_about_a_clean_dataset(tmp_path, caplog):
    path = saved(table([0, 1], crop=(Value("string"), ["a", "b"])), tmp_path / "d")
    with caplog.at_level(logging.INFO, "agml_assets"):
        examples(path)
    assert caplog.text == ""


def test_labels_of_many_rows_are_read_in_bulk(tmp_path):
    given = np.random.default_rng(0).integers(0, 2, 20_000)
    features = Features({"image": ImageFeature(), "label": ClassLabel(names=["a", "b"])})
    images = pa.nulls(len(given), pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    data = Dataset(pa.table({"image": images, "label": given}, schema=features.arrow_schema))
    assert labels(saved(data, tmp_path / "d")) == given.tolist()
