import sys
from pathlib import Path

import pytest
from PIL import Image

from agml_assets.dataset.sources import open_source
from agml_assets.errors import UserError
from agml_assets.registry.datasets import DatasetEntry

pytestmark = pytest.mark.filterwarnings("ignore:Loading datasets through the AgML S3:DeprecationWarning")

NAME = "bean_disease_uganda"
CLASSES = ("angular_leaf_spot", "bean_rust", "healthy")  # as AgML declares them


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """`agml` writes into the home folder when it is imported."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AGML_CONFIG_DIR", str(home))
    monkeypatch.delenv("AGML_DATA_DIR", raising=False)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    import requests

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise requests.exceptions.ConnectionError("no network")

    monkeypatch.setattr(requests.Session, "get", refuse)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A local copy of a dataset of AgML; `healthy` has no image."""
    for number, name in enumerate(
        ["bean_rust/2.jpg", "bean_rust/1.jpg", "angular_leaf_spot/9.jpg", "bean_rust/10.jpg"]
    ):
        path = tmp_path / NAME / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(path)
    return tmp_path


def source(name: str = NAME, path: Path | None = None):
    return open_source(DatasetEntry(name=name, source="agml", path=path))


def test_a_local_copy_is_read_in_stable_order_with_the_declared_classes(copy, no_network):
    info = source(path=copy).info()
    assert info.class_names == CLASSES
    assert info.num_rows == 4
    assert info.native_splits == ()
    assert info.resolved["source"] == "agml"
    assert info.resolved["revision"] is None
    examples = list(source(path=copy).examples())
    assert [(e.file, e.label) for e in examples] == [
        ("angular_leaf_spot/9.jpg", 0),
        ("bean_rust/1.jpg", 1),
        ("bean_rust/10.jpg", 1),
        ("bean_rust/2.jpg", 1),
    ]
    assert [e.image for e in examples] == [copy / NAME / e.file for e in examples]
    assert list(source(path=copy).examples(start=2)) == examples[2:]


def test_the_path_may_be_the_folder_of_the_dataset_itself(copy, no_network):
    assert source(path=copy / NAME).info().num_rows == 4


def test_the_data_folder_can_come_from_the_environment(copy, no_network, monkeypatch):
    monkeypatch.setenv("AGML_DATA_DIR", str(copy))
    assert source().info().num_rows == 4


def test_the_collections_are_read_from_a_local_copy_too(tmp_path, no_network):
    folder = tmp_path / "iNatAg-mini/salix_alba/crop"
    folder.mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(folder / "1.jpg")
    info = source("iNatAg-mini/salix_alba", tmp_path).info()
    assert (info.class_names, info.num_rows) == (("crop",), 1)


def test_no_copy_and_no_network_says_where_to_put_one(tmp_path, no_network):
    with pytest.raises(UserError, match=rf"(?s)'{NAME}'.*ConnectionError.*AGML_DATA_DIR.*{NAME}/<class>/<image>"):
        source(path=tmp_path)
    assert not (tmp_path / NAME).exists()


def test_an_unknown_dataset_is_refused_with_the_closest_name(no_network):
    with pytest.raises(UserError, match=rf"no dataset 'bean_disease_ugand'.*{NAME}"):
        source("bean_disease_ugand")


def test_a_dataset_for_another_task_is_refused(no_network):
    with pytest.raises(UserError, match="object_detection, not for image classification"):
        source("apple_detection_usa")


def test_a_folder_that_is_no_class_is_named(copy, no_network):
    (copy / NAME / "extra").mkdir()
    Image.new("RGB", (8, 8)).save(copy / NAME / "extra/1.jpg")
    with pytest.raises(UserError, match="'extra', which is none of its classes"):
        source(path=copy)


def test_without_libgl_the_way_out_is_named(copy, monkeypatch):
    monkeypatch.setitem(sys.modules, "agml.data", None)  # makes the import fail
    with pytest.raises(UserError, match="opencv-python-headless"):
        source(path=copy)
