"""Every model of the published results, and every one of the leaderboard that encodes images, is registered."""

import datetime
import json

import pytest

from agml_assets.registry.models import load_models


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AGML_MODELS", raising=False)
        return load_models()


def test_every_published_model_is_registered_with_what_is_published_of_it(conformance, registry):
    models = json.loads((conformance / "biobench/results.json").read_text())["models"]
    assert len(models) == 85
    registered = registry.published()
    assert set(registered) == {model["ckpt"] for model in models}
    for model in models:
        entry = registered[model["ckpt"]]
        released = entry.release_date
        milliseconds = released and 1000 * int(
            datetime.datetime(released.year, released.month, released.day, tzinfo=datetime.UTC).timestamp()
        )
        assert {
            "ckpt": entry.published_checkpoint,
            "display": entry.display_name,
            "family": entry.family,
            "resolution": entry.resolution,
            "params": entry.parameters,
            "release_ms": milliseconds,
        } == model


def test_every_published_model_but_the_video_encoders_can_be_loaded_by_a_provider(registry):
    without = {name for name, entry in registry.published().items() if entry.provider == "none"}
    assert without == {"vitl16", "vith16"}


def test_the_leaderboard_s_models_that_encode_images_are_registered_under_their_names(conformance, registry):
    names = set()
    for file in sorted((conformance / "agml_site/performance").glob("*.json")):
        names |= _values_of("model", json.loads(file.read_text()))
    # Models that write text are asked questions, not probed.
    generative = {
        name for name in names if name.split("/")[0] in ("google", "qwen", "moonshotai") and "siglip" not in name
    }
    assert names - generative == {
        "google/siglip-base-patch16-224", "kakaobrain/align-base", "openai/clip-vit-base-patch32",
    }  # fmt: skip
    for name in names - generative:
        entry = registry.get(name)
        assert (entry.checkpoint, entry.zero_shot) == (name, True)


def _values_of(key, value):
    if isinstance(value, list):
        return set().union(*(_values_of(key, item) for item in value))
    if not isinstance(value, dict):
        return set()
    found = {value[key]} if isinstance(value.get(key), str) else set()
    return found.union(*(_values_of(key, item) for item in value.values()))
