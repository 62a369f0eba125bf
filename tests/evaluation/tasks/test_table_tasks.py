"""Tasks that tables describe: Beluga, FishNet, FungiCLEF, iWildCam, Ecdysis, NeWT."""

import json

import polars as pl
import pytest

from agml_assets.errors import UserError

FISH_HEADER = (
    ",Unnamed: 0,species,image,SpecCode,Genus,Subfamily,Family,Order,Class,SuperClass,source,Folder,Troph,"
    "FeedingPath,Tropical,Temperate,Subtropical,Boreal,Polar,freshwater,saltwater,brackish,NewOrder,Frequency\n"
)


def fish(image, genus, folder, traits):
    return f"7,7,,{image},,{genus},,Family,Order,Class,,inat,{folder},3.5,{traits},Order,0.3\n"


def coco(folder, images, annotations, base="beluga.coco/"):
    folder.write(
        f"{base}annotations/instances_train2022.json",
        json.dumps(
            {
                "images": [{"id": i, "file_name": name, "date_captured": "2020"} for i, name in images],
                "annotations": [
                    {"id": 100 + n, "image_id": i, "name": name, "bbox": [0, 0, 9, 9], "viewpoint": "top"}
                    for n, (i, name) in enumerate(annotations)
                ],
                "categories": [{"id": 0, "name": "beluga_whale"}],
            }
        ),
    )


@pytest.mark.parametrize("base", ["beluga.coco/", ""])
def test_belugas_are_labelled_by_name_and_each_is_left_out_in_turn(folder, rows, base):
    folder.picture(*(f"{base}images/train2022/{i:012d}.jpg" for i in range(1, 7)))
    images = [(i, f"{i:012d}.jpg") for i in range(1, 7)]
    whales = [(1, "snow"), (2, "bela"), (3, "snow"), (4, "____"), (5, "bela"), (5, "snow")]
    coco(folder, images, whales, base)
    data = folder.read("beluga", n_test=None, n_classes=None)
    assert data.class_names == ("bela", "snow")
    assert rows(data) == {
        "1": ("all", 1, [f"{base}images/train2022/000000000001.jpg"], "snow"),
        "2": ("all", 0, [f"{base}images/train2022/000000000002.jpg"], "bela"),
        "3": ("all", 1, [f"{base}images/train2022/000000000003.jpg"], "snow"),
    }
    assert data.notes == (
        "2 photos without exactly one annotation were left out.",  # 5 has two, 6 has none
        "1 photo of whales without a name were left out.",
        "1 whale have one photo and can never be found; they count as published.",
    )


def test_a_beluga_file_that_is_no_coco_is_refused(folder):
    folder.write("annotations/instances_train2022.json", '{"images": [{"id": 1}]}')
    with pytest.raises(UserError, match="is no COCO file"):
        folder.read("beluga")


def test_fishnet_gives_nine_traits_and_leaves_out_rows_that_lack_one(folder):
    folder.picture(
        "Image_Library/Sparidae/a.jpg", "Image_Library/Sparidae/b.jpg", "Image_Library/Sciaenidae/c.jpg"
    )
    folder.write(
        "train.csv",
        FISH_HEADER
        + fish("a.jpg", "Diplodus", "Sparidae", "pelagic,1,1,0,0,0,1,0,1")
        + fish("x.jpg", "Diplodus", "Sparidae", "benthic,1,,0,0,0,1,0,1")
        + fish("https://host/path/b.jpg", "Pagrus", "Sparidae", "benthic,0,0,0,1,1.0,0.0,1,0"),
    )
    folder.write("test.csv", FISH_HEADER + fish("c.jpg", "Pogonias", "Sciaenidae", "benthic,1,1,1,0,0,0,1,0"))
    data = folder.read("fishnet", n_train=None, n_test=None)
    assert data.class_names == (
        "FeedingPath", "Tropical", "Temperate", "Subtropical", "Boreal", "Polar",
        "freshwater", "saltwater", "brackish",
    )  # fmt: skip
    assert data.examples["labels"].dtype == pl.List(pl.Int8)
    assert data.examples.select("example", "split", "labels", "group", "label").rows() == [
        ("train/0", "train", [1, 1, 1, 0, 0, 0, 1, 0, 1], "Diplodus", None),
        ("train/2", "train", [0, 0, 0, 0, 1, 1, 0, 1, 0], "Pagrus", None),
        ("test/0", "test", [0, 1, 1, 1, 0, 0, 0, 1, 0], "Pogonias", None),
    ]
    assert data.examples["images"].to_list()[1] == ["Image_Library/Sparidae/b.jpg"]
    assert data.notes == ("1 row of train.csv that lack a trait were left out.",)


@pytest.mark.parametrize(
    ("trait", "message"),
    [("demersal,1,1,0,0,0,1,0,1", "pelagic or benthic"), ("pelagic,2,1,0,0,0,1,0,1", "0 or 1")],
)
def test_another_value_of_a_trait_is_refused(folder, trait, message):
    folder.picture("Image_Library/Sparidae/a.jpg")
    folder.write("train.csv", FISH_HEADER + fish("a.jpg", "Diplodus", "Sparidae", trait))
    with pytest.raises(UserError, match=f"row 1, has .* must have {message}"):
        folder.read("fishnet")


def test_fishnet_columns_in_another_place_are_refused(folder):
    folder.write("train.csv", FISH_HEADER.replace(",Troph,FeedingPath", ",FeedingPath,Troph"))
    with pytest.raises(UserError, match="column 15 is not FeedingPath"):
        folder.read("fishnet")


def fungi(folder, train, val, poison="class_id,poisonous\n10,1\n30,0\n99,1\n"):
    head = "observationID,eventDate,image_path,class_id,species\n"
    folder.write("FungiCLEF2023_train_metadata_PRODUCTION.csv", head + train)
    folder.write("FungiCLEF2023_val_metadata_PRODUCTION.csv", head + val)
    folder.write("poison_status_list.csv", poison)


def test_fungi_are_tested_by_observation_and_unseen_species_are_unknown(folder, rows):
    folder.picture("DF20_300/a.JPG", "DF20_300/b.jpg", "DF20_300/c.jpg")
    folder.picture("DF21_300/p.jpg", "DF21_300/q.jpg", "DF21_300/r.jpg", "DF21_300/s.jpg", "DF21_300/t.jpg")
    folder.picture("DF21_300/u.jpg", "DF21_300/v.jpg")
    fungi(
        folder,
        "1,2020,a.JPG,30,Boletus edulis\n1,2020,B.JPG,10,Amanita muscaria\n2,2020,c.jpg,10,Amanita muscaria\n",
        "7,2021,p.jpg,10,\n8,2021,q.jpg,-1,\n7,2021,r.jpg,10,\n9,2021,s.jpg,77,\n10,2021,t.jpg,30,\n"
        "11,2021,u.jpg,10,\n11,2021,v.jpg,30,\n",
    )
    data = folder.read("fungiclef", n_train=None, n_test=None, n_classes=None)
    assert data.class_names == ("Amanita muscaria", "Boletus edulis")
    assert rows(data) == {
        "train/0": ("train", 1, ["DF20_300/a.JPG"], "1"),
        "train/1": ("train", 0, ["DF20_300/b.jpg"], "1"),
        "train/2": ("train", 0, ["DF20_300/c.jpg"], "2"),
        "test/7": ("test", 0, ["DF21_300/p.jpg", "DF21_300/r.jpg"], "7"),
        "test/8": ("test", -1, ["DF21_300/q.jpg"], "8"),
        "test/9": ("test", -1, ["DF21_300/s.jpg"], "9"),
        "test/10": ("test", 1, ["DF21_300/t.jpg"], "10"),
    }
    assert data.poisonous == (0,)
    assert data.notes == (
        "1 observation whose images disagree on the species were left out.",
        "1 test species not in training count as unknown.",
        "1 poisonous species are not in training.",
    )


def test_the_poisonous_list_is_read_from_a_file_and_missed_by_name(folder):
    folder.picture("DF20_300/a.jpg", "DF21_300/p.jpg")
    fungi(folder, "1,2020,a.jpg,0,x\n", "7,2021,p.jpg,0,x\n")
    (folder.root / "poison_status_list.csv").unlink()
    with pytest.raises(UserError, match="(?s)poison_status_list.csv is missing.*ptak.felk.cvut.cz"):
        folder.read("fungiclef")


@pytest.mark.parametrize("base", ["", "iwildcam_v2.0/"])
def test_iwildcam_reads_train_and_the_unseen_traps(folder, rows, base):
    folder.picture(f"{base}train/a.jpg", f"{base}train/b.jpg", f"{base}train/c.jpg")
    folder.write(
        f"{base}metadata.csv",
        "split,location_remapped,seq_id,filename,y,category_id\n"
        "train,3,s1,a.jpg,0,0\nid_val,3,s1,missing.jpg,4,9\ntest,8,s2,b.jpg,2,5\nval,4,s4,no.jpg,1,1\ntrain,3,s5,c.jpg,2,5\n",
    )
    folder.write(f"{base}categories.csv", "y,category_id,name\n0,0,empty\n2,5,puma\n99999,7,removed\n")
    data = folder.read("iwildcam", n_train=None, n_test=None, n_classes=None)
    assert data.class_names == ("empty", "class 1", "puma", "class 3", "class 4")
    assert rows(data) == {
        "a.jpg": ("train", 0, [f"{base}train/a.jpg"], "3"),
        "b.jpg": ("test", 2, [f"{base}train/b.jpg"], "8"),
        "c.jpg": ("train", 2, [f"{base}train/c.jpg"], "3"),
    }
    assert data.notes == ("1 class of the training split are not tested: empty.",)


ECDYSIS = (
    "id,specimen_id,image_thumbnail_large,visit_date,country,state_region,county_region,gbif_class,gbif_order,"
)
ECDYSIS += "gbif_family,gbif_genus,gbif_species,public_url\n"


def bug(i, image, date, species, county="Lake"):
    return f"{i},{i},{image},{date},US,SD,{county},Insecta,Diptera,F,G,{species},https://x/{image}\n"


def test_ecdysis_is_split_by_date_within_each_species(folder, rows):
    folder.picture(*(f"images/{name}.JPG" for name in "abcdefg"))
    folder.write(
        "metadata.csv",
        ECDYSIS
        + bug(1, "specimen_images/e.JPG", "2021-06-05", "musca")
        + bug(2, "specimen_images/a.JPG", "2021-06-01", "musca")
        + bug(3, "specimen_images/f.JPG", "2021-01-01", "aedes")
        + bug(4, "specimen_images/c.JPG", "2021-06-03", "musca")
        + bug(5, "", "2021-06-03", "musca")
        + bug(6, "specimen_images/b.JPG", "2021-06-02", "musca")
        + bug(7, "specimen_images/d.JPG", "2021-06-04", "musca")
        + bug(8, "specimen_images/gone.JPG", "2021-06-04", "musca"),
    )
    data = folder.read("ecdysis")
    assert data.class_names == ("Insecta|Diptera|F|G|musca", "Insecta|Diptera|F|G|aedes")
    assert {example: row[:2] for example, row in rows(data).items()} == {
        "2": ("train", 0), "6": ("train", 0), "4": ("train", 0), "7": ("train", 0),
        "1": ("test", 0), "3": ("test", 1),
    }  # fmt: skip
    assert rows(data)["1"] == ("test", 0, ["images/e.JPG"], "2021-06-05 US SD Lake")
    assert data.notes == (
        "1 row without an image were left out.",
        "1 image that metadata.csv names are not there and were left out.",
        "1 class of the test split have no training example: Insecta|Diptera|F|G|aedes.",
    )


def test_a_visit_on_both_sides_of_a_split_is_counted(folder):
    folder.picture(*(f"images/{name}.jpg" for name in "abcde"))
    days = {"a": "2021-06-01", "b": "2021-06-02", "c": "2021-06-03", "d": "2021-06-04", "e": "2021-06-04"}
    folder.write(
        "metadata.csv", ECDYSIS + "".join(bug(i, f"{n}.jpg", d, "musca") for i, (n, d) in enumerate(days.items()))
    )
    assert folder.read("ecdysis").notes == (
        "1 visit of a class lie on both sides of its split by date, as published.",
    )


def test_dates_that_do_not_sort_as_text_are_refused(folder):
    folder.picture("images/a.jpg")
    folder.write("metadata.csv", ECDYSIS + bug(1, "a.jpg", "6/30/2021", "musca"))
    with pytest.raises(UserError, match="row 1, has the date '6/30/2021'"):
        folder.read("ecdysis")


NEWT = "id,task_cluster,task_subcluster,task,label,text_label,split,height,width\n"


def test_newt_predictions_belong_to_their_own_images(folder):
    folder.picture(*(f"newt2021_images/{name}.jpg" for name in ("i1", "i2", "i3", "i4", "i5")))
    folder.write(
        "newt2021_labels.csv",
        NEWT
        + "i1,appearance,age,ml_age_hawk,0,not_adult,train,16,16\n"
        + "i2,appearance,age,ml_age_hawk,1,adult,test,16,16\n"
        + "i3,context,,ml_bio_pole,0,neg,test,16,16\n"
        + "i4,appearance,age,ml_age_hawk,1,adult,train,16,16\n"
        + "i5,context,,ml_bio_pole,0,neg,train,16,16\n",
    )
    data = folder.read("newt")
    assert data.class_names == ("0", "1")
    columns = ("example", "split", "label", "subtask", "cluster", "text_label")
    assert data.examples.select(columns).rows() == [
        ("i1", "train", 0, "ml_age_hawk", "appearance", "not_adult"),
        ("i2", "test", 1, "ml_age_hawk", "appearance", "adult"),
        ("i3", "test", 0, "ml_bio_pole", "context", "neg"),
        ("i4", "train", 1, "ml_age_hawk", "appearance", "adult"),
        ("i5", "train", 0, "ml_bio_pole", "context", "neg"),
    ]
    assert data.examples["images"].to_list()[1] == ["newt2021_images/i2.jpg"]
    assert data.notes == ("1 subtask have training images of one label at most: ml_bio_pole.",)


def test_an_image_that_a_table_names_and_that_is_missing_is_said_with_how_to_get_it(folder):
    folder.picture("newt2021_images/i1.jpg")
    folder.write(
        "newt2021_labels.csv", NEWT + "i1,c,,t,0,a,train,16,16\ni2,c,,t,1,b,test,16,16\ni3,c,,t,1,b,test,16,16\n"
    )
    with pytest.raises(UserError) as error:
        folder.read("newt")
    assert "2 images that" in error.value.message
    assert "newt2021_images/i2.jpg, newt2021_images/i3.jpg" in error.value.message
    assert (
        "https://ml-inat-competition-datasets.s3.amazonaws.com/newt/newt2021_images.tar.gz" in error.value.message
    )
