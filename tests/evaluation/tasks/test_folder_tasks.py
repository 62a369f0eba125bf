"""Tasks whose classes are folders: Herbarium 2019, iNat21, Pl@ntNet, Plankton, and any other."""

import json
import unicodedata

import pytest

from agml_assets.errors import UserError


def test_herbarium_gives_a_species_one_label_in_both_splits(folder, rows):
    folder.picture("train/10/a.jpg", "train/2/b.jpg", "train/2/c.jpg", "validation/10/d.jpg", "validation/2/e.jpg")
    data = folder.read("herbarium19", n_train=None, n_test=None, n_classes=None)
    assert data.class_names == ("10", "2")
    assert rows(data) == {
        "train/10/a.jpg": ("train", 0, ["train/10/a.jpg"], None),
        "train/2/b.jpg": ("train", 1, ["train/2/b.jpg"], None),
        "train/2/c.jpg": ("train", 1, ["train/2/c.jpg"], None),
        "validation/10/d.jpg": ("test", 0, ["validation/10/d.jpg"], None),
        "validation/2/e.jpg": ("test", 1, ["validation/2/e.jpg"], None),
    }
    assert data.notes == ()


def test_a_class_that_one_split_lacks_shifts_no_other(folder, rows):
    folder.picture("train/a/1.jpg", "train/c/2.jpg", "validation/b/3.jpg", "validation/c/4.jpg")
    data = folder.read("herbarium19", n_train=None, n_test=None, n_classes=None)
    assert data.class_names == ("a", "b", "c")
    assert {example: label for example, (_, label, _, _) in rows(data).items()} == {
        "train/a/1.jpg": 0, "train/c/2.jpg": 2, "validation/b/3.jpg": 1, "validation/c/4.jpg": 2,
    }  # fmt: skip
    assert data.notes == (
        "1 class of the test split have no training example: b.",
        "1 class of the training split are not tested: a.",
    )


def test_herbarium_reads_the_reduced_release(folder):
    folder.picture("small-train/a/1.jpg", "small-validation/a/2.jpg")
    assert folder.read("herbarium19").examples["split"].to_list() == ["train", "test"]


def test_numbers_that_differ_from_the_published_ones_are_said(folder):
    folder.picture("train/a/1.jpg", "validation/a/2.jpg")
    assert folder.read("herbarium19").notes == (
        "34,225 training examples are published, 1 are here.",
        "2,679 test examples are published, 1 are here.",
        "683 classes are published, 1 are here.",
    )


def test_files_that_are_no_images_are_counted(folder):
    folder.picture("train/a/1.jpg", "validation/a/2.jpg")
    folder.write("train/a/notes.txt", "")
    folder.write("train/readme.pdf", "")
    (folder.root / "validation/b").mkdir()
    data = folder.read("herbarium19", n_train=None, n_test=None, n_classes=None)
    assert data.class_names == ("a", "b")
    assert data.notes == (
        "2 files that are no images of a class were left out.",
        "1 class folder hold no images: b.",
    )


def test_links_out_of_the_folder_are_left_out_and_counted(folder, tmp_path):
    folder.picture("train/a/1.jpg", "validation/a/2.jpg")
    (tmp_path / "secret.jpg").write_bytes((folder.root / "train/a/1.jpg").read_bytes())
    (folder.root / "train/a/3.jpg").symlink_to(tmp_path / "secret.jpg")
    data = folder.read("herbarium19", n_train=None, n_test=None, n_classes=None)
    assert data.examples["example"].to_list() == ["train/a/1.jpg", "validation/a/2.jpg"]
    assert data.notes == ("1 link out of the task's folder were left out.",)


def test_a_split_that_is_a_link_out_of_the_folder_is_refused(folder, tmp_path):
    folder.picture("validation/a/2.jpg")
    (tmp_path / "elsewhere/a").mkdir(parents=True)
    (folder.root / "train").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="link out of"):
        folder.read("herbarium19")


def test_inat21_reads_train_mini_and_val(folder, rows):
    folder.picture(
        "train_mini/00001_Animalia_Annelida/a.jpg",
        "train_mini/00000_Plantae/b.jpg",
        "val/00001_Animalia_Annelida/c.jpg",
    )
    data = folder.read("inat21")
    assert data.class_names == ("00000_Plantae", "00001_Animalia_Annelida")
    assert rows(data)["val/00001_Animalia_Annelida/c.jpg"][:2] == ("test", 1)
    assert [split for split, *_ in rows(data).values()] == ["train", "train", "test"]


@pytest.mark.parametrize("base", ["", "plantnet_300K/"])
def test_plantnet_names_species_and_groups_photos_of_an_observation(folder, rows, base):
    folder.picture(
        f"{base}images/train/1355868/aa.jpg",
        f"{base}images/train/1355868/bb.jpg",
        f"{base}images/train/1400000/cc.jpg",
        f"{base}images/val/1400000/dd.jpg",
        f"{base}images/test/1400000/ee.jpg",
    )
    folder.write(f"{base}plantnet300K_species_id_2_name.json", json.dumps({"1355868": "Lactuca virosa L."}))
    folder.write(
        f"{base}plantnet300K_metadata.json",
        json.dumps({"aa": {"obs_id": "7", "split": "train"}, "bb": {"obs_id": "7"}, "dd": {"obs_id": 9}}),
    )
    data = folder.read("plantnet")
    assert data.class_names == ("Lactuca virosa L.", "1400000")
    found = rows(data)
    assert len(found) == 4  # the test split is not read: the published task tests on val
    assert found[f"{base}images/train/1355868/bb.jpg"] == (
        "train", 0, [f"{base}images/train/1355868/bb.jpg"], "7"
    )  # fmt: skip
    assert found[f"{base}images/train/1400000/cc.jpg"][3] is None
    assert found[f"{base}images/val/1400000/dd.jpg"][:2] == ("test", 1)
    assert found[f"{base}images/val/1400000/dd.jpg"][3] == "9"


def plankton(folder, train="train", test="val"):
    folder.picture(
        f"{train}/Chlorococcales/D20180816T091250_IFCB114_00001.png",
        f"{train}/Nodularia_spumigena/D20180816T091250_IFCB114_00002.png",
        f"{train}/Uroglenopsis_sp/D20180817T091250_IFCB114_00003.png",
        f"{test}/Chlorococcales/D20210101T000000_IFCB114_00004.png",
        f"{test}/Unclassifiable/D20210101T000000_IFCB114_00005.png",
        f"{test}/Unclassifiable/D20210102T000000_IFCB114_00006.png",
        f"{test}/Uroglenopsis_sp/D20210102T000000_IFCB114_00007.png",
        f"{test}/Nodularia-spumigena/other.png",
    )
    folder.write(f"{train}/Class descriptions.pdf", "")


def test_plankton_labels_mean_the_same_class_in_both_splits(folder, rows):
    plankton(folder)
    data = folder.read("plankton", n_train=None, n_test=None, n_classes=None)
    assert data.class_names == ("Chlorococcales", "Nodularia_spumigena", "Uroglenopsis_sp")
    found = rows(data)
    # By the sorted folders of each split, Uroglenopsis_sp would be 2 in training and 3 at the test.
    assert found["train/Uroglenopsis_sp/D20180817T091250_IFCB114_00003.png"][1] == 2
    assert found["val/Uroglenopsis_sp/D20210102T000000_IFCB114_00007.png"][1] == 2
    assert found["val/Nodularia-spumigena/other.png"][:2] == ("test", 1)
    assert len(found) == 6


def test_plankton_that_experts_could_not_classify_is_left_out_and_counted(folder):
    plankton(folder)
    notes = folder.read("plankton", n_train=None, n_test=None, n_classes=None).notes
    assert notes == (
        "1 file that are no images of a class were left out.",
        "2 images that experts gave no class (`unclassifiable`) were left out.",
        "Classes spelled differently in the two splits were taken as one: Nodularia_spumigena and "
        "Nodularia-spumigena.",
    )


def test_plankton_of_one_sample_is_one_group(folder, rows):
    plankton(folder)
    groups = [group for *_, group in rows(folder.read("plankton")).values()]
    assert groups == [
        "D20180816T091250_IFCB114", "D20180816T091250_IFCB114", "D20180817T091250_IFCB114",
        "D20210101T000000_IFCB114", None, "D20210102T000000_IFCB114",
    ]  # fmt: skip


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_plankton_is_found_under_the_names_that_the_archives_unpack_to(folder, form):
    test = unicodedata.normalize(form, "phytoplankton_Utö_2021_labeled")
    plankton(folder, "phytoplankton_labeled/labeled_20201020", test)
    assert folder.read("plankton").examples.height == 6


def test_two_plankton_folders_of_one_class_are_refused(folder):
    plankton(folder)
    folder.picture("train/nodularia spumigena/x.png")
    with pytest.raises(UserError, match="are the same class"):
        folder.read("plankton")


def test_any_folder_per_class_is_a_task(folder, rows):
    folder.picture("Train/oak/1.jpg", "Train/ash/2.png", "valid/ash/3.jpg", "testing/oak/4.webp")
    data = folder.read("herbarium19", reader="folders", n_train=None, n_test=None, n_classes=None)
    assert data.class_names == ("ash", "oak")
    assert {example: row[:2] for example, row in rows(data).items()} == {
        "Train/ash/2.png": ("train", 0), "Train/oak/1.jpg": ("train", 1), "testing/oak/4.webp": ("test", 1),
    }  # fmt: skip


def test_a_folder_per_class_alone_is_predicted_leaving_each_out(folder):
    folder.picture("oak/1.jpg", "ash/2.jpg")
    data = folder.read("beluga", reader="folders", n_test=None, n_classes=None)
    assert data.examples["split"].unique().to_list() == ["all"]
    assert data.notes == ()
    with pytest.raises(UserError, match="probe: knn"):
        folder.read("herbarium19", reader="folders")
