"""Registered submissions from files and from digits: stored, scored, summed up, compared."""

import json
import os

import numpy as np
import polars as pl
import pytest

from agml_assets.compression.exact.evaluate import ExactSettings
from agml_assets.compression.leaderboard import build_leaderboard, write_leaderboard
from agml_assets.compression.steps import MAKE, SubmissionRun
from agml_assets.errors import UserError
from agml_assets.registry.submissions import load_submissions
from agml_assets.settings import Settings
from agml_assets.store import PLATFORM, ArtifactStore
from agml_assets.workspace import Workspace

N, DIMENSIONS = 120, 12
FEW = ExactSettings(repeats=1, folds=4)


@pytest.fixture
def place(tmp_path):
    """Give a folder with a file of embeddings, a worse one, two tasks, and their registry."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(N, DIMENSIONS))
    ids = [f"{i:03}" for i in range(N)]
    labels = tmp_path / "labels"
    labels.mkdir()
    target = vectors @ rng.normal(size=DIMENSIONS)
    pl.DataFrame({"id": ids, "label": target}).write_csv(labels / "height__regression.csv")
    pl.DataFrame({"id": ids, "label": (target > 0).astype(int)}).write_csv(labels / "tall__classification.csv")
    for name, noise in (("good", 0.1), ("poor", 3.0)):
        frame = pl.DataFrame(vectors + noise * rng.normal(size=vectors.shape), schema=[str(i) for i in range(12)])
        pl.DataFrame({"id": ids}).hstack(frame).write_csv(tmp_path / f"{name}.csv")
    (tmp_path / "submissions.yaml").write_text(
        "submissions:\n"
        "  - {key: good, phase: p, file: good.csv, tasks: labels}\n"
        "  - {key: poor, phase: p, file: poor.csv, tasks: labels, bytes_per_embedding: 7.5}\n"
        "  - {key: small, phase: p, file: good.csv, tasks: labels, compress: {method: pca, size: 2}}\n"
    )
    return tmp_path


def workspace_of(place, registry):
    return Workspace(registry, Settings(), ArtifactStore(place / "results"))


def runs(place, registry=None):
    submissions = load_submissions(place / "submissions.yaml")
    workspace = workspace_of(place, registry)
    return submissions, workspace, {e.key: SubmissionRun(e, workspace, FEW) for e in submissions.entries}


def make(run):
    return [step(run) for step in MAKE.values()]


def test_a_linear_target_is_kept_and_noise_loses_it(place):
    _, _, found = runs(place)
    for run in found.values():
        make(run)
    summaries = {key: run.read("summary") for key, run in found.items()}
    assert summaries["good"]["tasks"]["height"]["score"] > 0.95
    assert (
        summaries["good"]["mean_kept"]
        > summaries["poor"]["mean_kept"]
        > summaries["poor"]["tasks"]["tall"]["kept"] - 1
    )
    assert summaries["good"]["bytes_per_embedding"] == DIMENSIONS * 4
    assert summaries["poor"]["bytes_per_embedding"] == 7.5
    assert (summaries["small"]["bytes_per_embedding"], summaries["small"]["dimensions"]) == (8, 2)
    assert summaries["small"]["mean_kept"] < summaries["good"]["mean_kept"]


def test_what_is_stored_is_current_until_something_it_reads_changes(place):
    _, _, found = runs(place)
    run = found["good"]
    make(run)
    again = runs(place)[2]["good"]
    assert all(again.is_current(step) for step in MAKE)
    labels = place / "labels" / "tall__classification.csv"
    labels.write_text(labels.read_text().replace("000,1", "000,0").replace("001,0", "001,1"))
    changed = runs(place)[2]["good"]
    assert changed.is_current("submission")
    assert not changed.is_current("task_scores")
    assert not runs(place)[2]["small"].is_current("submission")


def test_samples_without_an_embedding_are_counted_and_told(place):
    file = place / "good.csv"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-10]))
    run = runs(place)[2]["good"]
    make(run)
    scores = run.read("task_scores")
    assert scores["coverage"]["height"]["missing"]["count"] == 10
    assert any("110 of 120" in note for note in run.read("summary")["notes"])


def test_a_submission_no_task_can_use_is_refused_with_the_reason_of_each(place):
    file = place / "good.csv"
    file.write_text(file.read_text().replace("\n001,", "\n000,"))
    run = runs(place)[2]["good"]
    MAKE["submission"](run)
    with pytest.raises(
        UserError, match=r"(?s)no task can be scored.*height.*more than once.*tall.*more than once"
    ):
        MAKE["task_scores"](run)


def test_embeddings_that_are_not_finite_are_not_compressed(place):
    file = place / "good.csv"
    lines = file.read_text().splitlines()
    lines[3] = lines[3].rsplit(",", 1)[0] + ",inf"
    file.write_text("\n".join(lines))
    run = runs(place)[2]["small"]
    with pytest.raises(UserError, match="not finite numbers, the first of 002"):
        MAKE["submission"](run)


def test_excluded_ids_are_left_out(place):
    (place / "out.txt").write_text("000\n001\n\n")
    text = (place / "submissions.yaml").read_text()
    (place / "submissions.yaml").write_text(text.replace("tasks: labels}", "tasks: labels, exclude: out.txt}", 1))
    run = runs(place)[2]["good"]
    MAKE["submission"](run)
    assert run.read("submission")["id"].to_list()[:2] == ["002", "003"]


def test_the_leaderboard_ranks_and_says_what_is_left_out(place, monkeypatch):
    submissions, workspace, found = runs(place)
    monkeypatch.setattr("agml_assets.compression.leaderboard.SubmissionRun", lambda e, w: SubmissionRun(e, w, FEW))
    make(found["good"])
    make(found["poor"])
    written = write_leaderboard(workspace, submissions)
    board = written.document["phases"]["p"]
    assert [one["submission"] for one in board["standings"]] == ["good", "poor"]
    assert [one["rank"] for one in board["standings"]] == [1, 2]
    assert board["standings"][0]["mean"]["value"] == pytest.approx(found["good"].read("summary")["mean_kept"])
    assert (
        board["standings"][0]["tasks"]["height"]["score"]
        == found["good"].read("summary")["tasks"]["height"]["score"]
    )
    assert set(written.document["left_out"]) == {"small"}
    assert "not evaluated yet" in written.document["left_out"]["small"]
    assert (
        json.loads(workspace.store.path(PLATFORM, "compression/leaderboard.json").read_text()) == written.document
    )


def test_a_submission_on_other_samples_does_not_stop_the_others(place, monkeypatch):
    monkeypatch.setattr("agml_assets.compression.leaderboard.SubmissionRun", lambda e, w: SubmissionRun(e, w, FEW))
    file = place / "poor.csv"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    submissions, workspace, found = runs(place)
    for run in found.values():
        make(run)
    document = build_leaderboard(workspace, submissions)
    assert {one["submission"] for one in document["phases"]["p"]["standings"]} == {"good", "small"}
    assert "on 119 samples, others of its phase on 120" in document["left_out"]["poor"]


def test_stale_scores_are_left_out(place, monkeypatch):
    monkeypatch.setattr("agml_assets.compression.leaderboard.SubmissionRun", lambda e, w: SubmissionRun(e, w, FEW))
    submissions, workspace, found = runs(place)
    make(found["good"])
    file = place / "good.csv"
    file.write_text(file.read_text().replace("\n000,", "\n0001,"))
    document = build_leaderboard(workspace, submissions)
    assert document["phases"] == {}
    assert "out of date" in document["left_out"]["good"]


def test_digits_need_no_file_and_their_leading_components_keep_most(tmp_path):
    (tmp_path / "submissions.yaml").write_text(
        "submissions:\n"
        "  - {key: two, phase: p, embeddings: digits, compress: {method: pca, size: 2}}\n"
        "  - {key: sixteen, phase: p, embeddings: digits, compress: {method: pca, size: 16}}\n"
    )
    _, _, found = runs(tmp_path)
    for run in found.values():
        make(run)
    kept = {key: run.read("summary")["tasks"]["digit"]["score"] for key, run in found.items()}
    assert kept["sixteen"] > 0.9
    assert 0.3 < kept["two"] < 0.7  # scikit-learn's logistic regression on two components: about 0.55


def test_a_changed_list_of_ids_beside_an_array_is_noticed(place):
    np.save(place / "a.npy", pl.read_csv(place / "good.csv").drop("id").to_numpy())
    (place / "a.ids.txt").write_text("\n".join(f"{i:03}" for i in range(N)))
    (place / "submissions.yaml").write_text("submissions:\n  - {key: a, phase: p, file: a.npy, tasks: labels}\n")
    MAKE["submission"](runs(place)[2]["a"])
    assert runs(place)[2]["a"].is_current("submission")
    (place / "a.ids.txt").write_text("\n".join(f"{N - 1 - i:03}" for i in range(N)))
    assert not runs(place)[2]["a"].is_current("submission")


def test_a_change_that_keeps_size_and_time_is_noticed(place):
    run = runs(place)[2]["good"]
    MAKE["submission"](run)
    file = place / "good.csv"
    before = file.stat()
    file.write_text(file.read_text().replace("\n000,", "\n999,"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size
    assert not runs(place)[2]["good"].is_current("submission")


def test_ids_are_left_out_of_embeddings_without_a_file_too(tmp_path):
    (tmp_path / "out.txt").write_text("0000\n0001\n")
    (tmp_path / "submissions.yaml").write_text(
        "submissions:\n  - {key: d, phase: p, embeddings: digits, exclude: out.txt}\n"
    )
    run = runs(tmp_path)[2]["d"]
    MAKE["submission"](run)
    assert run.read("submission")["id"].to_list()[:2] == ["0002", "0003"]
    (tmp_path / "out.txt").write_text("0000\n")
    assert not runs(tmp_path)[2]["d"].is_current("submission")
