"""Probes on tasks of every form: left out in turn, several outputs, several images, subtasks, unknown classes."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

import agml_assets
from agml_assets import cli
from agml_assets.errors import UserError
from agml_assets.evaluation.backbones import EncodedImages, VisionBackbone
from agml_assets.evaluation.features import combine_images
from agml_assets.evaluation.predictions import fit_and_predict
from agml_assets.evaluation.protocol import Protocol
from agml_assets.evaluation.scoring import score_predictions
from agml_assets.evaluation.subjects import task_subject
from agml_assets.evaluation.tasks.base import TaskData
from agml_assets.registry.tasks import load_tasks


@pytest.fixture
def image(tmp_path):
    Image.new("RGB", (16, 16)).save(tmp_path / "a.png")
    return tmp_path


def subject_of(root: Path, labels, splits, probe, metric="accuracy", *, images=1, **columns):
    """Return a task whose example i is called `i`; all images are one file."""
    n = len(splits)
    several = isinstance(labels[0], list)
    frame = pl.DataFrame(
        {
            "example": [str(i) for i in range(n)],
            "split": splits,
            "label": [None] * n if several else labels,
            "images": [["a.png"] * images] * n,
            "group": columns.pop("group", [None] * n),
            **({"labels": labels} if several else {}),
            **columns,
        },
        schema_overrides={"label": pl.Int64, "group": pl.String}
        | ({"labels": pl.List(pl.Int8)} if several else {}),
    )
    poisonous = columns.pop("poisonous", ())
    names = tuple("abcdefghi"[: len(labels[0])]) if several else tuple("abc")
    entry = load_tasks().get("plantnet")
    protocol = Protocol(probe, metric, "max" if images > 1 else None)
    return task_subject(entry, TaskData(root, frame, names, (), poisonous), protocol, 10**9)


def clouds(labels, dimensions=8, seed=0):
    """Return features that tell the labels apart."""
    rng = np.random.default_rng(seed)
    centres = 6 * rng.standard_normal((max(labels) + 2, dimensions))
    return (centres[labels] + rng.standard_normal((len(labels), dimensions))).astype(np.float32)


def test_each_example_is_predicted_from_the_others(image):
    labels = [0, 1, 2] * 8
    subject = subject_of(image, labels, ["all"] * 24, "knn")
    fitted = fit_and_predict(subject, clouds(labels))
    assert fitted.predictions["example"].to_list() == [str(i) for i in range(24)]
    assert fitted.predictions["predicted"].to_list() == labels
    # An example alone in its class is never predicted right: it is not its own neighbour.
    labels = [0] * 12 + [1]
    alone = fit_and_predict(subject_of(image, labels, ["all"] * 13, "knn"), clouds(labels))
    assert alone.predictions["predicted"][12] == 0


def test_every_output_of_several_is_predicted(image):
    rng = np.random.default_rng(0)
    features = rng.standard_normal((120, 9)).astype(np.float32)
    labels = (features > 0).astype(int).tolist()
    splits = ["train"] * 90 + ["test"] * 30
    subject = subject_of(image, labels, splits, "multi_label", "trait_f1")
    fitted = fit_and_predict(subject, features)
    scores = score_predictions("fish", "model", fitted.predictions, subject.protocol)
    assert scores["score"] > 0.9
    assert 0 < scores["others"]["all_traits_correct"]["score"] <= scores["score"]


def test_the_images_of_an_example_become_one_vector(image):
    subject = subject_of(image, [0, 1, 0], ["train", "train", "test"], "ridge", images=2)
    vectors = np.arange(12, dtype=np.float32).reshape(6, 2) * [[1, -1]]
    assert combine_images(subject, vectors).tolist() == [[2, -1], [6, -5], [10, -9]]


def test_each_subtask_has_a_probe_of_its_own(image):
    # What is 0 in one subtask is 1 in the other: one probe for both would fail.
    truth = [0, 1] * 10
    labels = truth + [1 - label for label in truth] + [0, 0]
    subtasks = ["first"] * 20 + ["second"] * 20 + ["one label"] * 2
    splits = (["train"] * 16 + ["test"] * 4) * 2 + ["train", "test"]
    subject = subject_of(image, labels, splits, "svm", subtask=subtasks)
    fitted = fit_and_predict(subject, clouds(truth + truth + [0, 0]))
    assert (fitted.predictions["true"] == fitted.predictions["predicted"]).all()
    assert len(fitted.predictions) == 9
    assert fitted.n_train == 33


def test_unknown_classes_are_found_and_cost_by_their_price(image):
    labels = [0, 1, 2] * 40 + [0, 1, 2, -1, -1]
    splits = ["train"] * 120 + ["test"] * 5
    subject = subject_of(image, labels, splits, "simpleshot_open_set", "user_loss")
    features = clouds([label % 3 if label >= 0 else 3 for label in labels])
    fitted = fit_and_predict(subject, features)
    assert fitted.predictions["predicted"].to_list()[-2:] == [-1, -1]
    scores = score_predictions("fungi", "model", fitted.predictions, subject.protocol)
    assert scores["score"] > 0.9


def test_few_training_examples_are_drawn_by_the_seed(image):
    from dataclasses import replace

    labels = [0, 1, 2] * 30
    subject = subject_of(image, labels, ["train"] * 81 + ["test"] * 9, "ridge")
    few = replace(subject, protocol=replace(subject.protocol, n_train=6))
    assert fit_and_predict(few, clouds(labels)).n_train == 6


def test_features_that_are_not_finite_are_named(image):
    labels = [0, 1] * 6
    features = clouds(labels)
    features[3] = np.nan
    with pytest.raises(UserError, match="not finite, such as 3"):
        fit_and_predict(subject_of(image, labels, ["train"] * 8 + ["test"] * 4, "ridge"), features)


def test_nothing_to_learn_is_said(image):
    with pytest.raises(UserError, match="all of one class"):
        fit_and_predict(
            subject_of(image, [0, 0, 1], ["train", "train", "test"], "ridge"), np.eye(3, dtype=np.float32)
        )


def test_a_task_is_evaluated_in_one_call(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for split in ("train", "validation"):
        for species, shade in (("acer", 40), ("quercus", 200)):
            folder = tmp_path / "tasks/herbarium19" / split / species
            folder.mkdir(parents=True)
            for number in range(6):
                pixels = np.clip(shade + rng.integers(-20, 20, (40, 40, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    (tmp_path / "datasets.yaml").write_text("datasets:\n")
    for name, place in (("TASK_DATA", "tasks"), ("REGISTRY", "datasets.yaml"), ("RESULTS", "results")):
        monkeypatch.setenv(f"AGML_{name}", str(tmp_path / place))
    scores = agml_assets.evaluate("herbarium19", "efficientnet_lite0", probe="ridge")
    assert scores["metric"] == "macro_f1" and scores["score"] == 1.0
    assert scores["n_train"] == scores["n_test"] == 12
    assert any("34,225 training examples are published" in note for note in scores["notes"])


def test_probes_that_cannot_leave_out_are_refused_where_there_is_no_split(image):
    labels = [0, 1, 2] * 4
    with pytest.raises(UserError, match="plantnet.*no training split.*'ridge'.*knn"):
        fit_and_predict(subject_of(image, labels, ["all"] * 12, "ridge"), clouds(labels))


@pytest.mark.parametrize(
    ("probe", "labels", "metric"),
    [
        ("multi_label", [0, 1] * 4, "accuracy"),
        ("ridge", [[0] * 9, [1] * 9] * 4, "trait_f1"),
        ("simpleshot_open_set", [0, 1, 0, 1, 0, 1, 0, 1], "accuracy"),
    ],
)
def test_a_probe_for_other_labels_is_a_users_mistake(image, probe, labels, metric):
    splits = ["train"] * 2 + ["test"] * 6
    subject = subject_of(image, labels, splits, probe, metric)
    with pytest.raises(UserError, match=f"{probe}.*plantnet"):
        fit_and_predict(subject, clouds([0, 1] * 4))


# --- A task of class folders, evaluated in one call


class Quarters(VisionBackbone):
    """Mean colours; `faults` are added to them."""

    faults = 0.0

    def __init__(self, entry):
        self.checkpoint_of = entry.checkpoint

    @property
    def checkpoint(self):
        return self.checkpoint_of

    def identity(self):
        return {"quarters": self.checkpoint}

    def load(self, device):
        pass

    def transform(self, image):
        return np.asarray(image.resize((8, 8)), np.float32).transpose(2, 0, 1).copy() / 255

    def encode(self, batch):
        if self.checkpoint == "broken":
            raise RuntimeError("no such operator")
        return EncodedImages(batch.mean((2, 3)) + self.faults)


@pytest.fixture
def leaves(tmp_path, monkeypatch):
    """A task, `leaves`, and two models, `quarters` and `broken`; returns the folder of all."""
    for number, place in enumerate(f"{split}/{name}" for split in ("train", "test") for name in "ab"):
        (tmp_path / "leaves" / place).mkdir(parents=True)
        for image in range(4):
            colour = (200 * (number % 2), 40 * image, 10 * number)
            Image.new("RGB", (9, 9), colour).save(tmp_path / "leaves" / place / f"{image}.png")
    write_registries(tmp_path)
    (tmp_path / "datasets.yaml").write_text("datasets: []\n")
    for name in ("datasets", "models", "tasks"):
        variable = {"datasets": "REGISTRY"}.get(name, name.upper())
        monkeypatch.setenv(f"AGML_{variable}", str(tmp_path / f"{name}.yaml"))
    monkeypatch.setenv("AGML_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr("agml_assets.evaluation.backbones.encoder.load_backbone", Quarters)
    return tmp_path


def write_registries(root, task=(), model=()):
    task = {"key": "leaves", "display_name": "Leaves", "reader": "folders", "modality": "photos"} | dict(task)
    task |= {"path": str(root / "leaves"), "probe": "ridge", "metric": "macro_f1"}
    models = [{"key": key, "provider": "mine", "checkpoint": key} | dict(model) for key in ("quarters", "broken")]
    (root / "tasks.yaml").write_text(json.dumps({"tasks": [task]}))
    (root / "models.yaml").write_text(json.dumps({"models": models}))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n_train": 1.5}, "n_train"),
        ({"n_train": "4"}, "n_train"),
        ({"n_train": 0}, "n_train"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**32}, "seed"),
        ({"split": "leaksafe"}, "split"),
        ({"probe": "rige"}, "ridge"),
        ({"ntrain": 4}, "n_train"),
    ],
)
def test_options_that_are_not_there_or_have_no_such_value_are_told(leaves, options, said):
    with pytest.raises(UserError, match=said):
        agml_assets.evaluate("leaves", "quarters", **options)


@pytest.mark.parametrize(("model", "options"), [("quarter", {}), ("quarters", {"seed": -1})])
def test_a_wrong_name_is_told_before_anything_is_fetched_or_measured(leaves, monkeypatch, model, options):
    monkeypatch.setattr("agml_assets.evaluator._prepare", lambda *of: pytest.fail("prepared"))
    with pytest.raises(UserError, match="quarters|seed"):
        agml_assets.evaluate("leaves", model, **options)


def test_vectors_that_are_not_finite_are_not_kept_as_up_to_date(leaves, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Quarters, "faults", float("nan"))
        with pytest.raises(UserError, match="not finite"):
            agml_assets.evaluate("leaves", "quarters")
    assert agml_assets.evaluate("leaves", "quarters")["score"] == 1


def test_a_name_or_a_note_that_was_changed_is_in_the_record(leaves):
    def record():
        agml_assets.evaluate("leaves", "quarters")
        file = leaves / "results/leaves/evaluation/quarters/run_record.json"
        return json.loads(file.read_text()), file.stat().st_mtime_ns

    first, made = record()
    assert record() == (first, made)  # what is the same is not made again
    write_registries(leaves, {"display_name": "Our leaves", "n_test": 80}, {"display_name": "Four Quarters"})
    second, _ = record()
    assert (second["dataset"], second["model"]) == ("Our leaves", "Four Quarters")
    assert "80 test examples are published, 8 are here." in second["notes"]


def test_scores_that_were_edited_are_made_again(leaves):
    agml_assets.evaluate("leaves", "quarters")
    file = leaves / "results/leaves/evaluation/quarters/scores.json"
    honest = file.read_text()
    file.write_text(honest.replace('"score": 1.0', '"score": 0.9'))  # as long as it was
    assert agml_assets.evaluate("leaves", "quarters")["score"] == 1
    assert file.read_text() == honest


def test_a_model_whose_code_fails_is_named_and_the_rest_is_done(leaves, capsys):
    assert cli.main(["evaluate", "leaves", "--model", "broken", "--model", "quarters"]) == 1
    broken, good = capsys.readouterr().out.splitlines()
    assert "failed" in broken and "no such operator" in broken
    assert "1.000" in good
