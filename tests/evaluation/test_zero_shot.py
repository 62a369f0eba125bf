"""Zero-shot answers: those of the library's own two towers, from stored features and the text half alone."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from blake3 import blake3

from agml_assets.errors import UserError
from agml_assets.evaluation import evaluate
from agml_assets.evaluation.backbones import BackboneEncoder
from agml_assets.evaluation.protocol import Protocol
from agml_assets.evaluation.subjects import Subject
from agml_assets.evaluation.zero_shot import PROMPTS, answer_zero_shot, shown_names
from agml_assets.leaderboard.catalogue import Catalogue
from agml_assets.leaderboard.run_records import AcceptedRecord, check_record
from agml_assets.registry.models import ModelEntry
from agml_assets.store import ArtifactStore
from tests.evaluation.backbones import tiny_models
from tests.evaluation.backbones.tiny_models import photograph, save_tokenizer

NAMES = ("early_blight", "healthy-leaf", "rust")
SHOWN = ("early blight", "healthy leaf", "rust")
SAVE = {"clip": tiny_models.save_clip, "siglip": tiny_models.save_siglip}
IMAGES = [photograph(seed) for seed in range(6)]


@pytest.fixture(scope="module", params=SAVE)
def saved(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    model = SAVE[request.param](folder)
    save_tokenizer(folder)
    return request.param, model, folder


def entry_of(folder, **fields):
    return ModelEntry(
        **{"key": "tiny", "provider": "transformers", "checkpoint": str(folder), "zero_shot": True, **fields}
    )


def subject_of(names=NAMES, **fields):
    examples = pl.DataFrame(
        {
            "example": [str(number) for number in range(6)],
            "split": ["train", "test", "test", "test", "val", "test"],
            "label": [0, 1, 2, 0, 1, 2],
            "group": range(6),
            "first_image": range(6),
            "n_images": [1] * 6,
        }
    )
    none = {"digests": None, "encode_with": None, "prepare_images": None, "inputs": {}, "config": None}
    protocol = Protocol(probe="zero_shot", metric="macro_f1")
    given = {"key": "leaves", "name": "Leaves", "examples": examples, "class_names": names, "protocol": protocol}
    return Subject(**{**given, **none, **fields})


def features_of(folder):
    encoder = BackboneEncoder(entry_of(folder))
    return encoder.encode_prepared(np.stack([encoder.prepare_image(image) for image in IMAGES]))


def by_the_library(name, model, folder, sentences):
    """Return logits of the whole model for its own images and tokens, (images, sentences)."""
    import torch
    from transformers import AutoImageProcessor, AutoTokenizer

    pixels = AutoImageProcessor.from_pretrained(folder, backend="pil")(images=IMAGES, return_tensors="pt")
    how = {"padding": "max_length", "max_length": 64} if name == "siglip" else {"padding": True}
    tokens = AutoTokenizer.from_pretrained(folder)(sentences, return_tensors="pt", **how)
    if name == "siglip":
        tokens = {"input_ids": tokens["input_ids"]}
        assert tokens["input_ids"].shape[1] == 64
    with torch.no_grad():
        return model(pixel_values=pixels["pixel_values"], **tokens)


def test_with_one_prompt_probabilities_are_the_softmax_of_the_librarys_logits(saved):
    name, model, folder = saved
    fitted = answer_zero_shot(subject_of(prompts=("a photo of {}.",)), entry_of(folder), features_of(folder))
    logits = by_the_library(name, model, folder, [f"a photo of {one}." for one in SHOWN]).logits_per_image
    test = [1, 2, 3, 5]
    expected = logits.softmax(1).numpy()[test]
    assert np.ptp(expected, axis=1).min() > 1e-4
    np.testing.assert_allclose(fitted.predictions["probabilities"].to_list(), expected, atol=1e-5)
    assert fitted.predictions["predicted"].to_list() == expected.argmax(1).tolist()
    assert fitted.predictions["true"].to_list() == [1, 2, 0, 2]
    assert (fitted.n_train, fitted.n_invalid) == (0, 0)


def test_vectors_are_averaged_over_prompts_at_unit_length(saved):
    import torch

    name, model, folder = saved
    fitted = answer_zero_shot(subject_of(), entry_of(folder), features_of(folder))
    outputs = [by_the_library(name, model, folder, [p.format(one) for one in SHOWN]) for p in PROMPTS]
    assert len(outputs) == 2
    mean = sum(output.text_embeds / output.text_embeds.norm(dim=1, keepdim=True) for output in outputs)
    images = torch.nn.functional.normalize(outputs[0].image_embeds, dim=1)
    logits = model.logit_scale.exp() * images @ torch.nn.functional.normalize(mean, dim=1).T
    expected = logits.softmax(1).detach().numpy()[[1, 2, 3, 5]]
    np.testing.assert_allclose(fitted.predictions["probabilities"].to_list(), expected, atol=1e-5)


def test_the_image_half_is_not_read_for_sentences(saved, monkeypatch):
    _, _, folder = saved
    features = features_of(folder)
    loaded = []
    from transformers import AutoModel

    real = AutoModel.from_pretrained

    def noted(*arguments, **settings):
        found = real(*arguments, **settings)
        loaded.append(len(found[0].vision_model.encoder.layers))
        return found

    monkeypatch.setattr(AutoModel, "from_pretrained", noted)
    answer_zero_shot(subject_of(), entry_of(folder), features)
    assert loaded == [0]


def test_prompts_are_the_datasets_before_the_models_before_ours(saved):
    _, _, folder = saved
    features = features_of(folder)

    def asked(model_prompts=(), **fields):
        fitted = answer_zero_shot(subject_of(**fields), entry_of(folder, prompts=model_prompts), features)
        return fitted.settings["prompts"]

    assert asked() == list(PROMPTS)
    assert asked(["{}!"]) == ["{}!"]
    assert asked(["{}!"], prompts=("{}?",)) == ["{}?"]


def test_names_lose_underscores_and_hyphens_and_blanks_collapse():
    assert shown_names("x", ["Tomato___Late_blight", "two-row  barley", " a "], {}) == (
        "Tomato Late blight",
        "two row barley",
        "a",
    )
    assert shown_names("x", ["bls", "cbsd"], {"bls": "bacterial_leaf streak"}) == ("bacterial leaf streak", "cbsd")


def test_names_that_collide_ask_for_overrides():
    with pytest.raises(UserError, match="'Leaf_Rust' and 'leaf-rust'.*class_name_overrides"):
        shown_names("x", ["Leaf_Rust", "leaf-rust"], {})
    assert shown_names("x", ["Leaf_Rust", "leaf-rust"], {"leaf-rust": "rust of stems"})[1] == "rust of stems"
    with pytest.raises(UserError, match="no class"):
        shown_names("x", ["a"], {"b": "c"})
    with pytest.raises(UserError, match="no name to show"):
        shown_names("x", ["a", "_"], {})


def test_models_and_subjects_that_cannot_be_asked_are_refused(saved):
    _, _, folder = saved
    features = np.ones((6, 24), np.float32)
    with pytest.raises(UserError, match="zero_shot: true"):
        answer_zero_shot(subject_of(), entry_of(folder, zero_shot=False), features)
    with pytest.raises(UserError, match="vector: features"):
        answer_zero_shot(subject_of(), entry_of(folder, vector="class_token"), features)
    nested = subject_of().examples.with_columns(label=pl.Series([[0, 1]] * 6))
    with pytest.raises(UserError, match="named classes"):
        answer_zero_shot(subject_of(examples=nested), entry_of(folder), features)
    with pytest.raises(UserError, match="share one space"):
        answer_zero_shot(subject_of(), entry_of(folder), np.ones((6, 7), np.float32))


def test_a_model_without_its_vocabulary_is_refused_as_all_words_would_be_one(tmp_path):
    tiny_models.save_clip(tmp_path)
    with pytest.raises(UserError, match="its tokenizer knows no word"):
        answer_zero_shot(subject_of(), entry_of(tmp_path), np.ones((6, 24), np.float32))


def test_a_model_without_its_text_weights_is_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    tiny_models.save_clip(tmp_path)
    save_tokenizer(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file(
        {name: one for name, one in load_file(file).items() if name != "text_projection.weight"},
        file,
        metadata={"format": "pt"},
    )
    with pytest.raises(UserError, match="lack 1 of its weights, such as text_projection"):
        answer_zero_shot(subject_of(), entry_of(tmp_path), np.ones((6, 24), np.float32))


def test_it_goes_through_the_whole_evaluation(saved, tmp_path):
    _, _, folder = saved
    model = entry_of(folder)
    subject = subject_of(
        name="leaves",
        digests=lambda: [blake3(image.tobytes()).hexdigest() for image in IMAGES],
        encode_with=lambda encoder: (
            lambda rows: encoder.encode_prepared(np.stack([encoder.prepare_image(IMAGES[row]) for row in rows]))
        ),
        inputs={"leaves": "1"},
    )
    pair = evaluate.Evaluation(subject, model, BackboneEncoder(model), ArtifactStore(tmp_path))
    for step in pair.steps:
        evaluate.MAKE[step](pair)
    assert pair.encoder.loads == 1
    assert all(pair.is_current(step) for step in pair.steps)
    scores, record = pair.read("scores"), pair.read("run_record")
    assert (scores["n_train"], scores["n_test"], scores["invalid"]) == (0, 4, 0)
    assert record["result_type"] == "zero-shot" and "finetune" not in record
    assert record["train_time_seconds"] is None and "skipped_samples" not in record["metrics"]
    assert "an agricultural photo of {}." in record["notes"]
    outcome = check_record(record, "leaves", 1, Catalogue())
    assert isinstance(outcome, AcceptedRecord), outcome
    assert [one.message for one in outcome.warnings] == ["not given: benchmark_id"]
    # Other prompts, or another name, make other predictions of the same features.
    for changed in (
        replace(pair, model=entry_of(folder, prompts=["{} in a field"])),
        replace(pair, subject=replace(subject, class_name_overrides={"rust": "stem rust"})),
    ):
        assert changed.is_current("features") and not changed.is_current("predictions")
