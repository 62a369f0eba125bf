"""The jobs of one dataset: files, selection of single artifacts, failures, versions."""

import dataclasses
import json
from datetime import date

import dagster as dg
import numpy as np
import pytest

from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXEL_HASHES, PIXELS, SPLITS
from agml_assets.definitions import build_defs
from agml_assets.embeddings.artifacts import EMBEDDINGS, LABELS, NEIGHBORS, UMAP_PROJECTION
from agml_assets.errors import UserError
from agml_assets.quality import assets as quality_assets
from agml_assets.quality.artifacts import METRIC_ARTIFACTS, SCORE
from agml_assets.quality.summary import MEASURED, judge_dataset
from agml_assets.recording import asset_key
from agml_assets.report.artifacts import ARTIFACTS as REPORT
from agml_assets.report.artifacts import CONFIG_USED
from agml_assets.report.result import build_result
from agml_assets.runner import run_dataset
from agml_assets.store import ArtifactStore
from tests.tiny import (
    JOB,
    contents,
    dagster,
    environment,
    open_workspace,
    run_in_process,
    write_images,
    write_registry,
)

EVERYTHING = (*MEASURED.values(), SCORE, *REPORT)


def report(root):
    return json.loads((root / "results" / "tiny" / "result.json").read_text())


def states(root):
    used = json.loads((root / "results" / "tiny" / "config_used.json").read_text())
    return {key: value["state"] for key, value in used["artifacts"].items()}


def failed_steps(result):
    return {event.step_key for event in result.all_events if event.is_step_failure}


def test_every_artifact_lies_at_its_place_with_a_sidecar(finished):
    folder = finished / "results" / "tiny"
    files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    expected = {artifact.file for artifact in EVERYTHING}
    assert files == expected | {f"{file}.meta.json" for file in expected}


def test_a_finished_dataset_is_current_in_every_part(finished):
    verdicts = judge_dataset(open_workspace(finished).dataset("tiny"))
    assert {key for key, verdict in verdicts.items() if verdict.state != "current"} == set()
    value = report(finished)
    assert value["phases_completed"] == [1, 2, 3]
    assert value["breaches"] == []
    assert value["metrics"]["exact_duplicate"]["exact_duplicate_count"] == 2


@pytest.fixture(scope="module")
def declared():
    """The files that each asset may read, by artifact key."""
    files = {artifact.key: artifact.file for artifact in EVERYTHING}
    return {
        spec.key.to_user_string(): {files[dep.asset_key.to_user_string()] for dep in spec.deps}
        for spec in build_defs().resolve_all_asset_specs()
        if spec.key.to_user_string() in files
    }


@pytest.mark.parametrize("artifact", EVERYTHING, ids=lambda a: a.key)
def test_an_artifact_selected_alone_reads_what_it_declares_and_changes_no_other_file(
    artifact, copy_of_finished, declared, monkeypatch
):
    read = set()
    original = ArtifactStore.read

    def note(self, dataset, file):
        read.update({file} if dataset == "tiny" else ())
        return original(self, dataset, file)

    folder = copy_of_finished / "results" / "tiny"
    before = contents(folder)
    with monkeypatch.context() as patch:
        patch.setattr(ArtifactStore, "read", note)
        assert run_in_process(copy_of_finished, artifact).success
    after = contents(folder)
    assert before.keys() == after.keys()
    changed = {file for file in after if after[file] != before[file]}
    assert changed == {artifact.file, f"{artifact.file}.meta.json"}
    assert after[artifact.file][0] == before[artifact.file][0]
    if artifact in MEASURED.values():
        assert read == declared[artifact.key] == {MEASURED[key].file for key in artifact.inputs}
    else:
        assert read <= declared[artifact.key]
        assert read or artifact == CONFIG_USED


def test_every_asset_shows_float_numbers_in_the_history_and_says_its_version(finished):
    with dg.DagsterInstance.from_config(str(finished / "dagster_home")) as instance:
        for artifact in EVERYTHING:
            event = instance.get_latest_materialization_event(asset_key(artifact))
            made = event.asset_materialization
            sidecar = open_workspace(finished).dataset("tiny").sidecar(artifact)
            assert made.tags["dagster/data_version"] == sidecar.digest
            assert made.metadata["path"].value == str(finished / "results" / "tiny" / artifact.file)
            numbers = [v for v in made.metadata.values() if isinstance(v, dg.FloatMetadataValue)]
            assert numbers, artifact.key
            assert not any(isinstance(v, dg.IntMetadataValue) for v in made.metadata.values())
            assert len(repr(made.metadata)) < 100_000, artifact.key


def test_a_failed_metric_is_named_and_the_others_are_reported(copy_of_finished, monkeypatch):
    def fail(**_):
        raise RuntimeError("this metric is broken")

    broken = tuple(
        dataclasses.replace(m, compute=fail) if m.name == "exact_duplicate" else m for m in quality_assets.METRICS
    )
    with monkeypatch.context() as patch:
        patch.setattr(quality_assets, "METRICS", broken)
        result = run_in_process(copy_of_finished)
    assert failed_steps(result) == {"quality__exact_duplicate"}
    value = report(copy_of_finished)
    assert "exact_duplicate" not in value["metrics"]
    assert {"class_imbalance", "near_duplicate", "feature_separability"} <= value["metrics"].keys()
    assert value["phases_completed"] == [2, 3]
    assert value["score"]["axes"]["structural"] is None
    found = states(copy_of_finished)
    assert {key for key, state in found.items() if state != "current"} == {"quality/exact_duplicate"}
    assert found["quality/exact_duplicate"] == "failed"

    before = contents(copy_of_finished / "results" / "tiny")
    again = run_in_process(copy_of_finished, METRIC_ARTIFACTS["exact_duplicate"], SCORE, *REPORT)
    assert again.success
    assert report(copy_of_finished)["phases_completed"] == [1, 2, 3]
    after = contents(copy_of_finished / "results" / "tiny")
    assert after["embeddings/embeddings.npy"] == before["embeddings/embeddings.npy"]


def test_too_many_unreadable_images_stop_the_run_and_are_named(tmp_path):
    write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images"))
    broken = tmp_path / "images" / "rust" / "leaf_07.png"
    broken.write_bytes(broken.read_bytes()[:200])
    result = run_in_process(tmp_path, IMAGE_INDEX, SPLITS)
    assert not result.success
    (check,) = result.get_asset_check_evaluations()
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert "rust/leaf_07.png" in check.metadata["files"].md_str
    assert not (tmp_path / "results" / "tiny" / "dataset" / "splits.parquet").exists()


def test_one_unreadable_image_of_300_is_a_warning_and_the_run_goes_on(tmp_path):
    write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images", per_class=100))
    broken = tmp_path / "images" / "rust" / "leaf_07.png"
    broken.write_bytes(b"no image")
    result = run_in_process(tmp_path, IMAGE_INDEX, SPLITS)
    assert result.success
    check = next(c for c in result.get_asset_check_evaluations() if c.check_name == "images_are_readable")
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)


def test_what_a_blocking_check_refused_never_counts_as_current(tmp_path):
    registry = write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images"))
    broken = tmp_path / "images" / "rust" / "leaf_07.png"
    broken.write_bytes(b"no image")
    places = {"results": tmp_path / "results", "registry": registry}
    for _ in range(2):  # the second time must not take the refused index for a finished one
        with pytest.raises(UserError, match="images_are_readable"):
            run_dataset("tiny", phases=[1], **places)
        assert states(tmp_path)["dataset/image_index"] == "failed"
        assert report(tmp_path)["phases_completed"] == []
    broken.write_bytes((tmp_path / "images" / "rust" / "leaf_06.png").read_bytes())
    run_dataset("tiny", phases=[1], **places)
    assert report(tmp_path)["phases_completed"] == [1]


class VectorsWithNan:
    """Stands in for the embedders: a model that gives NaN for the third image."""

    def get(self, settings):
        return self

    serves_from_pixels, device, batch_size = True, "cpu", 64

    def identity(self):
        return {"model": "nan"}

    def encode_pixels(self, pixels, rows):
        vectors = np.full((len(rows), 4), 0.5, np.float32)
        vectors[2] = np.nan
        return vectors


def test_vectors_that_are_no_numbers_stop_the_run_and_their_rows_are_named(copy_of_finished):
    result = run_in_process(copy_of_finished, EMBEDDINGS, NEIGHBORS, embedders=VectorsWithNan())
    assert not result.success
    (check,) = result.get_asset_check_evaluations()
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert check.metadata["rows"].value == ["2"]
    assert "embeddings__neighbors" not in {e.step_key for e in result.all_events if e.is_step_start}
    verdicts = judge_dataset(open_workspace(copy_of_finished).dataset("tiny"))
    assert verdicts["embeddings/embeddings"].state == "failed"
    assert verdicts["quality/near_duplicate"].state == "stale"


def test_two_runs_give_the_same_bytes(finished, tmp_path, monkeypatch):
    day = date.fromisoformat(report(finished)["date"])
    monkeypatch.setattr(build_result, "__defaults__", (lambda: day,))
    write_registry(tmp_path / "datasets.yaml", finished / "images")
    assert run_in_process(tmp_path).success
    ours, theirs = contents(tmp_path / "results" / "tiny"), contents(finished / "results" / "tiny")
    assert {a.file for a in EVERYTHING if ours[a.file][0] != theirs[a.file][0]} == set()


def test_a_setting_makes_stale_what_depends_on_it_and_nothing_else(copy_of_finished):
    write_registry(copy_of_finished / "datasets.yaml", images_of(copy_of_finished), "near_dup_threshold: 0.9")
    verdicts = judge_dataset(open_workspace(copy_of_finished).dataset("tiny"))
    stale = {key for key, verdict in verdicts.items() if verdict.state == "stale"}
    assert stale == {
        "embeddings/neighbors",
        "embeddings/duplicate_groups",
        "embeddings/umap_projection",
        "embeddings/umap_3d",
        "training/grouped_splits",
        "training/test_predictions_grouped",
        "training/out_of_fold_grouped",
        "training/noise_calibration",
        "quality/feature_separability",
        "quality/intra_class_diversity",
        "quality/near_duplicate",
        "quality/dataset_cartography",
        "quality/class_confusability",
        "quality/label_noise",
        "quality/image_health",
        "quality/leakage",
    }


def test_a_setting_changes_the_data_version_of_what_it_changes_and_of_nothing_else(copy_of_finished):
    def versions():
        made = run_in_process(copy_of_finished, LABELS, NEIGHBORS, METRIC_ARTIFACTS["near_duplicate"])
        return {
            event.asset_key.to_user_string(): event.materialization.tags["dagster/data_version"]
            for event in made.get_asset_materialization_events()
        }

    before = versions()
    assert versions() == before
    write_registry(copy_of_finished / "datasets.yaml", images_of(copy_of_finished), "near_dup_threshold: 0.9")
    after = versions()
    changed = {key for key in before if after[key] != before[key]}
    assert changed == {"embeddings/neighbors", "quality/near_duplicate"}


def images_of(root):
    text = (root / "datasets.yaml").read_text()
    return text.split("path: ")[1].splitlines()[0]


def test_umap_says_how_much_there_is_to_do_and_when_it_is_done(copy_of_finished, caplog):
    with caplog.at_level("INFO", "agml_assets"):
        assert run_in_process(copy_of_finished, UMAP_PROJECTION).success
    lines = [r.getMessage() for r in caplog.records if r.name.startswith("agml_assets")]
    first, last = (next(i for i, line in enumerate(lines) if line.startswith(w)) for w in ("laying", "laid"))
    assert first < last
    assert "24 images in 2 dimensions" in lines[first] and "half a minute" in lines[first]
    assert "24 images in 2 dimensions" in lines[last]


def test_embedding_quality_says_what_it_needs_and_where(tmp_path):
    write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images"))
    result = run_in_process(tmp_path, job="embedding_quality")
    assert not result.success
    reasons = " ".join(
        e.step_failure_data.user_failure_data.description for e in result.all_events if e.is_step_failure
    )
    assert "'tiny'" in reasons
    assert "dataset/image_index is not in the store" in reasons
    assert not (tmp_path / "results" / "tiny" / "result.json").exists()


def test_structural_quality_needs_no_model(tmp_path):
    write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images"))
    assert run_in_process(tmp_path, job="structural_quality", embedders=None).success
    value = report(tmp_path)
    assert value["phases_completed"] == [1]
    assert not (tmp_path / "results" / "tiny" / "embeddings").exists()
    assert value["score"]["axes"]["structural"] is None  # as on the site: it needs near-duplicates


def test_an_unknown_dataset_is_refused_before_any_work(tmp_path):
    registry = write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images"))
    env = environment(tmp_path, registry)
    done = dagster(*JOB, "benchmark", "--tags", '{"dagster/partition": "tinny"}', env=env)
    assert done.returncode != 0
    assert "Dataset 'tinny' is not registered" in done.stderr
    assert "Did you mean 'tiny'?" in done.stderr
    assert not (tmp_path / "results").exists()


def test_a_run_without_a_dataset_says_how_to_name_one(tmp_path):
    registry = write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images"))
    done = dagster(*JOB, "benchmark", env=environment(tmp_path, registry))
    assert done.returncode != 0
    assert """--tags '{"dagster/partition": "KEY"}'""" in done.stderr


def test_a_broken_registry_is_told_without_a_stack(tmp_path):
    registry = tmp_path / "datasets.yaml"
    registry.write_text("datasets:\n  - name: a/b\n    labelcol: x\n")
    done = dagster(*JOB, "benchmark", "--tags", '{"dagster/partition": "b"}', env=environment(tmp_path, registry))
    assert done.returncode == 1
    assert "unknown key 'labelcol'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_mistake_in_the_settings_is_told_without_a_stack(tmp_path):
    registry = write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images"))
    (tmp_path / "config.json").write_text('{"split_sed": 1}')
    tags = '{"dagster/partition": "tiny"}'
    done = dagster(*JOB, "benchmark", "--tags", tags, env=environment(tmp_path, registry))
    assert done.returncode == 1
    assert "unknown key 'split_sed'. Did you mean 'split_seed'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "results").exists()


def test_pixels_and_hashes_come_from_one_pass_and_agree_with_the_index(finished):
    bench = open_workspace(finished).dataset("tiny")
    index, hashes, pixels = bench.read(IMAGE_INDEX), bench.read(PIXEL_HASHES), bench.read(PIXELS)
    assert index["row"].count() == hashes.height == len(pixels) == 24
