"""The catalogue is looked up as the generator does and normalised as the page does."""

import json

import pytest

from agml_assets.errors import UserError
from agml_assets.leaderboard.catalogue import load_catalogue


@pytest.fixture
def catalogue(tmp_path):
    def load(agml, hub=None):
        (tmp_path / "datasets.json").write_text(json.dumps(agml))
        if hub is not None:
            (tmp_path / "hf_datasets.json").write_text(json.dumps(hub))
        return load_catalogue(tmp_path)

    return load


def test_the_first_entry_of_a_name_is_looked_up(catalogue):
    found = catalogue(
        [{"name": "beans", "crop_types": [" Bean ", "", 5], "machine_learning_task": " "}],
        [{"name": "beans", "crop_types": ["Pea"], "machine_learning_task": "image_classification"}],
    )
    assert found.facts("beans").crop_types == [" bean "]
    assert found.facts("beans").machine_learning_task is None
    assert found.facts("rice").crop_types is None


def test_entries_of_one_name_are_merged_for_the_page(catalogue):
    found = catalogue(
        {"x": {"name": " beans ", "platform": "ground, UAV", "num_images": "1,234"}, "y": None},
        [{"dataset": "beans", "platform": ["uav", "satellite"], "ml_task": "object_detection", "num_images": 5}],
    )
    (beans,) = found.entries
    assert (beans.name, beans.num_images, beans.machine_learning_task) == ("beans", 1234, "object_detection")
    assert beans.platforms == ("Ground", "Uav", "Satellite")


def test_crops_that_only_say_that_there_are_more_are_dropped(catalogue):
    (entry,) = catalogue(
        [{"name": "a", "crop_types": ["Bean ", "bean", "+24 more", "+multiple other crops"]}]
    ).entries
    assert entry.crop_types == ("bean",)


def test_children_are_counted_with_their_parents(catalogue):
    found = catalogue(
        [
            {"name": "iNatAg", "num_images": 10},
            {"name": "iNatAg/rose", "parent_dataset": "iNatAg", "num_images": 4},
            {"name": "iNatAg-mini", "num_images": 2},
            {"name": "questions", "parent_dataset": "elsewhere", "qa_type": ["open"], "num_images": 1},
        ]
    )
    totals = found.statistics()
    assert (totals.datasets, totals.images, totals.task_types) == (3, 11, 0)
    assert [entry.name for entry in found.entries if entry.is_vision_language] == ["questions"]


def test_the_nearest_name_is_offered(catalogue):
    assert catalogue([{"name": "bean_disease"}, {"name": "rice"}]).nearest("Bean_Diseases") == "bean_disease"
    assert catalogue([]).nearest("beans") is None


def test_files_that_are_not_there_are_left_out(tmp_path):
    assert load_catalogue(tmp_path).found == ()


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "hf_datasets.json").write_text("[")
    with pytest.raises(UserError, match=r"hf_datasets.json cannot be read"):
        load_catalogue(tmp_path)


def test_a_name_is_looked_for_once(catalogue, monkeypatch):
    found, calls = catalogue([{"name": "beans"}]), []
    monkeypatch.setattr("agml_assets.leaderboard.catalogue.nearest", lambda *args, **_: calls.append(args) or [])
    assert [found.nearest("beens") for _ in range(3)] == [None] * 3
    assert len(calls) == 1
