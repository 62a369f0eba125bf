"""What is up to date is decided by content: damage is noticed, and what was only touched is not made again."""

import os

import pytest

import agml_assets
from agml_assets import cli
from agml_assets.batch import _read_score, _up_to_date
from agml_assets.errors import UserError
from agml_assets.todo import last_config, open_dataset, open_workspace, to_make
from tests.tiny import write_images, write_registry


@pytest.fixture
def place(copy_of_finished, monkeypatch):
    monkeypatch.setenv("AGML_REGISTRY", str(copy_of_finished / "datasets.yaml"))
    monkeypatch.setenv("AGML_RESULTS", str(copy_of_finished / "results"))
    return copy_of_finished


def left(key="tiny"):
    return {artifact.key for artifact in to_make(open_dataset(key)[1])}


@pytest.mark.parametrize(
    "file", ["quality/class_imbalance.json", "result.json", "config_used.json", "quality/score.json"]
)
def test_a_report_or_metric_that_was_edited_to_the_same_size_is_made_again(place, file):
    assert left() == set()
    path = place / "results/tiny" / file
    content = path.read_bytes()
    path.write_bytes(content.replace(b"1", b"2", 1))
    assert file.removesuffix(".json") in left()
    path.write_bytes(b"\0" * len(content))
    agml_assets.run("tiny")
    assert path.read_bytes()[:1] == b"{"
    assert left() == set()


def test_images_that_were_touched_are_read_and_nothing_else_is_made_again(tmp_path, monkeypatch):
    registry = write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images"))
    monkeypatch.setenv("AGML_REGISTRY", str(registry))
    monkeypatch.setenv("AGML_RESULTS", str(tmp_path / "results"))
    agml_assets.run("tiny", phases=[1])
    metric = tmp_path / "results/tiny/quality/class_imbalance.json"
    index = tmp_path / "results/tiny/dataset/image_index.parquet"
    before = metric.stat().st_mtime_ns, index.stat().st_mtime_ns
    os.utime(tmp_path / "images/rust/leaf_01.png", (1, 1))
    agml_assets.run("tiny", phases=[1])
    assert index.stat().st_mtime_ns != before[1]
    assert metric.stat().st_mtime_ns == before[0]


def test_images_behind_a_linked_folder_are_missed_when_they_go(tmp_path, monkeypatch):
    folder = write_images(tmp_path / "images")
    (folder / ".store").mkdir()
    (folder / "rust").rename(folder / ".store/rust")
    (folder / "rust").symlink_to(".store/rust")
    (folder / "rust/up").symlink_to("..")  # listed once, not for ever
    monkeypatch.setenv("AGML_REGISTRY", str(write_registry(tmp_path / "datasets.yaml", folder)))
    monkeypatch.setenv("AGML_RESULTS", str(tmp_path / "results"))
    (folder / "rust/up").unlink()
    agml_assets.run("tiny", phases=[1])
    (folder / ".store/rust/leaf_03.png").unlink()
    assert "dataset/image_index" in {a.key for a in to_make(open_dataset("tiny", phases=[1])[1])}


@pytest.mark.parametrize("root", ["", "..", "rust"])
def test_results_never_come_to_lie_among_the_images(tmp_path, monkeypatch, root):
    folder = write_images(tmp_path / "tiny")
    monkeypatch.setenv("AGML_REGISTRY", str(write_registry(tmp_path / "datasets.yaml", folder)))
    with pytest.raises(UserError, match="among the images|inside the dataset|lies among them"):
        agml_assets.run("tiny", results=folder / root)
    assert sorted(path.name for path in folder.iterdir()) == ["blight", "healthy", "rust"]


def test_one_damaged_report_keeps_no_other_dataset_from_being_tried(place):
    path = place / "results/tiny/result.json"
    size = path.stat().st_size
    path.write_bytes(b"{}".ljust(size))
    outcome = _read_score(open_workspace(place / "results"), "tiny", None)
    assert outcome[0] == "failed" and "its report cannot be read" in outcome[2]
    assert _up_to_date(open_workspace(place / "results"), "tiny", None) is None


def test_a_damaged_configuration_is_none(place):
    path = place / "results/tiny/config_used.json"
    path.write_bytes(b"[]".ljust(path.stat().st_size))
    assert last_config(open_dataset("tiny")[1]) == {}


def test_what_lives_in_one_process_is_no_place_for_many(place, capsys):
    assert cli.main(["run", "--all", "--results", "memory://x"]) == 1
    assert "Run one with --dataset" in capsys.readouterr().err


@pytest.mark.parametrize("root", ["sftp://user:hunter2@host/x", "ftp://user:hunter2@127.0.0.1:1/x"])
def test_a_password_in_the_results_root_is_not_repeated(place, capsys, root):
    assert cli.main(["run", "--all", "--results", root]) == 1
    said = capsys.readouterr().err
    assert "holds a password" in said and "hunter2" not in said


def test_a_registry_without_active_datasets_is_said(tmp_path, monkeypatch, capsys):
    (tmp_path / "datasets.yaml").write_text("datasets:\n")
    monkeypatch.setenv("AGML_REGISTRY", str(tmp_path / "datasets.yaml"))
    assert cli.main(["run", "--all", "--results", str(tmp_path / "results")]) == 1
    assert "No dataset is registered" in capsys.readouterr().err
