"""Frozen features, zero-shot and fine-tuning of one model on one dataset stand side by side, everywhere."""

import json
import shutil
from dataclasses import asdict, replace

import numpy as np
import polars as pl
import pytest

import agml_assets
from agml_assets.evaluation import evaluate
from agml_assets.evaluation.fine_tuning import Recipe
from agml_assets.evaluation.open import open_evaluation
from agml_assets.evaluation.protocol import Protocol
from agml_assets.evaluation.report import collect, write_report
from agml_assets.evaluation.stored import FILES, file_of
from agml_assets.evaluation.ways import FINE_TUNE, WAYS, ZERO_SHOT, kind_of
from agml_assets.leaderboard.outputs import board_text, read_source
from agml_assets.leaderboard.own_records import read_own_records
from agml_assets.registry.datasets import DatasetRegistry
from agml_assets.settings import Settings
from agml_assets.site.page_models import HOW, models_data, runs_data
from agml_assets.site.page_sources import read_models
from agml_assets.store import ArtifactStore
from agml_assets.workspace import Workspace
from tests.evaluation.backbones.tiny_models import save_clip, save_tokenizer
from tests.site.test_pages import unpack
from tests.tiny import open_workspace

QUICK = Recipe(lr=3e-3, warmup_epochs=1, max_epochs=1, batch_size=6, side=32)
CONTENDERS = ["clip", "clip/fine_tune", "clip/zero_shot"]
NAMES = ["Our CLIP", "Our CLIP (fine-tuned)", "Our CLIP (zero-shot)"]


def test_every_probe_is_of_the_frozen_kind_and_the_other_ways_are_kinds():
    assert {way: kind_of(way) for way in WAYS if kind_of(way) != "frozen"} == {
        ZERO_SHOT: ZERO_SHOT,
        FINE_TUNE: FINE_TUNE,
    }


# --- One model, three times, end to end


@pytest.fixture(scope="module")
def three(finished, tmp_path_factory):
    """Folder with a benchmark and all three kinds of one model, made one after another; not to be changed."""
    root = tmp_path_factory.mktemp("three") / "copy"
    shutil.copytree(finished, root)
    folder = root / "clip"
    folder.mkdir()
    save_clip(folder)
    save_tokenizer(folder)
    model = {"key": "clip", "provider": "transformers", "checkpoint": str(folder), "display_name": "Our CLIP"}
    (root / "models.yaml").write_text(json.dumps({"models": [{**model, "zero_shot": True}]}))
    real = evaluate.answer_fine_tuned
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGML_REGISTRY", str(root / "datasets.yaml"))
        patch.setenv("AGML_MODELS", str(root / "models.yaml"))
        patch.setattr(evaluate, "answer_fine_tuned", lambda *of, progress: real(*of, QUICK, progress=progress))
        for probe in ("ridge", ZERO_SHOT, FINE_TUNE):
            agml_assets.evaluate("tiny", "clip", probe=probe, results=root / "results")
    return root


@pytest.fixture
def registered(three, monkeypatch):
    monkeypatch.setenv("AGML_MODELS", str(three / "models.yaml"))
    return open_workspace(three)


def test_none_takes_the_place_of_another_and_features_are_shared(three):
    folder = three / "results/tiny/evaluation/clip"
    made = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.suffix in (".npy", ".parquet", ".json")
    }
    of_kind = [file for step, file in FILES.items() if step != "features"]
    expected = {
        "features.npy",
        *of_kind,
        *(f"{kind}/{file}" for kind in (ZERO_SHOT, FINE_TUNE) for file in of_kind),
    }
    assert {file for file in made if not file.endswith(".meta.json")} == expected
    estimators = {
        kind: json.loads((folder / kind / "scores.json").read_text())["probe"].get("estimator")
        for kind in (".", ZERO_SHOT)
    }
    assert estimators == {".": "RidgeProbe", ZERO_SHOT: "ZeroShot"}
    assert json.loads((folder / FINE_TUNE / "scores.json").read_text())["training"]["epochs"] == 1


def test_all_three_stay_current_beside_one_another(registered):
    for probe in ("ridge", ZERO_SHOT, FINE_TUNE):
        pair = open_evaluation(registered, "tiny", "clip", probe=probe)
        assert all(pair.is_current(step) for step in pair.steps), probe


def test_the_leaderboard_takes_up_all_three_each_with_its_predictions(registered, tmp_path):
    records = read_own_records(registered.store)["tiny"]
    assert {one["result_type"]: one["predictions"] for one in records} == {
        "frozen features, ridge probe": "tiny/evaluation/clip/predictions.parquet",
        "zero-shot": "tiny/evaluation/clip/zero_shot/predictions.parquet",
        "fine-tuned": "tiny/evaluation/clip/fine_tune/predictions.parquet",
    }
    runs = json.loads(board_text(read_source(tmp_path / "nowhere", registered.store)))["runs"]
    assert {(run["model"], run["variant"], run["of_runs"]) for run in runs} == {
        ("Our CLIP", "fine-tuned", 1),
        ("Our CLIP", "zero-shot", 1),
        ("Our CLIP (fine-tuned)", "fine-tuned", 1),
    }
    # Predictions are found and seen to be those of the run; only the images are too few.
    assert {run["intervals"]["f1"]["reason"] for run in runs} == {"3 independent groups; at least 20 are needed."}


def test_the_report_and_the_pages_have_all_three_as_contenders(registered):
    report = write_report(registered).report
    assert report["left_out"] == {}
    assert sorted(one["model"] for one in report["subjects"]["tiny"]["standings"]) == CONTENDERS
    assert [one["display_name"] for one in report["models"].values()] == NAMES
    assert {one["model"] for one in report["models"].values()} == {"clip"}
    for one in report["subjects"]["tiny"]["standings"]:
        stored = registered.store.read("tiny", file_of(one["model"], "scores"))
        assert one["score"] == stored["score"]
    results = read_models(registered.store, report, {})
    data = models_data(results, [], {})
    models = data["models"]
    assert (models["id"], unpack(models["name"]), unpack(models["own"])) == (CONTENDERS, NAMES, ["clip"] * 3)
    assert unpack(models["how"]) == [HOW[kind] for kind in ("frozen", FINE_TUNE, ZERO_SHOT)]
    runs = runs_data(results, data)
    assert len(runs["others"]) == 3
    assert {probe.split()[0] for probe in unpack(runs["probe"]) if probe} >= {"RidgeProbe", "ZeroShot"}


# --- Invented results of many models


TRUE = np.arange(40) % 4


def write(store, subject, place, probe, wrong=0, true=TRUE, **protocol):
    """Store predictions of which the first `wrong` are wrong."""
    predicted = np.where(np.arange(40) < wrong, (TRUE + 1) % 4, TRUE)
    frame = pl.DataFrame(
        {"example": [f"{n:02}" for n in range(40)], "true": true, "predicted": predicted, "group": range(40)}
    )
    settings = json.loads(json.dumps(asdict(replace(Protocol(probe, "accuracy"), **protocol))))
    facts = {"artifact": "evaluation/predictions", "code_version": "2", "inputs": {}, "settings": settings}
    store.write(subject, file_of(place, "predictions"), frame, facts)


@pytest.fixture
def store(tmp_path):
    return ArtifactStore(tmp_path)


def found(store, models=("a", "b", "c")):
    evaluations = collect(store, ["leaves"], models)
    return set(evaluations.predictions["leaves"].predicted), set(evaluations.left_out)


def test_other_kinds_need_not_share_the_probe_but_the_score_and_the_training_examples(store):
    write(store, "leaves", "a", "ridge")
    write(store, "leaves", "b", "ridge")
    write(store, "leaves", "c", "knn")
    write(store, "leaves", "a/zero_shot", ZERO_SHOT, n_train=5, seed=3)  # nothing is drawn for it
    write(store, "leaves", "a/fine_tune", FINE_TUNE)
    write(store, "leaves", "b/fine_tune", FINE_TUNE, n_train=5)
    write(store, "leaves", "b/zero_shot", ZERO_SHOT, metric="macro_f1")
    kept, left_out = found(store)
    assert kept == {"a", "b", "a/zero_shot", "a/fine_tune"}
    assert left_out == {"leaves: c", "leaves: b/fine_tune", "leaves: b/zero_shot"}


def test_models_judged_by_labels_that_were_mended_since_are_not_compared_with_the_others(store):
    for model in "ab":
        write(store, "leaves", model, "ridge")
    mended = np.where(np.arange(40) == 7, (TRUE + 1) % 4, TRUE)
    write(store, "leaves", "c", "ridge", true=mended)
    assert found(store) == ({"a", "b"}, {"leaves: c"})


def test_without_frozen_features_the_other_kinds_are_compared_among_themselves(store):
    write(store, "leaves", "a/zero_shot", ZERO_SHOT, n_train=5)
    write(store, "leaves", "b/zero_shot", ZERO_SHOT)
    assert found(store) == ({"a/zero_shot", "b/zero_shot"}, set())


def test_stores_of_before_kinds_had_places_are_read_as_what_they_hold(store):
    write(store, "leaves", "a", "ridge")
    write(store, "leaves", "b", ZERO_SHOT)
    assert found(store) == ({"a", "b/zero_shot"}, set())
    # Once it is made in its own place, that one counts.
    write(store, "leaves", "b/zero_shot", ZERO_SHOT, wrong=40)
    evaluations = collect(store, ["leaves"], ["a", "b"])
    assert set(evaluations.predictions["leaves"].predicted) == {"a", "b/zero_shot"}
    assert not (evaluations.predictions["leaves"].predicted["b/zero_shot"] == TRUE).any()


def test_records_of_before_are_taken_up_once(store):
    def record(place, probe, number):
        facts = {
            "artifact": "evaluation/run_record",
            "code_version": "2",
            "inputs": {},
            "settings": {"probe": probe},
        }
        store.write("leaves", file_of(place, "run_record"), {"number": number}, facts)

    record("a", FINE_TUNE, 1)
    assert [one["number"] for one in read_own_records(store)["leaves"]] == [1]
    record("a/fine_tune", FINE_TUNE, 2)
    assert [one["number"] for one in read_own_records(store)["leaves"]] == [2]
    record("a", "ridge", 3)
    record("a/zero_shot", ZERO_SHOT, 4)
    assert sorted(one["number"] for one in read_own_records(store)["leaves"]) == [2, 3, 4]


def test_imagenet_and_the_published_shape_know_frozen_features_alone(store):
    models = ["clip-vit-base-patch32", "siglip2-base-patch16-224", "dinov2-base", "efficientnet_lite0"]
    workspace = Workspace(DatasetRegistry(()), Settings(), store)
    for task in ("imagenet1k", "beluga"):
        for place, model in enumerate(models):
            write(store, task, model, "ridge", wrong=3 * place + (task == "beluga"))
    without = write_report(workspace).report["imagenet"]
    assert without["aggregate"]["n_models"] == 4
    for task in ("imagenet1k", "beluga"):
        for kind, wrong in ((ZERO_SHOT, 0 if task == "beluga" else 30), (FINE_TUNE, 35)):
            write(store, task, f"{models[0]}/{kind}", kind, wrong=wrong)
    report = write_report(workspace).report
    assert report["imagenet"] == without
    assert len(report["mean_over_tasks"]) == 6
    best = report["subjects"]["beluga"]["standings"][0]["model"]
    assert best == f"{models[0]}/zero_shot"
    published = json.loads((store.root / "_platform/evaluation/results.json").read_text())
    assert {one["model"] for one in published["results"]} == set(models)
    assert {one["ckpt"] for one in published["models"]} == set(models)
    assert {one["best"] for one in published["bests"]} == {models[0]}
