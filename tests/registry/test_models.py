"""The model registry: what loads, what is refused and how, and what finds a model."""

import datetime
import re
from pathlib import Path

import pytest

from agml_assets.errors import UserError
from agml_assets.registry.models import SHIPPED, ModelEntry, load_models


@pytest.fixture(autouse=True)
def empty_place(tmp_path, monkeypatch):
    """A working directory of its own, and an environment that names no registry."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGML_MODELS", raising=False)


def load(text, file="models.yaml"):
    Path(file).write_text(text)
    return load_models(file)


def load_one(text):
    (entry,) = load(f"models:\n  - {{{text}}}\n").entries
    return entry


def refusal(text):
    with pytest.raises(UserError) as caught:
        load(text)
    return caught.value.message


def test_an_entry_needs_a_key_a_provider_and_a_checkpoint_alone():
    entry = load_one("key: mine, provider: transformers, checkpoint: me/mine")
    assert entry == ModelEntry(key="mine", provider="transformers", checkpoint="me/mine")
    assert (entry.display_name, entry.family, entry.precision, entry.vector) == (
        "mine", "other", "float32", "features",
    )  # fmt: skip
    assert (entry.revision, entry.parameters, entry.release_date, entry.zero_shot) == (None, None, None, False)


def test_an_entry_overrides_the_defaults_and_those_the_built_in_ones():
    first, second = load(
        """
        defaults: {provider: timm, org: us, precision: bfloat16, vector: class_token}
        models:
          - {key: a, checkpoint: a}
          - {key: b, checkpoint: b, precision: float32, org: you, release_date: 2024-02-29, parameters: 1_000}
        """
    ).entries
    assert (first.provider, first.org, first.precision, first.vector) == ("timm", "us", "bfloat16", "class_token")
    assert (second.org, second.precision, second.vector) == ("you", "float32", "class_token")
    assert (second.release_date, second.parameters) == (datetime.date(2024, 2, 29), 1000)


def test_every_wrong_entry_is_named_with_the_file_in_one_message():
    message = refusal(
        """
        defaults: {orgg: us, key: x}
        modells: []
        models:
          - {provider: timm, checkpoint: a}
          - 7
          - {key: a b, provider: timm, checkpoint: a}
          - {key: b, provider: timm}
          - {key: c, provider: timm, checkpoint: c, vektor: features}
          - {key: d, provider: timm, checkpoint: d, vector: best}
          - {key: e, provider: timm, checkpoint: e, precision: float64}
          - {key: f, provider: timm, checkpoint: f, resolution: 0}
          - {key: g, provider: timm, checkpoint: g, release_date: someday}
          - {key: h, provider: timm, checkpoint: 7}
        """
    )
    assert message.startswith(f"The model registry {Path('models.yaml').absolute()} is not valid:\n")
    for part in (
        "unknown key 'modells'",
        "defaults: unknown key 'orgg'",
        "defaults: 'key' belongs to an entry, not to all",
        "entry 1: has no `key`",
        "entry 2: must be a mapping with a `key`",
        "entry 3 ('a b'): `key`: 'a b' cannot be a key",
        "entry 4 ('b'): `checkpoint`",
        "entry 5 ('c'): `vektor`: unknown key 'vektor'. Did you mean 'vector'?",
        "entry 6 ('d'): `vector`",
        "entry 7 ('e'): `precision`",
        "entry 8 ('f'): `resolution`",
        "entry 9 ('g'): `release_date`",
        "entry 10 ('h'): `checkpoint`: must be text; put the value in quotes",
    ):
        assert part in message


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ("provider: none, checkpoint: a", "`reason` says why the provider is none"),
        ("provider: timm, checkpoint: a, reason: too old", "`reason` says why the provider is none"),
        ("provider: timm, checkpoint: a, revision: main", "`revision` has no use with the provider timm"),
        ("provider: packaged, checkpoint: a, revision: main", "`revision` has no use"),
        ("provider: transformers, checkpoint: a, drop_keys: [x]", "`drop_keys` has no use"),
        ("provider: open_clip, checkpoint: hf-hub:a/b, drop_keys: [x]", "`drop_keys` has no use"),
        ("provider: open_clip, checkpoint: A/b, image: {resize: 9, crop: 9, mean: [0, 0, 0], std: [1, 1, 1]}",
         "`image` has no use"),
        ("provider: transformers, checkpoint: a, image: {resize: 8, crop: 9, mean: [0, 0, 0], std: [1, 1, 1]}",
         "`crop` (9) is larger than `resize` (8)"),
        ("provider: transformers, checkpoint: a, image: {resize: 9, crop: 9, mean: [0, 0, 0], std: [1, 0, 1]}",
         "`std` finite and above 0"),
        ("provider: transformers, checkpoint: a, resolution: 8, "
         "image: {resize: 9, crop: 9, mean: [0, 0, 0], std: [1, 1, 1]}", "`image` makes 9 pixels"),
        ("provider: open_clip, checkpoint: 'local:A/b', drop_keys: x", "must be a list"),
    ],
)  # fmt: skip
def test_fields_that_contradict_each_other_are_refused(fields, complaint):
    assert complaint in refusal(f"models:\n  - {{key: a, {fields}}}\n")


def test_keys_are_unique_whatever_the_case_and_so_are_published_names():
    message = refusal(
        """
        defaults: {provider: timm}
        models:
          - {key: Alpha, checkpoint: a, published_checkpoint: p}
          - {key: alpha, checkpoint: b, published_checkpoint: p}
        """
    )
    assert "'a' and 'b' have the same key, 'alpha' (case does not count)" in message
    assert "'Alpha' and 'alpha' have the same `published_checkpoint`, 'p'" in message


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("models: [", "line 1, is not valid YAML"), ("- a", "must be a mapping with a list `models`"),
     ("models: {a: b}", "`models` must be a list"), ("{}", "`models` must be a list"),
     ("models: []\nmodels: []", "the key 'models' is given twice")],
)  # fmt: skip
def test_a_file_that_is_no_registry_is_refused(text, complaint):
    assert complaint in refusal(text)


def test_the_environment_names_a_file_in_place_of_the_shipped_one(monkeypatch):
    load("models:\n  - {key: mine, provider: timm, checkpoint: a}\n")
    monkeypatch.setenv("AGML_MODELS", "models.yaml")
    assert load_models().keys() == ["mine"]
    monkeypatch.setenv("AGML_MODELS", "elsewhere.yaml")
    with pytest.raises(UserError, match=re.escape("elsewhere.yaml, named by $AGML_MODELS, does not exist")):
        load_models()


@pytest.fixture
def three():
    return load(
        """
        models:
          - {key: small, provider: timm, checkpoint: net_s, parameters: 5, published_checkpoint: old_s}
          - {key: unknown, provider: timm, checkpoint: net_u}
          - {key: large, provider: timm, checkpoint: net_l, parameters: 50}
          - {key: gone, provider: timm, checkpoint: net_g, retired: true, published_checkpoint: old_g}
          - {key: clip_only, provider: none, checkpoint: net_n, reason: no code is published}
        """
    )


def test_keys_are_those_that_can_be_run_with_the_largest_first(three):
    assert three.keys() == ["large", "small", "unknown"]


def test_a_model_is_found_by_key_checkpoint_or_published_name(three):
    assert three.get("small") is three.get("net_s") is three.get("old_s")
    assert three.published() == {"old_s": three.get("small"), "old_g": three.entries[3]}


def test_unknown_and_retired_models_are_refused_with_what_to_do(three):
    with pytest.raises(UserError, match=r"'larg' is not registered in .*models.yaml\. Did you mean 'large'"):
        three.get("larg")
    with pytest.raises(UserError, match="Registered are: large, small, unknown"):
        three.get("zzzzzzzz")
    with pytest.raises(UserError, match="'net_g' is retired.*remove `retired`"):
        three.get("net_g")


def test_two_entries_of_one_checkpoint_are_told_apart_by_their_keys():
    registry = load(
        """
        defaults: {provider: transformers, checkpoint: }
        models:
          - {key: a, checkpoint: o/m, vector: features}
          - {key: b, checkpoint: o/m, vector: class_token}
        """.replace("checkpoint: }", "org: o}")
    )
    assert registry.get("b").vector == "class_token"
    with pytest.raises(UserError, match="registered several times.*choose a key: a, b"):
        registry.get("o/m")


def test_the_shipped_registry_is_read_and_explains_every_field():
    registry = load_models()
    header = SHIPPED.read_text().partition("\nmodels:")[0]
    for field in ModelEntry.model_fields:
        assert re.search(rf"^#   (.*\b)?{field}\b", header, re.MULTILINE), field
    keys = [entry.key for entry in registry.entries]
    assert len(keys) == len({key.lower() for key in keys})
    assert registry.get("efficientnet_lite0").provider == "packaged"


def test_dinov3_is_normalised_as_it_was_trained_and_not_with_the_statistics_of_clip():
    # https://github.com/facebookresearch/dinov3: mean (0.485, 0.456, 0.406), std (0.229, 0.224, 0.225)
    entries = [entry for entry in load_models().entries if entry.family == "DINOv3"]
    assert len(entries) == 3
    for entry in entries:
        assert (entry.image.mean, entry.image.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def test_models_with_a_text_tower_are_marked_for_zero_shot():
    families = {entry.family for entry in load_models().entries if entry.zero_shot}
    assert families == {
        "CLIP", "SigLIP", "SigLIP2", "MetaCLIP 2", "Perception Encoder", "OpenVision", "cv4ecology", "ALIGN",
    }  # fmt: skip
    without = {
        entry.key for entry in load_models().entries if entry.family == "cv4ecology" and not entry.zero_shot
    }
    assert without == {"MegaDescriptor-L-384"}
