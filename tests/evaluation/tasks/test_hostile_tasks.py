"""Tables that name files outside, damaged tables, nothing at all: refused in words, nothing outside is read."""

import os
from pathlib import Path

import pytest
from PIL import Image

from agml_assets.errors import UserError
from agml_assets.evaluation.tasks import read_task
from agml_assets.registry.tasks import load_tasks
from tests.evaluation.tasks import test_table_tasks as tables
from tests.evaluation.tasks import test_video_tasks as videos

OUTSIDE = ["../secret.jpg", "x/../../secret.jpg", "..\\secret.jpg", "a\0.jpg"]


@pytest.fixture
def secret(tmp_path):
    Image.new("RGB", (16, 16)).save(tmp_path / "secret.jpg")
    return tmp_path / "secret.jpg"


@pytest.mark.parametrize("name", [*OUTSIDE, "/etc/hostname"])
def test_beluga(folder, secret, name):
    tables.coco(folder, [(1, name)], [(1, "bela")])
    (folder.root / "beluga.coco/images/train2022").mkdir(parents=True)
    with pytest.raises(UserError, match="leads out of"):
        folder.read("beluga")


def test_names_that_are_no_text_are_refused(folder):
    tables.coco(folder, [(1, "\ud800.jpg")], [(1, "bela")])
    with pytest.raises(UserError, match="is no UTF-8 text"):
        folder.read("beluga")


def test_files_whose_names_are_no_text_are_left_out_and_counted(folder):
    folder.picture("train/a/1.jpg", "validation/a/2.jpg")
    content = (folder.root / "train/a/1.jpg").read_bytes()
    Path(os.fsdecode(os.fsencode(folder.root / "train/a") + b"/\xff.jpg")).write_bytes(content)
    data = folder.read("herbarium19", n_train=None, n_test=None, n_classes=None)
    assert data.notes == ("1 file that are no images of a class were left out.",)


@pytest.mark.parametrize("where", ["image", "folder"])
def test_fishnet(folder, secret, where):
    image, family = ("..", "Sparidae") if where == "image" else ("secret.jpg", "../..")
    folder.write("train.csv", tables.FISH_HEADER + tables.fish(image, "G", family, "pelagic,1,1,0,0,0,1,0,1"))
    folder.write("test.csv", tables.FISH_HEADER)
    with pytest.raises(UserError, match="row 1, names the file .* leads out of"):
        folder.read("fishnet")


@pytest.mark.parametrize("name", OUTSIDE)
def test_fungiclef(folder, secret, name):
    tables.fungi(folder, f"1,2020,{name},0,x\n", "7,2021,p.jpg,0,x\n")
    with pytest.raises(UserError, match="leads out of"):
        folder.read("fungiclef")


@pytest.mark.parametrize("name", [*OUTSIDE, "/etc/hostname"])
def test_iwildcam(folder, secret, name):
    folder.write("metadata.csv", f"split,location_remapped,filename,y\ntrain,1,{name},0\n")
    with pytest.raises(UserError, match="row 1, names the file .* leads out of"):
        folder.read("iwildcam")


@pytest.mark.parametrize("name", OUTSIDE)
def test_newt(folder, secret, name):
    folder.write("newt2021_labels.csv", tables.NEWT + f"{name},c,,t,0,a,train,16,16\n")
    with pytest.raises(UserError, match="row 1, names the file .* leads out of"):
        folder.read("newt")


@pytest.mark.parametrize("name", OUTSIDE)
def test_kabr(folder, secret, name):
    videos.kabr(folder, [("G1", 0, [1] * 16)], [("G2", 0, [1] * 16)])
    table = folder.root / "annotation/train.csv"
    table.write_text(table.read_text().replace("G1.0/3.jpg", f"../../{name}"))
    with pytest.raises(UserError, match="video 0, names the file .* leads out of"):
        folder.read("kabr")


def test_mammalnet(folder, secret):
    videos.mammals(folder, [("train", "OT88wS6FLoQ", 0, 32), ("test", "bbbbbbbbbbb", 0, 32)])
    folder.write("annotation/composition/train.csv", "trimmed_videos/.. 0 1\n")
    with pytest.raises(UserError, match="leads out of"):
        folder.read("mammalnet")


def test_a_link_that_leads_out_is_no_way_round(folder, secret):
    (folder.root / "newt2021_images").mkdir()
    (folder.root / "newt2021_images/i1.jpg").symlink_to(secret)
    folder.write("newt2021_labels.csv", tables.NEWT + "i1,c,,t,0,a,train,16,16\n")
    with pytest.raises(UserError, match="leads out of"):
        folder.read("newt")


def test_a_folder_of_images_that_is_a_link_out_is_refused(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    Image.new("RGB", (16, 16)).save(tmp_path / "elsewhere/i1.jpg")
    (folder.root / "newt2021_images").symlink_to(tmp_path / "elsewhere")
    folder.write("newt2021_labels.csv", tables.NEWT + "i1,c,,t,0,a,train,16,16\n")
    with pytest.raises(UserError, match="let `path` of the task name the real folder"):
        folder.read("newt")


def test_a_link_inside_the_folder_is_followed(folder):
    folder.picture("newt2021_images/i1.jpg", "newt2021_images/i3.jpg")
    (folder.root / "newt2021_images/i2.jpg").symlink_to("i1.jpg")
    folder.write(
        "newt2021_labels.csv",
        tables.NEWT + "i1,c,,t,0,a,train,16,16\ni2,c,,t,1,b,test,16,16\ni3,c,,t,1,b,train,16,16\n",
    )
    assert folder.read("newt").examples.height == 3


@pytest.mark.parametrize("key", load_tasks().keys())
def test_missing_data_are_said_with_where_and_how_to_get_them(tmp_path, monkeypatch, key):
    entry = load_tasks().get(key)
    with pytest.raises(UserError, match=f"'{key}': where its data are is not set. Let AGML_TASK_DATA name"):
        read_task(entry)
    monkeypatch.setenv("AGML_TASK_DATA", str(tmp_path))
    with pytest.raises(UserError) as error:
        read_task(entry)
    assert (
        f"its folder is missing; it was looked for in {tmp_path / key}, which does not exist"
        in error.value.message
    )
    (tmp_path / key).mkdir()
    with pytest.raises(UserError) as error:
        read_task(entry)
    assert "is missing; it was looked for in" in error.value.message
    assert "How to get it: " in error.value.message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"id,task\n1,2\n", "has no column task_cluster, label, text_label, split"),
        (b"", "is not a readable table"),
        (b"id,task,task_cluster,label,text_label,split\na,b\n\"", "not a readable table|must be a whole number"),
        (b"id,task,task_cluster,label,text_label,split\na,t,c,one,x,train\n", "row 1: label is 'one'"),
        (b"id,task,task_cluster,label,text_label,split\na,t,c,,x,train\n", "row 1: label is None"),
        (b"id,task,task_cluster,label,text_label,split\na,t,c,7,x,train\n", "labels must be 0 or 1"),
        (b"id,task,task_cluster,label,text_label,split\n\xff,t,c,0,x,train\n", "utf-?8|UTF-?8"),
    ],
)  # fmt: skip
def test_damaged_tables_are_refused_in_words(folder, content, message):
    (folder.root / "newt2021_labels.csv").write_bytes(content)
    with pytest.raises(UserError, match=message):
        folder.read("newt")


def test_an_example_named_twice_is_refused(folder):
    folder.picture("newt2021_images/i1.jpg")
    folder.write("newt2021_labels.csv", tables.NEWT + "i1,c,,t,0,a,train,16,16\ni1,c,,t,1,b,test,16,16\n")
    with pytest.raises(UserError, match="examples must be named once: i1"):
        folder.read("newt")


def test_a_split_of_another_name_is_refused(folder):
    folder.picture("newt2021_images/i1.jpg", "newt2021_images/i2.jpg")
    folder.write("newt2021_labels.csv", tables.NEWT + "i1,c,,t,0,a,train,16,16\ni2,c,,t,1,b,dev,16,16\n")
    with pytest.raises(UserError, match="splits must be train and test"):
        folder.read("newt")
