"""Fine-tuning: the recipe's schedule and groups, what is learnt, and that a kill changes nothing."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from PIL import Image

from agml_assets.errors import UserError
from agml_assets.evaluation.fine_tuning import Recipe, answer_fine_tuned
from agml_assets.evaluation.protocol import Protocol
from agml_assets.evaluation.subjects import Subject
from agml_assets.registry.models import ModelEntry
from tests.evaluation.backbones import tiny_models

LITE = ModelEntry(key="efficientnet_lite0", provider="packaged", checkpoint="efficientnet_lite0")
QUICK = Recipe(lr=3e-3, warmup_epochs=1, max_epochs=2, batch_size=6, side=32)
SPLITS = ("train",) * 24 + ("val",) * 6 + ("test",) * 6


def image_of(place):
    """Noise with one of three colours, of two shapes."""
    pixels = np.random.default_rng(place).integers(0, 100, (90, 60 + 30 * (place % 2), 3))
    pixels[..., place % 3] += 150
    return Image.fromarray(pixels.astype(np.uint8))


def subject_of(splits=SPLITS, **fields):
    n = len(splits)
    examples = pl.DataFrame(
        {
            "example": [f"e{place}" for place in range(n)],
            "split": splits,
            "label": [place % 3 for place in range(n)],
            "group": [place // 2 for place in range(n)],
            "first_image": range(n),
            "n_images": [1] * n,
        }
    )
    return Subject(
        **{
            "key": "leaves",
            "name": "Leaves",
            "config": None,
            "examples": examples,
            "class_names": ("red", "green", "blue"),
            "digests": list,
            "encode_with": list,
            "prepare_images": lambda prepare, places: (prepare(image_of(place)) for place in places),
            "protocol": Protocol("fine_tune", "macro_f1"),
            "inputs": {"leaves": "1"},
            **fields,
        }
    )


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    tiny_models.save_clip(folder)
    return ModelEntry(key="clip", provider="transformers", checkpoint=str(folder))


def content(fitted):
    return fitted.predictions.to_dict(as_series=False), fitted.training["history"]


def test_the_rate_is_that_of_pytorchs_own_schedules():
    import torch
    from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

    steps, recipe = 7, Recipe(max_epochs=10)
    warmup, total = 2 * steps, 10 * steps
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    linear = LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1)
    cosine = CosineAnnealingLR(optimizer, T_max=total - warmup)
    schedule = SequentialLR(optimizer, [linear, cosine], milestones=[warmup])
    for step in range(total):
        assert recipe.rate(step, steps) == pytest.approx(schedule.get_last_lr()[0], abs=1e-9)
        optimizer.step()
        schedule.step()


def test_the_defaults_are_those_of_the_experiments():
    found = Recipe()
    assert (found.lr, found.weight_decay, found.warmup_epochs, found.max_epochs) == (5e-5, 0.05, 2, 50)
    assert (found.patience, found.batch_size, found.clip) == (10, 64, 1.0)


def test_the_packaged_model_trains_two_epochs_and_answers_every_test_example(tmp_path):
    fitted = answer_fine_tuned(subject_of(), LITE, tmp_path, replace(QUICK, side=64))
    assert fitted.predictions["example"].to_list() == [f"e{place}" for place in range(30, 36)]
    assert fitted.predictions["true"].to_list() == [0, 1, 2, 0, 1, 2]
    np.testing.assert_allclose(fitted.predictions["probabilities"].list.sum(), 1, atol=1e-5)
    history = fitted.training["history"]
    assert [row["epoch"] for row in history] == [1, 2]
    assert history[1]["train_loss"] < history[0]["train_loss"]
    assert (fitted.n_train, fitted.training["n_val"]) == (24, 6)


def test_colours_are_learnt_by_all_layers(clip, tmp_path):
    fitted = answer_fine_tuned(subject_of(), clip, tmp_path, replace(QUICK, max_epochs=8))
    assert (fitted.predictions["true"] == fitted.predictions["predicted"]).all()


def test_the_best_epochs_weights_answer_and_training_ends_without_progress(clip, tmp_path):
    # A rate that breaks what the warm-up had reached.
    wild = replace(QUICK, lr=0.3, warmup_epochs=1, max_epochs=30, patience=2)
    fitted = answer_fine_tuned(subject_of(), clip, tmp_path, wild)
    losses = [row["val_loss"] for row in fitted.training["history"]]
    best = int(np.argmin(losses))
    assert fitted.training["best_epoch"] == best + 1
    assert fitted.training["stopped_early"] and len(losses) == best + 1 + 2
    # Asked for the validation examples in the place of test ones, the answers give the best epoch's loss.
    swapped = subject_of(("train",) * 24 + ("val",) * 6 + ("test",) * 6)
    examples = swapped.examples.with_columns(first_image=pl.Series([*range(30), *range(24, 30)]))
    swapped = replace(swapped, examples=examples)
    again = answer_fine_tuned(swapped, clip, tmp_path / "swapped", wild)
    shares = np.array(again.predictions["probabilities"].to_list())
    loss = -np.log(shares[np.arange(6), again.predictions["true"].to_numpy()]).mean()
    assert loss == pytest.approx(losses[best], rel=1e-4)


def test_decay_spares_tensors_of_one_dimension(clip, tmp_path, monkeypatch):
    import torch

    groups = []
    real = torch.optim.AdamW.__init__

    def noted(self, parameters, **settings):
        groups.extend(parameters)
        real(self, parameters, **settings)

    monkeypatch.setattr(torch.optim.AdamW, "__init__", noted)
    answer_fine_tuned(subject_of(), clip, tmp_path, replace(QUICK, max_epochs=1))
    decayed, spared = groups
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.05, 0.0)
    assert {one.ndim for one in spared["params"]} == {1} and min(one.ndim for one in decayed["params"]) == 2


def test_an_interrupted_training_goes_on_to_the_same_answers(clip, tmp_path):
    whole = answer_fine_tuned(subject_of(), clip, tmp_path / "whole", replace(QUICK, max_epochs=3))

    def stop(done, _):
        if done > 24 + 6:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        answer_fine_tuned(subject_of(), clip, tmp_path / "part", replace(QUICK, max_epochs=3), stop)
    seen = []
    resumed = answer_fine_tuned(
        subject_of(), clip, tmp_path / "part", replace(QUICK, max_epochs=3), lambda done, _: seen.append(done)
    )
    assert seen[0] == 24 + 6  # the first epoch was not done again
    assert content(resumed) == content(whole)


def test_a_killed_training_goes_on_to_the_same_answers(clip, tmp_path):
    recipe = replace(QUICK, max_epochs=3)
    whole = answer_fine_tuned(subject_of(), clip, tmp_path / "whole", recipe)
    code = f"""
import os, signal, sys
from pathlib import Path
from agml_assets.registry.models import ModelEntry
from tests.evaluation.test_fine_tuning import Recipe, answer_fine_tuned, subject_of
import torch
torch.set_num_threads({__import__("torch").get_num_threads()})
def kill(done, _):
    if done > 48:
        os.kill(os.getpid(), signal.SIGKILL)
clip = ModelEntry(key="clip", provider="transformers", checkpoint={clip.checkpoint!r})
answer_fine_tuned(subject_of(), clip, Path({str(tmp_path / "killed")!r}), {recipe!r}, kill)
"""
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    seen = []
    resumed = answer_fine_tuned(subject_of(), clip, tmp_path / "killed", recipe, lambda done, _: seen.append(done))
    assert seen[0] == 48 + 6
    assert content(resumed) == content(whole)


def test_another_seed_gives_another_training(clip, tmp_path):
    one, other = (
        answer_fine_tuned(subject_of(), clip, tmp_path, replace(QUICK, max_epochs=1, seed=seed)) for seed in (1, 2)
    )
    assert content(one) != content(other)


def test_without_a_validation_split_whole_groups_are_held_out(clip, tmp_path):
    fitted = answer_fine_tuned(
        subject_of(("train",) * 30 + ("test",) * 6), clip, tmp_path, replace(QUICK, max_epochs=1)
    )
    # 15 % of 30 examples, in pairs.
    assert (fitted.n_train, fitted.training["n_val"]) == (24, 6)


def test_what_cannot_be_trained_is_refused(clip, tmp_path):
    other = ModelEntry(key="m", provider="timm", checkpoint="vit")
    with pytest.raises(UserError, match="its provider is timm"):
        answer_fine_tuned(subject_of(), other, tmp_path)
    with pytest.raises(UserError, match="training and a test split|a training and"):
        answer_fine_tuned(subject_of(("all",) * 36), clip, tmp_path)
    with pytest.raises(UserError, match="no test example"):
        answer_fine_tuned(subject_of(("train",) * 30 + ("val",) * 6), clip, tmp_path)
    unnamed = subject_of().examples.with_columns(label=pl.Series([0, 1, 3] * 12))
    with pytest.raises(UserError, match="no declared class"):
        answer_fine_tuned(subject_of(examples=unnamed), clip, tmp_path)
    with pytest.raises(UserError, match="does not take images of 64 pixels"):
        answer_fine_tuned(subject_of(), clip, tmp_path, replace(QUICK, side=64))


def test_it_goes_through_the_whole_evaluation_without_features(clip, tmp_path, monkeypatch):
    from agml_assets.evaluation import evaluate
    from agml_assets.evaluation.backbones import BackboneEncoder
    from agml_assets.leaderboard.catalogue import Catalogue
    from agml_assets.leaderboard.run_records import AcceptedRecord, check_record
    from agml_assets.store import ArtifactStore

    real = evaluate.answer_fine_tuned
    monkeypatch.setattr(
        evaluate, "answer_fine_tuned", lambda *given, progress: real(*given, QUICK, progress=progress)
    )
    subject = subject_of(name="leaves")
    pair = evaluate.Evaluation(subject, clip, BackboneEncoder(clip), ArtifactStore(tmp_path))
    assert pair.steps == ("predictions", "scores", "run_record")
    for step in pair.steps:
        evaluate.MAKE[step](pair)
    assert all(pair.is_current(step) for step in pair.steps)
    assert pair.store.sidecar("leaves", pair.file("features")) is None
    assert not pair.work_folder.joinpath("checkpoint.pt").exists()
    scores, record = pair.read("scores"), pair.read("run_record")
    assert [row["epoch"] for row in scores["training"]["history"]] == [1, 2]
    assert record["result_type"] == "fine-tuned"
    assert record["inference_time_seconds"] > 0
    said = record["finetune"]
    assert said.keys() == {
        "train_samples", "val_samples", "epochs", "lr", "weight_decay", "split_seed", "train_ratio",
        "training_time_seconds", "optimized",
    }  # fmt: skip
    assert (said["train_samples"], said["val_samples"], said["epochs"]) == (24, 6, 2)
    assert (said["lr"], said["weight_decay"], said["train_ratio"]) == (3e-3, 0.05, 0.6667)
    outcome = check_record(record, "leaves", 1, Catalogue())
    assert isinstance(outcome, AcceptedRecord), outcome
    assert [one.message for one in outcome.warnings] == ["not given: benchmark_id"]
    # Other images or labels are another training.
    other = replace(pair, subject=replace(subject, inputs={"leaves": "2"}))
    assert not other.is_current("predictions")


def test_in_the_graph_features_say_that_they_are_not_needed_and_the_rest_is_made(clip, tmp_path, monkeypatch):
    import dagster as dg

    from agml_assets.evaluation import assets, evaluate
    from agml_assets.evaluation.backbones import BackboneEncoder
    from agml_assets.partitions import DATASET, MODEL
    from agml_assets.registry.datasets import DatasetRegistry
    from agml_assets.settings import Settings
    from agml_assets.store import ArtifactStore
    from agml_assets.workspace import Workspace

    real = evaluate.answer_fine_tuned
    monkeypatch.setattr(
        evaluate, "answer_fine_tuned", lambda *given, progress: real(*given, QUICK, progress=progress)
    )
    store = ArtifactStore(tmp_path)
    pair = evaluate.Evaluation(subject_of(), clip, BackboneEncoder(clip), store)
    monkeypatch.setattr(assets, "open_evaluation", lambda *_: pair)
    pairs = dg.MultiPartitionsDefinition(
        {DATASET: dg.StaticPartitionsDefinition(["leaves"]), MODEL: dg.StaticPartitionsDefinition(["clip"])}
    )
    four = [one for one in assets.build_assets(pairs) if one.key.path[-1] != "report"]
    done = dg.materialize(
        four,
        partition_key=dg.MultiPartitionKey({DATASET: "leaves", MODEL: "clip"}),
        resources={"workspace": Workspace(DatasetRegistry(()), Settings(), store)},
    )
    [features] = done.asset_materializations_for_node("evaluation__features")
    assert "sees the images" in features.metadata["not_needed"].value
    assert store.sidecar("leaves", pair.file("features")) is None
    assert pair.read("run_record")["result_type"] == "fine-tuned"
