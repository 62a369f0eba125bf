"""The report says what is current, names what is not, and can be rebuilt after a failure."""

import json
import shutil
from dataclasses import replace
from datetime import date
from importlib.metadata import version

import pytest

from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXELS, SPLITS
from agml_assets.embeddings.artifacts import DUPLICATE_GROUPS, EMBEDDINGS, NEIGHBORS
from agml_assets.errors import UserError
from agml_assets.quality.artifacts import METRIC_ARTIFACTS, SCORE
from agml_assets.quality.calibrated_score import calibrated_score
from agml_assets.quality.metrics import METRICS
from agml_assets.quality.score import score
from agml_assets.quality.summary import MEASURED, judge_dataset
from agml_assets.report.artifacts import ARTIFACTS, CONFIG_USED, RESULT
from agml_assets.report.files import drop_pixels, left_out, report_after_failure
from agml_assets.report.files import write_report as write_files
from agml_assets.report.result import build_config_used, build_result
from agml_assets.settings import Settings
from agml_assets.workspace import making
from tests.report.measured import CLASSES, N, measure, open_dataset

PHASE_2 = [m.name for m in METRICS if m.phase == 2]
PHASE_3 = [m.name for m in METRICS if m.phase == 3]


@pytest.fixture
def dataset(measured, tmp_path):
    """A copy of what was measured, to be changed."""
    shutil.copytree(str(measured.store.root), tmp_path, dirs_exist_ok=True)
    return open_dataset(tmp_path)


def with_settings(dataset, **settings):
    return replace(dataset, settings=dataset.settings.override(settings, "a test"))


def write_report(dataset, wanted=ARTIFACTS):
    return {artifact: sidecar for artifact, _, sidecar in write_files(dataset, judge_dataset(dataset), wanted)}


def fail(dataset, artifact, error):
    with pytest.raises(type(error)), making(dataset, artifact, "run 2"):
        raise error


def states(dataset):
    return {
        key: value["state"]
        for key, value in build_config_used(dataset, judge_dataset(dataset))["artifacts"].items()
    }


def test_a_finished_dataset_has_every_metric_and_its_score(dataset):
    result = build_result(dataset, judge_dataset(dataset), lambda: date(2026, 8, 13))
    assert list(result)[:5] == ["dataset", "date", "reproducibility", "phases_completed", "metrics"]
    assert (result["dataset"], result["date"]) == ("owner/beans", "2026-08-13")
    assert result["phases_completed"] == [1, 2, 3]
    assert list(result["metrics"]) == [m.name for m in METRICS]
    assert result["metrics"]["exact_duplicate"]["exact_duplicate_count"] == 2
    assert result["breaches"] == []
    published = score(result["metrics"], [1, 2, 3])
    assert list(result["score"]) == [*published, "calibrated", "intervals"]
    assert {key: result["score"][key] for key in published} == published
    assert result["score"]["calibrated"] == calibrated_score(result["metrics"], honest=True)
    assert result["score"]["overall"] is not None
    assert left_out(judge_dataset(dataset)) == {}


def test_reproducibility_states_what_was_read_and_with_what(dataset):
    facts = build_result(dataset, judge_dataset(dataset))["reproducibility"]
    assert (facts["revision"], facts["config"]) == ("abc", "default")
    assert (facts["source_images"], facts["num_images"], facts["num_classes"]) == (N + 1, N, len(CLASSES))
    assert facts["test_ratio"] == 0.15
    assert facts["split_digest"] == dataset.sidecar(SPLITS).digest
    assert facts["versions"]["torch"] == version("torch")


def test_both_files_are_strict_json_with_their_sidecars(dataset):
    write_report(dataset, (CONFIG_USED, RESULT))
    for file in ("result.json", "config_used.json"):
        path = dataset.store.path("beans", file)
        json.loads(path.read_text(), parse_constant=lambda text: pytest.fail(text))
        assert dataset.store.is_intact("beans", file)


def test_the_same_store_gives_the_same_report_on_the_same_day(dataset):
    first = write_report(dataset, (CONFIG_USED, RESULT))
    second = write_report(dataset, (CONFIG_USED, RESULT))
    assert {a.key: s.digest for a, s in first.items()} == {a.key: s.digest for a, s in second.items()}


def test_config_used_holds_every_setting_the_registry_entry_and_every_state(dataset):
    config = build_config_used(dataset, judge_dataset(dataset))
    assert {key: config[key] for key in Settings.model_fields} == Settings().model_dump()
    assert list(config)[0] == "split_seed"
    assert config["dataset"]["name"] == "owner/beans"
    assert set(states(dataset).values()) == {"current"}


def test_a_stale_metric_is_left_out_and_named(dataset):
    changed = with_settings(dataset, near_dup_threshold=0.9)
    result = build_result(changed, judge_dataset(changed))
    assert "near_duplicate" not in result["metrics"]
    assert result["phases_completed"] == [1]
    assert states(changed)["embeddings/neighbors"] == "stale"
    reasons = left_out(judge_dataset(changed))
    assert reasons["embeddings/neighbors"] == "made with near_dup_threshold = 0.98, now 0.9"
    assert reasons["quality/near_duplicate"] == "embeddings/neighbors is stale"
    assert "quality/exact_duplicate" not in reasons


def test_a_missing_metric_is_left_out_and_named(dataset):
    dataset.store.path("beans", METRIC_ARTIFACTS["class_imbalance"].file).unlink()
    result = build_result(dataset, judge_dataset(dataset))
    assert "class_imbalance" not in result["metrics"]
    assert result["phases_completed"] == [2, 3]
    assert build_config_used(dataset, judge_dataset(dataset))["artifacts"]["quality/class_imbalance"] == {
        "state": "missing",
        "reason": "not made yet",
    }


def test_a_failed_metric_is_left_out_and_named_with_its_error(dataset):
    fail(dataset, METRIC_ARTIFACTS["intra_class_diversity"], UserError("The vectors are all equal."))
    result = build_result(dataset, judge_dataset(dataset))
    assert "intra_class_diversity" not in result["metrics"]
    assert "feature_separability" in result["metrics"]
    assert result["phases_completed"] == [1, 3]
    assert result["score"]["axes"]["diversity"] is None
    assert build_config_used(dataset, judge_dataset(dataset))["artifacts"]["quality/intra_class_diversity"] == {
        "state": "failed",
        "reason": "The vectors are all equal.",
    }


def test_a_failed_step_takes_what_was_made_from_it_along(dataset):
    fail(dataset, EMBEDDINGS, RuntimeError("out of memory"))
    result = build_result(dataset, judge_dataset(dataset))
    assert not {*PHASE_2, *PHASE_3} & set(result["metrics"])
    assert result["phases_completed"] == [1]
    assert left_out(judge_dataset(dataset))["embeddings/embeddings"] == "RuntimeError: out of memory"


def test_a_metric_that_could_not_be_computed_counts_as_done(dataset):
    artifact = METRIC_ARTIFACTS["feature_separability"]
    with making(dataset, artifact) as work:
        for key in artifact.inputs:
            work.read(MEASURED[key])
        work.write({"skipped": True, "reason": "One class only."})
    result = build_result(dataset, judge_dataset(dataset))
    assert result["metrics"]["feature_separability"] == {"skipped": True, "reason": "One class only."}
    assert result["phases_completed"] == [1, 2, 3]


def test_metrics_of_phases_that_were_not_asked_for_are_skipped_with_the_reason(tmp_path):
    dataset = open_dataset(tmp_path, phases=(1,))
    measure(dataset)
    result = build_result(dataset, judge_dataset(dataset))
    for phase, names in ((2, PHASE_2), (3, PHASE_3)):
        for name in names:
            reason = f"Phase {phase} was not asked for."
            assert result["metrics"][name] == {"skipped": True, "reason": reason}
    assert result["phases_completed"] == [1]
    assert result["score"]["axes"]["diversity"] is None


def test_facts_of_artifacts_that_are_not_current_are_not_told_as_todays(dataset):
    other_model = build_result(
        with_settings(dataset, embed_model="efficientnet_lite0"),
        judge_dataset(with_settings(dataset, embed_model="efficientnet_lite0")),
    )["reproducibility"]
    assert other_model["embed_model"] == "efficientnet_lite0"
    assert "device" not in other_model
    assert other_model["num_images"] == N
    other_seed = build_result(
        with_settings(dataset, split_seed=1), judge_dataset(with_settings(dataset, split_seed=1))
    )["reproducibility"]
    assert "split_digest" not in other_seed
    other_source = replace(dataset, entry=dataset.entry.model_copy(update={"revision": "other"}))
    assert "num_images" not in build_result(other_source, judge_dataset(other_source))["reproducibility"]


def test_a_breach_is_named_in_the_report_that_is_written_all_the_same(dataset):
    groups = dataset.read(DUPLICATE_GROUPS)
    # Row 39 is a copy of row 0: a near group that leaves it out contradicts the exact one.
    broken = groups.with_columns(near=groups["row"])
    with making(dataset, DUPLICATE_GROUPS) as work:
        for key in DUPLICATE_GROUPS.inputs:
            work.read(MEASURED[key])
        work.write(broken)
    measure(dataset, METRIC_ARTIFACTS["near_duplicate"])
    write_report(dataset)
    result = json.loads(dataset.store.path("beans", "result.json").read_text())
    assert any("exact groups lie in several near groups" in breach for breach in result["breaches"])
    assert len(result["breaches"]) > 1


def test_the_report_is_rebuilt_after_a_failure_from_what_is_left(dataset):
    written = write_report(dataset)
    assert not report_after_failure(dataset, "run 2")
    whole = json.loads(dataset.store.path("beans", "result.json").read_text())
    assert whole["phases_completed"] == [1, 2, 3]
    fail(dataset, NEIGHBORS, OSError("disk full"))
    assert not report_after_failure(dataset, "another run")
    assert report_after_failure(dataset, "run 2")
    assert list(written) == list(ARTIFACTS)
    for artifact, before in written.items():
        assert dataset.store.is_intact("beans", artifact.file)
        assert dataset.sidecar(artifact).digest != before.digest, artifact.key
    partial = json.loads(dataset.store.path("beans", "result.json").read_text())
    config = json.loads(dataset.store.path("beans", "config_used.json").read_text())
    assert partial["phases_completed"] == [1]
    assert "near_duplicate" not in partial["metrics"]
    assert config["artifacts"]["embeddings/neighbors"] == {"state": "failed", "reason": "OSError: disk full"}
    used = dataset.sidecar(SCORE).inputs
    assert set(used) == {f"quality/{name}" for name in partial["metrics"]}
    assert partial["score"] == {k: v for k, v in dataset.read(SCORE).items() if k != "breaches"}


def test_there_is_no_report_before_anything_was_read(tmp_path):
    dataset = open_dataset(tmp_path)
    fail(dataset, IMAGE_INDEX, UserError("no such folder"))
    assert not report_after_failure(dataset, "run 2")
    assert not dataset.store.path("beans", "result.json").exists()


def test_other_datasets_are_not_touched(dataset, tmp_path):
    other = open_dataset(tmp_path, key="peas")
    assert set(states(other).values()) == {"missing"}
    assert build_result(other, judge_dataset(other))["metrics"] == {}
    assert build_result(other, judge_dataset(other))["score"]["overall"] is None


def test_pixels_go_only_when_told_and_when_nothing_waits_for_them(dataset):
    pixels = dataset.store.path("beans", PIXELS.file)
    assert not drop_pixels(dataset, judge_dataset(dataset))
    unkept = with_settings(dataset, keep_pixels=False)
    assert not drop_pixels(
        with_settings(dataset, keep_pixels=False, embed_model="efficientnet_lite0"),
        judge_dataset(with_settings(dataset, keep_pixels=False, embed_model="efficientnet_lite0")),
    )
    assert pixels.exists()
    assert drop_pixels(unkept, judge_dataset(unkept))
    assert not pixels.exists()
    assert build_result(unkept, judge_dataset(unkept))["phases_completed"] == [1, 2, 3]
