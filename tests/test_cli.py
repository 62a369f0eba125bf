"""`agml-assets run`: what it does, what it leaves alone, and what it says of mistakes."""

import json
import subprocess

import pytest

import agml_assets
from agml_assets.errors import UserError
from tests.tiny import BIN, contents, environment, write_images, write_registry


def agml(*arguments, env, cwd):
    command = [str(BIN / "agml-assets"), *arguments]
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=400)


@pytest.fixture
def place(tmp_path):
    registry = write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images"))
    return tmp_path, environment(tmp_path, registry)


def test_what_is_current_is_left_alone_and_force_makes_it_again(copy_of_finished):
    env = environment(copy_of_finished, copy_of_finished / "datasets.yaml")
    folder = copy_of_finished / "results" / "tiny"
    before = contents(folder)
    done = agml("run", "--dataset", "tiny", env=env, cwd=copy_of_finished)
    assert done.returncode == 0, done.stderr
    assert "up to date" in done.stderr
    assert contents(folder) == before
    assert str(folder / "result.json") in done.stdout
    forced = agml("run", "--dataset", "tiny", "--phases", "1", "--force", env=env, cwd=copy_of_finished)
    assert forced.returncode == 0, forced.stderr
    after = contents(folder)
    assert after["quality/exact_duplicate.json"][1] > before["quality/exact_duplicate.json"][1]
    assert after["embeddings/embeddings.npy"] == before["embeddings/embeddings.npy"]


@pytest.mark.slow
def test_phase_1_makes_no_embeddings_and_says_that_phase_2_was_not_asked_for(place):
    root, env = place
    done = agml("run", "--dataset", "tiny", "--phases", "1", env=env, cwd=root)
    assert done.returncode == 0, done.stderr
    assert not (root / "results" / "tiny" / "embeddings").exists()
    assert "Not current" not in done.stdout
    value = json.loads((root / "results" / "tiny" / "result.json").read_text())
    assert value["metrics"]["near_duplicate"] == {"skipped": True, "reason": "Phase 2 was not asked for."}
    assert value["phases_completed"] == [1]


@pytest.mark.slow
def test_a_folder_that_is_not_registered_runs_all_the_same(place):
    root, env = place
    write_images(root / "my leaves", seed=1)
    done = agml("run", "--dataset", str(root / "my leaves"), "--phases", "1", env=env, cwd=root)
    assert done.returncode == 0, done.stderr
    (made,) = (p for p in (root / "results").iterdir() if not p.name.startswith("_"))
    assert json.loads((made / "result.json").read_text())["reproducibility"]["num_images"] == 24


def test_a_name_that_nobody_knows_is_refused_with_the_nearest(place):
    root, env = place
    done = agml("run", "--dataset", "tinny", env=env, cwd=root)
    assert done.returncode == 1
    assert "'tinny'" in done.stderr
    assert "'tiny'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (root / "results").exists()


def test_a_mistake_in_the_settings_is_told_without_a_stack(place):
    root, env = place
    (root / "config.json").write_text('{"split_sed": 1, "train_ratio": "much"}')
    done = agml("run", "--dataset", "tiny", env=env, cwd=root)
    assert done.returncode == 1
    assert "split_sed" in done.stderr
    assert "split_seed" in done.stderr
    assert "train_ratio" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_mistake_in_the_registry_is_told_without_a_stack(place):
    root, env = place
    (root / "datasets.yaml").write_text("datasets:\n  - name: tiny\n    labelcol: x\n")
    done = agml("run", "--dataset", "tiny", env=env, cwd=root)
    assert done.returncode == 1
    assert "unknown key 'labelcol'. Did you mean 'label_col'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (root / "results").exists()


def test_a_hub_dataset_without_network_says_what_to_do(place):
    root, env = place
    done = agml("run", "--dataset", "nobody/nothing", env={**env, "HF_HUB_OFFLINE": "1"}, cwd=root)
    assert done.returncode == 1
    assert "nobody/nothing" in done.stderr
    assert "HF_HOME" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_an_embedding_model_that_cannot_be_loaded_keeps_what_succeeded(place):
    root, env = place
    (root / "datasets.yaml").write_text(f"datasets:\n  - {{name: tiny, path: {root / 'images'}}}\n")
    done = agml("run", "--dataset", "tiny", env=env, cwd=root)
    assert done.returncode == 1
    assert "facebook/dinov2-base" in done.stderr
    assert "efficientnet_lite0" in done.stderr
    assert "Traceback" not in done.stderr
    value = json.loads((root / "results" / "tiny" / "result.json").read_text())
    assert value["phases_completed"] == [1]


def test_python_returns_the_path_of_the_report(place, monkeypatch):
    root, env = place
    for name in ("AGML_RESULTS", "AGML_REGISTRY", "DAGSTER_HOME"):
        monkeypatch.setenv(name, env[name])
    monkeypatch.chdir(root)
    path = agml_assets.run("tiny", phases=[1])
    assert str(path) == str(root / "results" / "tiny" / "result.json")
    assert json.loads(path.read_text())["dataset"] == "tiny"


@pytest.fixture
def vit(tmp_path):
    """A tiny model whose processor resizes otherwise than `dataset/pixels`."""
    from transformers import ViTConfig, ViTImageProcessorPil, ViTModel

    config = ViTConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
    ViTModel(config).save_pretrained(tmp_path / "vit")
    ViTImageProcessorPil().save_pretrained(tmp_path / "vit")
    return tmp_path / "vit"


def test_a_model_that_reads_the_images_again_is_current_until_its_weights_change(place, vit, caplog):
    root, _ = place
    (root / "config.json").write_text(json.dumps({"embed_model": str(vit)}))

    def run():
        given = {"results": root / "results", "config": root / "config.json", "phases": [2]}
        caplog.clear()
        with caplog.at_level("INFO"):
            path = agml_assets.run(str(root / "images"), **given)
        return json.loads(path.read_text()), "up to date" in caplog.text

    first, _ = run()
    assert first["phases_completed"] == [2]  # though it was made with all that phase 2 needs
    assert run() == (first, True)
    write_other_weights(vit)
    second, up_to_date = run()
    assert not up_to_date
    assert second["metrics"]["feature_separability"] != first["metrics"]["feature_separability"]


def write_other_weights(folder):
    import torch
    from transformers import ViTModel

    model = ViTModel.from_pretrained(folder)
    torch.manual_seed(7)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    model.save_pretrained(folder)


def test_two_folders_of_one_name_do_not_overwrite_each_other(place):
    root, _ = place
    write_images(root / "other" / "images", seed=1)
    given = {"results": root / "results", "phases": [1]}
    path = agml_assets.run(str(root / "images"), **given)
    before = path.read_text()
    with pytest.raises(UserError, match="holds the results of .*register the dataset with a `key`"):
        agml_assets.run(str(root / "other" / "images"), **given)
    assert path.read_text() == before


def test_results_among_the_images_are_refused_before_anything_is_written(place):
    root, _ = place
    with pytest.raises(UserError, match="lies inside the dataset's folder"):
        agml_assets.run(str(root / "images"), results=root / "images" / "results")
    assert not (root / "images" / "results").exists()
