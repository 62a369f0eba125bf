"""How the data of known tasks is split: by the old benchmark's draws, answers apart from what agents see."""

import gzip
import io
import json
import os
import pickle
import random
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from agml_assets.agents.evaluation import baseline_of
from agml_assets.agents.metrics import METRICS, read_mask
from agml_assets.agents.scoring import judge
from agml_assets.agents.submission import read_answers
from agml_assets.agents.tasks import splits
from agml_assets.agents.tasks.prepare import open_task, prepare_task
from agml_assets.agents.tasks.stage import Stage
from agml_assets.errors import UserError
from agml_assets.registry.agents import load_agents
from agml_assets.registry.datasets import DatasetRegistry
from agml_assets.settings import Settings
from agml_assets.store import ArtifactStore
from agml_assets.workspace import Workspace

PYTHON = Path(sys.executable)


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """Give a function that prepares a registered task from invented files of its competition."""
    monkeypatch.setenv("AGML_AGENT_TASKS", str(tmp_path / "benchmarks"))
    workspace = Workspace(DatasetRegistry(()), Settings(), ArtifactStore(tmp_path / "results"))

    def prepare(key, files=None, env=None):
        env = {"train.py": "", **(env or {})}
        for name, text in env.items():
            file = tmp_path / "benchmarks" / key / "env" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text if isinstance(text, bytes) else text.encode())
        (tmp_path / "benchmarks" / key / "scripts").mkdir()
        (tmp_path / "benchmarks" / key / "scripts" / "research_problem.txt").write_text("Improve it.")

        def download(competition, folder):
            folder.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(folder / "a.zip", "w") as archive:
                for name, text in files.items():
                    archive.writestr(name, text)
            return folder / "a.zip"

        monkeypatch.setattr(splits, "download_competition", download)
        return prepare_task(load_agents().task(key), workspace, python=PYTHON)

    return prepare


def table_of(task, name):
    return pl.read_csv(task.public[name], infer_schema=False)


def test_the_last_fifth_of_the_houses_is_held_out(prepared, tmp_path):
    rows = [f"{i},x {i},{1000 + i}" for i in range(1, 12)]
    files = {"train.csv": "\n".join(["Id,Street,SalePrice", *rows]), "data_description.txt": "Houses"}
    task = prepared("house-price", files)
    assert table_of(task, "train.csv")["Id"].to_list() == [str(i) for i in range(1, 9)]
    assert table_of(task, "test.csv").columns == ["Id", "Street"]
    assert read_answers(task).to_dict(as_series=False) == {
        "Id": ["9", "10", "11"],
        "SalePrice": [1009.0, 1010, 1011],
    }
    visible = b"".join(path.read_bytes() for part in task.public.values() for path in [part])
    assert b"1009" not in visible
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "submission.csv").write_text("Id,SalePrice\n11,1011\n10,1010\n9,1012\n")
    assert judge(task, tmp_path / "w").score == 1
    # The median of 1001 to 1008 is 1004.5: off by 4.5, 5.5 and 6.5.
    assert task.entry.baseline == 5.5
    assert "the median" in task.entry.baseline_guess
    # Eight houses are too few to split: the trees guess the median too.
    assert task.reference == 5.5


def test_passengers_are_transported_or_not(prepared, tmp_path):
    rows = [f"{i:04}_01,Earth,{i % 2 == 0 or i == 1}" for i in range(10)]
    task = prepared("spaceship-titanic", {"train.csv": "\n".join(["PassengerId,Home,Transported", *rows])})
    assert read_answers(task).to_dict(as_series=False) == {
        "PassengerId": ["0008_01", "0009_01"],
        "Transported": [True, False],
    }
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "submission.csv").write_text("PassengerId,Transported\n0008_01,True\n0009_01,True\n")
    assert judge(task, tmp_path / "w").score == 0.5
    # Five of the first eight were transported: True is guessed of both, and right of one.
    assert task.entry.baseline == 0.5
    assert "commonest class" in task.entry.baseline_guess


def test_the_commonest_class_is_guessed_and_trees_do_better(prepared):
    # Of the first 80, 60 sleep and are transported; of the 20 that are tested, 5.
    asleep = [i % 4 != 0 if i < 80 else i % 4 == 0 for i in range(100)]
    rows = [f"{i:04}_01,Name {i},{sleeps},,{sleeps}" for i, sleeps in enumerate(asleep)]
    task = prepared(
        "spaceship-titanic", {"train.csv": "\n".join(["PassengerId,Name,Asleep,Age,Transported", *rows])}
    )
    assert task.entry.baseline == 0.25
    assert task.reference == 1


def test_a_measured_baseline_is_known_of_the_opened_task_and_said_to_be_a_guess(prepared):
    rows = [f"{i},x,{1000 + i}" for i in range(1, 12)]
    task = prepared(
        "house-price", {"train.csv": "\n".join(["Id,Street,SalePrice", *rows]), "data_description.txt": ""}
    )
    workspace = Workspace(DatasetRegistry(()), Settings(), ArtifactStore(task.env.parents[4]))
    assert open_task(load_agents().task("house-price"), workspace) == task
    found = baseline_of(task.entry, task.digest, [])
    assert (found.value, found.source) == (5.5, "guess")
    assert found.note == (
        "the starter code does not run; its place is taken by a guess: the median of the training examples for all"
    )


def test_trees_take_numbers_as_numbers_and_few_texts_as_categories():
    n = 400
    train = pl.DataFrame(
        {
            "size": ["NA" if i % 50 == 0 else str(i) for i in range(n)],
            "kind": ["ab"[i % 2] for i in range(n)],
            "name": [f"n{i}" for i in range(n)],
            "none": [""] * n,
            "same": ["1"] * n,
        }
    )
    test = pl.DataFrame({"size": ["100.5", "300"], "kind": ["a", "never seen"], "name": ["n1", "new"]})
    test = test.with_columns(none=pl.lit("4"), same=pl.lit("2"))
    found = splits.boosted_trees(train, np.arange(n) + 1000.0 * (np.arange(n) % 2), test)
    assert found[0] == pytest.approx(100, abs=40)
    yes = splits.boosted_trees(train, np.arange(n) % 2 == 1, test.with_columns(kind=pl.Series(["b", "a"])))
    assert yes.tolist() == [True, False]


def test_essays_are_drawn_as_pandas_does(prepared):
    frame = pd.DataFrame(
        {"text_id": [f"t{i}" for i in range(101)], "full_text": [f"an, essay {i}" for i in range(101)]}
    )
    for place, name in enumerate(splits.ESSAY_SCORES):
        frame[name] = 1 + 0.5 * (np.arange(101) % (place + 2))
    task = prepared("feedback", {"train.csv": frame.to_csv(index=False)})
    expected = frame.sample(frac=1, random_state=42).reset_index(drop=True).iloc[int(101 * 0.98) :]
    assert table_of(task, "test.csv").columns == ["text_id", "full_text"]
    assert table_of(task, "test.csv")["text_id"].to_list() == expected["text_id"].tolist()
    assert np.array_equal(read_answers(task).to_numpy(), expected[list(splits.ESSAY_SCORES)].to_numpy())
    assert "in the order of `test.csv`" in task.problem


def parkinsons_files(patients=6):
    clinical = [
        f"{p}_{m},{p},{m},{p}.0,{m}.5,{'' if m == 6 else p + m}.0,1.0,On".replace(",.0,", ",,")
        for p in range(100, 100 + patients)
        for m in (0, 6, 24, 108)
    ]
    proteins = [f"{p}_0,0,{p},P1,{p * 2}" for p in range(100, 100 + patients)]
    supplement = ["900_0,900,0,1.0,1.0,1.0,1.0,On"]
    header = "visit_id,patient_id,visit_month,updrs_1,updrs_2,updrs_3,updrs_4,medication"
    return {
        "train_clinical_data.csv": "\n".join([header, *clinical]),
        "supplemental_clinical_data.csv": "\n".join([header, *supplement]),
        "train_proteins.csv": "\n".join(["visit_id,visit_month,patient_id,UniProt,NPX", *proteins]),
        "train_peptides.csv": "\n".join(["visit_id,visit_month,patient_id,UniProt,NPX", *proteins]),
    }


def test_two_patients_are_held_out_with_all_that_is_known_of_them(prepared):
    task = prepared("amp-parkinsons-disease-progression-prediction", parkinsons_files())
    random.seed(42)
    tested = random.sample([str(p) for p in range(100, 106)], 2)
    for name in ("train_clinical_data.csv", "train_proteins.csv", "train_peptides.csv"):
        assert not set(table_of(task, name)["patient_id"]) & set(tested)
    assert table_of(task, "supplemental_clinical_data.csv").height == 1
    answers = dict(read_answers(task).iter_rows())
    one = tested[0]
    # Month 0: itself, 6 and 24 months later, of four scales, of which the third is not known at month 6.
    assert answers[f"{one}_0_updrs_1_plus_24_months"] == float(one)
    assert answers[f"{one}_0_updrs_2_plus_6_months"] == 6.5
    assert f"{one}_0_updrs_3_plus_6_months" not in answers
    assert f"{one}_0_updrs_1_plus_12_months" not in answers
    assert answers[f"{one}_108_updrs_2_plus_0_months"] == 108.5
    assert f"{one}_108_updrs_2_plus_6_months" not in answers
    folder = task.public["example_test_files"]
    sample = pl.read_csv(folder / "sample_submission.csv")
    assert set(sample["prediction_id"]) == set(answers)
    assert set(sample["rating"]) == {0}
    assert pl.read_csv(folder / "test.csv").columns == [
        "visit_id",
        "patient_id",
        "visit_month",
        "row_id",
        "updrs_test",
    ]
    assert set(pl.read_csv(folder / "test_proteins.csv", infer_schema=False)["patient_id"]) == set(tested)


def test_test_images_of_fathomnet_have_no_annotations_and_the_truth_is_fixed(prepared, monkeypatch, tmp_path):
    n = 50
    names = [f"image-{i}" for i in range(n)]
    images = [{"id": 10 * i, "file_name": f"{name}.png", "coco_url": "http://x"} for i, name in enumerate(names)]
    annotations = [{"id": 7 * i, "image_id": 10 * (i // 2), "category_id": 3} for i in range(2 * n)]
    listed = "\n".join(["id,categories", *(f'{name},"[{i}.0, 3.0]"' for i, name in enumerate(names))])
    files = {
        "multilabel_classification/train.csv": listed,
        "object_detection/train.json": json.dumps(
            {"images": images, "annotations": annotations, "categories": []}
        ),
        "object_detection/eval.json": json.dumps({"images": [{"id": 1}], "annotations": [1], "info": "x"}),
        "category_key.csv": "id,name\n1,fish\n",
    }

    def download(dataset, outpath):
        outpath.mkdir(parents=True)
        for image in json.loads(dataset.read_text())["images"]:
            (outpath / image["file_name"]).write_bytes(b"png")

    monkeypatch.setattr(splits, "download_images", download)
    task = prepared("fathomnet", files)
    order = pd.DataFrame({"id": names}).sample(frac=1, random_state=42)["id"].tolist()
    tested = order[int(n * 0.98) :]
    answers = read_answers(task)
    assert answers["id"].to_list() == tested
    assert set(answers["osd"]) == {0.0}
    asked = json.loads((task.public["object_detection"] / "eval.json").read_text())
    assert [image["file_name"] for image in asked["images"]] == [f"{name}.png" for name in tested]
    assert "annotations" not in asked
    known = json.loads((task.public["object_detection"] / "train.json").read_text())
    assert [image["id"] for image in known["images"]] == list(range(1, n))
    file_of = {image["id"]: image["file_name"] for image in known["images"]}
    old_file = {image["id"]: image["file_name"] for image in images}
    kept = [one for one in annotations if old_file[one["image_id"]] not in {f"{name}.png" for name in tested}]
    assert [file_of[one["image_id"]] for one in known["annotations"]] == [
        old_file[one["image_id"]] for one in kept
    ]
    assert len(list(task.public["images"].iterdir())) == n
    assert task.entry.metric == "fathomnet_score"
    given = pl.DataFrame(
        {"categories": [c.strip("[]").replace(",", "") for c in answers["categories"]], "osd": [0.5]}
    )
    assert METRICS["fathomnet_score"].measure(answers.drop("id"), given) == 1
    # Category 3 is the commonest and one of two right ones; the other is in no training image.
    assert answers["categories"].to_list() != ["[3.0, 3.0]"]
    assert task.entry.baseline == 0.5
    assert "20 commonest categories" in task.entry.baseline_guess


def array(values):
    stream = io.BytesIO()
    np.save(stream, values)
    return stream.getvalue()


def test_validation_images_of_contrails_are_tested_without_their_masks(prepared):
    mask = np.zeros((256, 256, 1), np.int32)
    mask[1:4, 2] = 1
    files = {
        "train_metadata.json": "[]",
        "validation_metadata.json": "[]",
        "test/9/band_11.npy": array(np.zeros(1)),
    }
    for part, record in (("train", "5"), ("validation", "7")):
        for name, values in (
            ("band_11", np.ones(3)),
            ("human_pixel_masks", mask),
            ("human_individual_masks", mask),
        ):
            files[f"{part}/{record}/{name}.npy"] = array(values)
    task = prepared("identify-contrails", files)
    answers = read_answers(task)
    # Column 2, rows 1 to 3: pixels 2 * 256 + 1 + 1 and on, counted from 1, down the columns.
    assert answers.to_dict(as_series=False) == {"record_id": ["7"], "encoded_pixels": ["514 3"]}
    assert (mask[..., 0] == read_mask("514 3").reshape(256, 256).T).all()
    assert sorted(path.name for path in (task.public["test"] / "7").iterdir()) == ["band_11.npy"]
    assert (task.public["train"] / "5" / "human_pixel_masks.npy").is_file()
    assert table_of(task, "sample_submission.csv").rows() == [("7", "-")]


def test_labels_are_read_of_a_pickle_that_is_not_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "trap"),)

    labels = np.random.default_rng(0).integers(0, 10, 2500).tolist()
    for protocol in (0, 2, 4):
        content = pickle.dumps({"batch": "b", "labels": labels, "trap": Trap()}, protocol=protocol)
        assert splits.read_pickled_labels(content) == labels
    # As Python 2 wrote CIFAR-10: byte strings, and a list in several pieces.
    published = b"\x80\x02}q\x01(U\x06labelsq\x02]q\x03(K\x03K\x08e(K\x05eU\x04dataq\x04K\x07u."
    assert splits.read_pickled_labels(published) == pickle.loads(published)["labels"] == [3, 8, 5]
    assert not (tmp_path / "trap").exists()
    with pytest.raises(ValueError, match="no list of labels"):
        splits.read_pickled_labels(pickle.dumps({"data": [1, 2]}))


def test_cifar10_is_scored_by_private_labels(prepared, monkeypatch):
    labels = (np.arange(10_000) * 7 % 10).tolist()
    batch = pickle.dumps({"labels": labels, "data": 0}, protocol=2)
    task = prepared("cifar10", env={"data/cifar-10-batches-py/test_batch": batch})
    answers = read_answers(task)
    assert answers["label"].to_list() == labels
    assert answers[""].to_list()[:2] == ["0", "1"]
    assert list(task.public) == ["data"]
    assert not (task.env / "data").exists()


def test_another_cifar_is_refused(prepared):
    with pytest.raises(UserError, match="holds 3 labels, not 10000"):
        prepared("cifar10", env={"data/cifar-10-batches-py/test_batch": pickle.dumps({"labels": [1, 2, 3]})})


def arxiv_files():
    """Return the files of a graph of seven nodes as OGB's loader leaves them."""
    folder = "networks/ogbn_arxiv"
    return {
        f"{folder}/raw/node-label.csv.gz": gzip.compress(b"4\n5\n6\n17\n4\n3\n3\n"),
        f"{folder}/raw/edge.csv.gz": gzip.compress(b"0,1\n"),
        f"{folder}/split/time/train.csv.gz": gzip.compress(b"0\n2\n4\n"),
        f"{folder}/split/time/valid.csv.gz": gzip.compress(b"5\n6\n"),
        f"{folder}/split/time/test.csv.gz": gzip.compress(b"3\n1\n"),
        f"{folder}/mapping/README.md": "what nodes are",
        f"{folder}/processed/geometric_data_processed.pt": "labels 17 and 5",
        f"{folder}/RELEASE_v1.txt": "first",
        "networks/arxiv.zip": "labels 17 and 5",
    }


def test_arxiv_is_scored_by_the_labels_of_its_test_nodes(prepared):
    task = prepared("ogbn-arxiv", env=arxiv_files())
    assert read_answers(task).to_dict(as_series=False) == {"0": [17, 5]}
    assert list(task.public) == [f"networks/ogbn_arxiv/{part}" for part in ("mapping", "raw", "split")]


def test_no_label_of_a_test_node_of_arxiv_is_published(prepared):
    task = prepared("ogbn-arxiv", env=arxiv_files())
    labels = task.public["networks/ogbn_arxiv/raw"] / "node-label.csv.gz"
    # Nodes 3 and 1 are tested; 4 is the commonest label of the nodes 0, 2 and 4.
    assert pd.read_csv(labels, compression="gzip", header=None)[0].tolist() == [4, 4, 6, 4, 4, 3, 3]
    assert "in the label file each of them is 4," in task.problem
    seen = [*(path for part in task.public.values() for path in part.rglob("*")), *task.env.rglob("*")]
    assert not any("processed" in path.as_posix() or path.suffix == ".zip" for path in seen)


def test_the_loader_of_arxiv_finds_its_release_and_may_write_beside_the_data(prepared):
    task = prepared("ogbn-arxiv", env=arxiv_files())
    folder = task.env / "networks" / "ogbn_arxiv"
    assert [path.name for path in folder.iterdir()] == ["RELEASE_v1.txt"]
    assert not any(str(path) in ("networks", "networks/ogbn_arxiv") for path in task.public)


def reviews(n):
    """Return reviews in the order of their labels, as the hub lists them."""
    return pl.DataFrame({"text": [f"review {i}" for i in range(n)], "label": [int(i >= n // 2) for i in range(n)]})


@pytest.fixture
def stage(tmp_path):
    made = Stage(tmp_path / "s", tmp_path / "d", tmp_path / "i")
    made.make()
    return made


def test_reviews_to_predict_have_no_labels(stage):
    made = splits.publish_reviews(reviews(4), pl.DataFrame({"text": ["fine"], "label": [1]}), stage)
    assert made.parts == ["data"]
    assert "no network" in made.note
    assert pl.read_parquet(stage.public / "data" / "test.parquet").to_dict(as_series=False) == {
        "idx": ["0"],
        "text": ["fine"],
    }
    assert pl.read_parquet(stage.private / "answers.parquet").rows() == [("0", 1)]


def test_the_number_of_a_review_tells_nothing_of_its_label_nor_does_its_place_to_learn_from(stage):
    given = reviews(4000)
    splits.publish_reviews(given, given, stage)
    shown = pl.read_parquet(stage.public / "data" / "test.parquet")
    answers = pl.read_parquet(stage.private / "answers.parquet")
    learned = pl.read_parquet(stage.public / "data" / "train.parquet")
    assert shown["idx"].to_list() == answers["idx"].to_list() == [str(i) for i in range(4000)]
    for labels in (answers["label"], learned["label"]):
        assert abs(np.corrcoef(np.arange(4000), labels)[0, 1]) < 0.06, "within chance, of 4,000"
    # Answers and labels still belong to their texts.
    truth = dict(given.iter_rows())
    assert [truth[text] for text in shown["text"]] == answers["label"].to_list()
    assert [truth[text] for text in learned["text"]] == learned["label"].to_list()
    assert set(shown["text"]) == set(learned["text"]) == set(truth)


def test_the_order_of_reviews_is_drawn_from_their_labels_too(stage):
    given = reviews(100)
    splits.publish_reviews(given, given, stage)
    first = pl.read_parquet(stage.public / "data" / "test.parquet")["text"].to_list()
    stage.make()
    splits.publish_reviews(given, given, stage)
    assert pl.read_parquet(stage.public / "data" / "test.parquet")["text"].to_list() == first
    stage.make()
    splits.publish_reviews(given, given.with_columns(label=1 - pl.col("label")), stage)
    assert pl.read_parquet(stage.public / "data" / "test.parquet")["text"].to_list() != first


def test_an_archive_of_other_files_is_named(prepared):
    with pytest.raises(UserError, match=r"train.csv is no CSV"):
        prepared("house-price", {"other.csv": "a\n1\n"})
