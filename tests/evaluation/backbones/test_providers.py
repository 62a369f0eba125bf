"""From an entry to its backbone: the guide's own examples, entry points of users, and what is refused."""

import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import agml_assets
from agml_assets.errors import UserError
from agml_assets.evaluation.backbones import BackboneEncoder, VisionBackbone, load_backbone
from agml_assets.registry.models import ModelEntry, load_models
from tests.evaluation.backbones import tiny_models
from tests.evaluation.backbones.tiny_models import photograph

GUIDE = (Path(agml_assets.__file__).parent.parent / "docs" / "models.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def install(folder, code, toml, monkeypatch, module="my_models"):
    """Make a package as `pip install` leaves it: a module, and its entry points beside it."""
    (folder / f"{module}.py").write_text(code)
    points = tomllib.loads(toml)["project"]["entry-points"]
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for group, names in points.items()]
    information = folder / f"{module}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, module, raising=False)


def write_registry(folder, text, monkeypatch):
    file = folder / "models.yaml"
    file.write_text(text)
    monkeypatch.setenv("AGML_MODELS", str(file))
    return load_models()


def test_the_guide_s_model_is_added_in_one_entry(tmp_path, monkeypatch):
    folder = tmp_path / "my-dinov2"
    tiny_models.save_dinov2_with_registers(folder)
    text = blocks("yaml")[0]
    assert "/data/models/my-dinov2" in text
    registry = write_registry(tmp_path, text.replace("/data/models/my-dinov2", str(folder)), monkeypatch)
    encoder = BackboneEncoder(registry.get("my-dinov2"))
    vectors = encoder.encode_prepared(np.stack([encoder.prepare_image(photograph())]))
    assert vectors.shape == (1, 32)


def test_the_guide_s_class_is_found_by_its_entry_point_without_touching_the_repository(tmp_path, monkeypatch):
    (code,), (toml,) = blocks("python"), blocks("toml")
    install(tmp_path, code, toml, monkeypatch)
    registry = write_registry(tmp_path, blocks("yaml")[1], monkeypatch)
    encoder = BackboneEncoder(registry.get("colours"))
    assert isinstance(encoder.backend, VisionBackbone)
    assert encoder.identity()["side"] == 32
    image = photograph(size=(32, 32))
    vectors = encoder.encode_prepared(np.stack([encoder.prepare_image(image)] * 3))
    pixels = np.asarray(image, np.float64) / 255
    expected = pixels.reshape(2, 16, 2, 16, 3).mean((1, 3)).transpose(2, 0, 1).ravel()
    assert vectors.shape == (3, 12)
    np.testing.assert_allclose(vectors, np.tile(expected, (3, 1)), rtol=1e-5)


def test_the_guide_s_rule_for_images_is_one():
    rule = re.search(r"image: (\{.*\})", GUIDE)[1]
    import yaml

    entry = {"key": "a", "provider": "transformers", "checkpoint": "a", "image": yaml.safe_load(rule)}
    assert ModelEntry.model_validate(entry).image.crop == 224


def of(provider):
    return ModelEntry(key="mine", provider=provider, checkpoint="x")


def test_an_unknown_provider_is_refused_with_the_nearest_and_the_known_ones():
    with pytest.raises(
        UserError, match=r"'transformer' is not known\. Did you mean 'transformers'.*packaged.*group"
    ):
        load_backbone(of("transformer"))


def test_an_entry_point_that_cannot_be_imported_or_makes_something_else_is_named(tmp_path, monkeypatch):
    toml = """
    [project.entry-points."agml_assets.backbones"]
    broken = "no_such_module:Thing"
    missing = "other_models:Nothing"
    wrong = "other_models:make"
    """
    install(tmp_path, "def make(entry):\n    return entry\n", toml, monkeypatch, module="other_models")
    with pytest.raises(UserError, match="'broken', which is no_such_module:Thing, cannot be imported: No module"):
        load_backbone(of("broken"))
    with pytest.raises(UserError, match="'missing', which is other_models:Nothing, cannot be imported"):
        load_backbone(of("missing"))
    with pytest.raises(UserError, match="'wrong', .* returned a ModelEntry, not a VisionBackbone"):
        load_backbone(of("wrong"))


def test_a_model_that_nothing_loads_is_refused_with_the_reason(monkeypatch):
    monkeypatch.delenv("AGML_MODELS", raising=False)
    registry = load_models()
    entry = registry.get("vjepa-vitl16")
    assert set(registry.keys()).isdisjoint({"vjepa-vitl16", "vjepa-vith16"})
    with pytest.raises(UserError, match="'vjepa-vitl16' cannot be loaded: V-JEPA's first weights.*docs/models.md"):
        load_backbone(entry)


def test_nothing_heavy_is_imported_with_the_package():
    import subprocess

    code = (
        "import sys; import agml_assets.evaluation.backbones, agml_assets.registry.models;"
        "print({'torch', 'transformers', 'open_clip', 'timm'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
