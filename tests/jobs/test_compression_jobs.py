"""The jobs of compressed embeddings, in this process: from a file, and from a dataset's stored embeddings."""

import json

import numpy as np
import polars as pl
import pytest

from agml_assets.compression.steps import MAKE, SubmissionRun
from agml_assets.definitions import build_defs
from agml_assets.embeddings.artifacts import DUPLICATE_GROUPS
from agml_assets.errors import UserError
from agml_assets.registry.datasets import DatasetRegistry
from agml_assets.registry.submissions import load_submissions
from agml_assets.settings import Settings
from agml_assets.store import ArtifactStore
from agml_assets.workspace import Workspace
from resources.workspace import workspace_in_memory

N = 60


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Give a folder with two submissions of one task; `AGML_SUBMISSIONS` names their registry."""
    rng = np.random.default_rng(0)
    vectors, ids = rng.normal(size=(N, 4)), [f"{place:03}" for place in range(N)]
    (tmp_path / "labels").mkdir()
    height = pl.DataFrame({"id": ids, "label": vectors.sum(axis=1)})
    height.write_csv(tmp_path / "labels/height__regression.csv")
    frame = pl.DataFrame({"id": ids}).hstack(pl.DataFrame(vectors, schema=list("0123")))
    frame.write_csv(tmp_path / "all.csv")
    entry = "  - {{key: {}, phase: p, file: all.csv, tasks: labels{}}}\n"
    one = ", compress: {method: truncation, size: 1}"
    (tmp_path / "submissions.yaml").write_text(
        "submissions:\n" + entry.format("all", "") + entry.format("first", one)
    )
    monkeypatch.setenv("AGML_SUBMISSIONS", str(tmp_path / "submissions.yaml"))
    return tmp_path


def workspace_of(root, *entries):
    return Workspace(DatasetRegistry(entries), Settings(), ArtifactStore(root / "results"))


def run(root, job, partition=None):
    workspace = workspace_of(root)
    definitions = build_defs(registry=workspace.registry, resources={"workspace": workspace_in_memory(workspace)})
    return definitions.resolve_job_def(job).execute_in_process(partition_key=partition, raise_on_error=False)


def test_submissions_are_scored_one_by_one_and_then_compared(place):
    for key in ("all", "first"):
        done = run(place, "compression", key)
        assert done.success
        made = [event.materialization for event in done.get_asset_materialization_events()]
        metadata = {one.asset_key.path[-1]: one.metadata for one in made}
        assert list(metadata) == ["submission", "task_scores", "summary"]
        assert metadata["submission"]["bytes_per_embedding"].value == {"all": 16, "first": 4}[key]
    assert run(place, "compression_leaderboard").success
    board = json.loads((place / "results/_platform/compression/leaderboard.json").read_text())
    standings = board["phases"]["p"]["standings"]
    assert [(one["submission"], one["rank"]) for one in standings] == [("all", 1), ("first", 2)]
    assert standings[0]["tasks"]["height"]["score"] > 0.99


def test_a_user_s_mistake_fails_the_step_in_words_and_is_not_tried_again(place):
    (place / "all.csv").write_text("")
    done = run(place, "compression", "all")
    assert not done.success
    (failure,) = done.get_step_failure_events()
    assert "all.csv: it is empty" in failure.step_failure_data.user_failure_data.description


def test_a_job_without_a_partition_says_how_to_name_one(place):
    done = run(place, "compression")
    assert not done.success
    said = done.get_step_failure_events()[0].step_failure_data.user_failure_data.description
    assert "Name the submission" in said
    assert """--tags '{"dagster/partition": "KEY"}'""" in said


def test_a_dataset_s_embeddings_are_measured_with_copies_kept_together(measured, tmp_path):
    key = measured.entry.key
    workspace = Workspace(DatasetRegistry((measured.entry,)), measured.settings, measured.store)
    (tmp_path / "submissions.yaml").write_text(f"submissions:\n  - {{key: b, phase: p, embeddings: {key}}}\n")
    (entry,) = load_submissions(tmp_path / "submissions.yaml").entries
    one = SubmissionRun(entry, workspace)
    for make in MAKE.values():
        make(one)
    groups = measured.read(DUPLICATE_GROUPS)["joined"]
    [task] = one.read("task_scores")["tasks"]
    assert (task["task"], task["n"], task["units"]) == ("class", len(groups), groups.n_unique())
    assert groups.n_unique() < len(groups)


def test_a_submission_called_like_a_dataset_is_refused_before_its_run_could_hold_it(
    measured, tmp_path, monkeypatch
):
    key = measured.entry.key
    (tmp_path / "submissions.yaml").write_text(f"submissions:\n  - {{key: {key}, phase: p, embeddings: digits}}\n")
    monkeypatch.setenv("AGML_SUBMISSIONS", str(tmp_path / "submissions.yaml"))
    with pytest.raises(UserError, match=f"have: {key} "):
        build_defs(registry=DatasetRegistry((measured.entry,)))
