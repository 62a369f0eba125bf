"""Whole runs of the compatible mode: inputs as published, files in their places, and hostile inputs."""

import json
from datetime import datetime

import numpy as np
import polars as pl
import pytest

from agml_assets.compression.compatible import fitted
from agml_assets.compression.compatible.config import LinearParams
from agml_assets.compression.compatible.linear_probe import train_folds
from agml_assets.compression.compatible.plots import draw_curves
from agml_assets.compression.compatible.run import choose_device, normalize, run_compatible, standardize
from agml_assets.compression.compatible.splits import draw_splits
from agml_assets.errors import UserError

NOW = datetime(2026, 3, 4, 5, 6, 7)
QUICK = {
    "batch_size": 16,
    "epochs": 3,
    "learning_rate": 0.05,
    "k_folds": 3,
    "enable_plots": False,
    "device": "cpu",
}
N, D = 60, 4


CURVES = "agml_assets.compression.compatible.run.draw_curves"


@pytest.fixture(autouse=True)
def no_curves(monkeypatch):
    """Pictures take more time than all else together."""
    monkeypatch.setattr(CURVES, lambda *_: None)


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(3, 2, (N, D)).astype(np.float32)


@pytest.fixture
def names():
    return [f"{row:04}" for row in range(N)]


@pytest.fixture
def target(vectors):
    return vectors @ np.array([1.0, -1, 0.5, 2]) + 5


@pytest.fixture
def place(tmp_path, vectors, names, target):
    """A folder with a submission `m.csv`, and labels of a regression `height` and a classification `tall`."""
    write_vectors(tmp_path / "m.csv", [f"{name}.zarr.zip" for name in names], vectors)
    (tmp_path / "labels").mkdir()
    write_labels(tmp_path, "height__regr", names, target)
    write_labels(tmp_path, "tall__cls", names, (target > np.median(target)).astype(int))
    return tmp_path


def write_vectors(path, ids, vectors):
    pl.DataFrame({"id": ids, **{str(k): vectors[:, k] for k in range(vectors.shape[1])}}).write_csv(path)


def write_labels(place, name, ids, labels):
    pl.DataFrame({"id": ids, "label": labels}).write_csv(place / "labels" / f"{name}.csv")


def run(place, submission="m.csv", **more):
    config = {**QUICK, **more.pop("config", {})}
    return run_compatible(place / "labels", place / submission, place / "out", config, now=NOW, **more)


def fold_scores(run, task):
    return json.loads((run.folder / task / f"{task}_result.json").read_text())["q_t"]


WITH_FOLDS = {"output_fold_results": True}


def test_a_run_is_what_reading_standardising_splitting_and_training_by_hand_give(place, vectors, target):
    found = run(place, config=WITH_FOLDS)
    scaled = ((vectors - vectors.mean()) / vectors.std()).astype(np.float32)
    goals = ((target - target.min()) / (target.max() - target.min())).astype(np.float32)
    trained = train_folds(scaled, goals, "regression", draw_splits(N, 3), LinearParams(16, 3, 0.05), "height")
    assert fold_scores(found, "height") == pytest.approx(trained.fold_scores.tolist(), abs=1e-4)
    scores = trained.scores.max(axis=0)
    assert found.summary["task_acc_scores"]["height"] == pytest.approx(scores.mean(), abs=1e-4)
    assert found.summary["task_q_scores"]["height"] == pytest.approx(
        2 * scores.mean() / (0.02 + scores.std()), abs=0.01
    )
    q = found.summary["task_q_scores"]
    assert found.summary["overall_q_score"] == pytest.approx((q["height"] + q["tall"]) / 2)


def test_all_files_lie_where_they_are_published(place, monkeypatch):
    monkeypatch.setattr(CURVES, draw_curves)
    found = run(
        place, config={"k_folds": 1, "enable_plots": True, "store_probes": True, "update_leaderboard": True}
    )
    files = sorted(
        path.relative_to(place / "out").as_posix() for path in (place / "out").rglob("*.*") if path.is_file()
    )
    root = "results/m_20260304_050607"
    assert files == sorted(
        [
            "leaderboards/results/leaderboard_20260304_050607.csv",
            f"{root}/results_summary.json",
            f"{root}/height/height_result.json",
            f"{root}/height/loss_curves/height_train_loss_curves.png",
            f"{root}/height/loss_curves/height_validation_loss_curves.png",
            f"{root}/height/probe/metadata.json",
            f"{root}/height/probe/probe.npz",
            f"{root}/height/regression_scatter/m_height_scatter_fold0.png",
            f"{root}/tall/confusion_matrices/m_tall_cm_fold0.png",
            f"{root}/tall/tall_result.json",
            f"{root}/tall/loss_curves/tall_train_loss_curves.png",
            f"{root}/tall/loss_curves/tall_validation_loss_curves.png",
            f"{root}/tall/probe/metadata.json",
            f"{root}/tall/probe/probe.npz",
        ]
    )
    assert found.leaderboard.table["experiment"].to_list() == ["m_20260304_050607"]
    assert found.summary["config"] == {
        **QUICK,
        "k_folds": 1,
        "enable_plots": True,
        "store_probes": True,
        "update_leaderboard": True,
    }


def test_a_stored_linear_probe_is_arrays_that_predict(place, vectors, target):
    more = {"store_probes": True, "epochs": 300, "task_filter": ["height"]}
    found = run(place, config=more)
    with np.load(found.folder / "height/probe/probe.npz", allow_pickle=False) as arrays:
        said = standardize(vectors) @ arrays["weight"].T + arrays["bias"]
    assert np.corrcoef(said[:, 0], target)[0, 1] > 0.99
    metadata = json.loads((found.folder / "height/probe/metadata.json").read_text())
    assert (metadata["input_dim"], metadata["probe_type"]) == (D, "linear")


def test_a_stored_svm_probe_is_arrays_that_predict(place, vectors, target):
    params = {"C_start_end": [0.1, 1], "kernel_degree_list": [2], "kernel_gamma_start_end": [0.1, 0.2],
              "kernel_coef0_start_end": [0.5, 1], "opt_params": {"n_iter": 2}}  # fmt: skip
    config = {
        "k_folds": 2,
        "probe_type": "svm",
        "probe_params": params,
        "store_probes": True,
        "enable_plots": False,
    }
    found = run_compatible(place / "labels", place / "m.csv", place / "out", config, now=NOW)
    for task, goals in (("height", target), ("tall", target > np.median(target))):
        meta = json.loads((found.folder / task / "probe/metadata.json").read_text())
        with np.load(found.folder / task / "probe/probe.npz", allow_pickle=False) as one:
            kernel = (meta["gamma"] * standardize(vectors) @ one["support_vectors"].T + meta["coef0"]) ** meta[
                "degree"
            ]
            said = kernel @ one["dual_coef"].T + one["intercept"]
        said = said[:, 0] > 0 if task == "tall" else said[:, 0]
        assert np.corrcoef(said, goals)[0, 1] > 0.9
        result = json.loads((found.folder / task / f"{task}_result.json").read_text())
        assert result["hyperparamaters"]["kernel"] == "poly"
        assert result["hyperparamaters"]["degree"] == 2


def test_a_tasks_numbers_do_not_depend_on_other_tasks(place):
    both = run(place, config=WITH_FOLDS)
    alone = run(place, config={**WITH_FOLDS, "task_filter": ["tall"]})
    assert fold_scores(alone, "tall") == fold_scores(both, "tall")
    assert list(alone.summary["task_q_scores"]) == ["tall"]


def test_the_same_run_gives_the_same_bytes(place):
    first, second = (run(place, config=WITH_FOLDS).folder for _ in range(2))
    for name in ("height/height_result.json", "tall/tall_result.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_embeddings_are_standardised_with_rows_of_all_tasks_and_with_padding(place, vectors, names, monkeypatch):
    seen = {}

    def look(samples, config, device, fit=fitted.fit):
        seen[samples.task] = samples.vectors
        return fit(samples, config, device)

    monkeypatch.setattr("agml_assets.compression.compatible.run.fit", look)
    write_vectors(place / "m.csv", [*names, "unlabelled"], np.vstack([vectors, np.full((1, D), 1e6)]))
    for name, rows in (("height__regr", slice(0, 30)), ("tall__cls", slice(30, 60))):
        write_labels(place, name, names[rows], np.arange(30) % 2)
    run(place, config={"embedding_dim": 6, "task_filter": ["height"]})
    padded = np.hstack([vectors, np.zeros((N, 2), np.float32)])
    np.testing.assert_allclose(
        seen["height"], ((padded - padded.mean()) / padded.std())[:30], rtol=1e-4, atol=1e-5
    )
    run(place, config={"standardize_embeddings": False})
    np.testing.assert_allclose(seen["tall"], vectors[30:], rtol=1e-6)


def test_scaling_of_constants_and_labels():
    assert standardize(np.full((3, 2), 7, np.float32)).tolist() == [[0, 0]] * 3
    assert normalize(np.array([2.0, 4, 3])).tolist() == [0, 1, 0.5]


def test_splits_follow_the_order_of_the_labels_and_not_of_the_submission(place, vectors, names):
    first = run(place, config=WITH_FOLDS)
    order = np.random.default_rng(1).permutation(N)
    write_vectors(place / "m.csv", [names[row] for row in order], vectors[order])
    assert fold_scores(run(place, config=WITH_FOLDS), "height") == pytest.approx(
        fold_scores(first, "height"), abs=1e-4
    )


def test_what_does_not_match_is_counted_in_the_summary(place, vectors, names):
    odd = vectors.copy()
    odd[3, 0], odd[4, 1] = np.nan, np.inf
    write_vectors(place / "m.csv", [*names[:-5], "x", "y", "0001", "0001", "z"], odd)
    found = run(place)
    assert (found.coverage.matched, found.coverage.missing.count, found.coverage.extra.count) == (55, 5, 3)
    notes = found.summary["notes"]
    assert "55 of 60 labelled samples with an embedding." in notes
    assert "1 id more than once in the submission: 0001." in notes
    assert "Values that are no finite numbers count as 0." in notes
    assert found.summary["coverage"]["non_finite"] == {"count": 2, "first": ["0003", "0004"]}
    assert json.loads((found.folder / "tall/tall_result.json").read_text())["n_samples"] == 57


def test_ids_of_the_exclude_file_are_left_out(place, names):
    (place / "exclude.txt").write_text(f"{names[0]}\n\n{names[1]}.zarr.zip\nunknown\n")
    found = run(place, exclude_file=place / "exclude.txt")
    assert found.coverage.missing.first == ("0000", "0001")
    assert "2 ids of the submission are excluded by the exclude file." in found.notes
    with pytest.raises(UserError, match=r"none.txt: there is no such file"):
        run(place, exclude_file=place / "none.txt")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda n: (n, np.full(N, 7.0)), "all 60 samples with an embedding have the label 7"),
        (lambda n: (n[:1], np.ones(1)), "1 of its samples have an embedding; a regression needs 11"),
        (lambda n: (n[:10], np.arange(10)), "10 of its samples have an embedding; a regression needs 11"),
        (lambda n: ([f"{name}.zarr" for name in n], np.arange(N)), "none of its 60 samples"),
    ],
    ids=["constant", "one sample", "test splits of one row", "no match"],
)
def test_a_task_that_cannot_be_scored_is_left_out_with_its_reason(place, names, change, why):
    write_labels(place, "odd__regr", *change(names))
    found = run(place)
    assert list(found.summary["task_q_scores"]) == ["height", "tall"]
    assert why in found.excluded["odd"]
    assert found.summary["excluded_tasks"] == found.excluded
    assert not (found.folder / "odd").exists()


def test_no_task_that_can_be_scored_is_an_error_and_leaves_nothing(place, names):
    with pytest.raises(UserError, match="no task of .* can be scored .*one: 1 of its samples"):
        write_labels(place, "one__cls", names[:1], [1])
        run(place, config={"task_filter": ["one"]})
    write_vectors(place / "m.csv", ["other"], np.ones((1, D)))
    with pytest.raises(UserError, match="ids look like other"):
        run(place)
    assert not (place / "out").exists()


def test_folds_of_one_class_are_scored_as_published_and_told(place, names):
    labels = np.zeros(N, int)
    labels[7] = 1
    write_labels(place, "tall__cls", names, labels)
    found = run(place, config={**WITH_FOLDS, "k_folds": 8})
    splits = draw_splits(N, 8)
    empty = [7 not in test for test in splits.test]
    scores = fold_scores(found, "tall")
    assert all(score == 0 for score, none in zip(scores, empty, strict=True) if none)
    notes = json.loads((found.folder / "tall/tall_result.json").read_text())["notes"]
    assert f"{sum(empty)} of 8 test splits have no sample of class 1; their F1 is 0." in notes
    if not all(empty):
        assert f"{8 - sum(empty)} of 8 training splits have samples of one class alone." in notes


def test_two_samples_of_a_classification_are_enough(place, names):
    write_labels(place, "tall__cls", names[:2], [0, 1])
    assert run(place).summary["task_acc_scores"]["tall"] is not None


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("odd__multi", "id,label\n0000,1\n", "no type of task 'multi'"),
        ("odd__cls", "id,label\n0000,1\n0001,2\n", "its labels are 1, 2; a classification in the compatible mode"),
        ("odd__cls", "id,label\n0000,oak\n0001,fir\n", "its labels are fir, oak"),
        ("odd__regr", "id,label_a,label_b\n0000,1,2\n", r"2 label columns \(label_a, label_b\)"),
        ("odd__regr", "id,label\n0000,x\n", "'x' is no finite number"),
        ("odd", "id,label\n0000,1\n", "with two underscores"),
    ],
)
def test_labels_that_cannot_be_used_are_refused_before_anything_is_computed(place, name, text, says):
    (place / "labels" / f"{name}.csv").write_text(text)
    with pytest.raises(UserError, match=says):
        run(place)
    assert not (place / "out").exists()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            {"config": {"embedding_dim": 3}},
            "embedding dimension mismatch: it has 4 dimensions, embedding_dim is 3",
        ),
        ({"config": {"task_filter": ["heigth"]}}, "no task 'heigth' among the labels. Did you mean 'height'"),
        ({"config": {"device": "tpu"}}, "device 'tpu'"),
        ({"phase": "leaderboards"}, "cannot be called 'leaderboards'"),
        ({"method_name": "a/b"}, "cannot be empty or hold a slash"),
    ],
)
def test_what_is_asked_for_wrongly_is_refused_before_anything_is_computed(place, monkeypatch, more, says):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(UserError, match=says):
        run(place, **more)
    assert not (place / "out").exists()


def test_a_type_that_is_not_known_does_not_matter_where_its_task_is_not_chosen(place, names):
    write_labels(place, "odd__multi", names, np.arange(N))
    assert list(run(place, config={"task_filter": ["tall"]}).summary["task_q_scores"]) == ["tall"]


def test_a_killed_run_has_no_summary_and_is_not_ranked(place, monkeypatch):
    run(place, method_name="first")

    def die(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("agml_assets.compression.compatible.run.fit", die)
    with pytest.raises(KeyboardInterrupt):
        run(place, method_name="second")
    monkeypatch.undo()
    monkeypatch.setattr(CURVES, lambda *_: None)
    board = run(place, method_name="third", config={"update_leaderboard": True}).leaderboard
    assert sorted(board.table["experiment"]) == ["first_20260304_050607", "third_20260304_050607"]


def test_a_phase_that_cannot_be_ranked_does_not_lose_the_run(place):
    run(place, config={"task_filter": ["height"]})
    found = run(place, method_name="other", config={"task_filter": ["tall"], "update_leaderboard": True})
    assert found.leaderboard is None
    assert (found.folder / "results_summary.json").exists()


def test_the_configuration_may_be_a_file(place):
    text = "\n".join(f"{key}: {json.dumps(value)}" for key, value in QUICK.items())
    (place / "config.yaml").write_text(text)
    found = run_compatible(place / "labels", place / "m.csv", place / "out", place / "config.yaml", now=NOW)
    assert found.summary["config"] == QUICK


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_gpus_mean_the_processor_whatever_is_asked_for(monkeypatch, hidden):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert {choose_device(name) for name in ("auto", "gpu", "cuda", "cuda:1", "cpu")} == {"cpu"}


def test_devices_are_named_as_published(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    given = ("auto", "gpu", "GPU", "cuda", "cuda:1", "gpu:1", "cpu")
    assert [choose_device(name) for name in given] == ["cuda", "cuda", "cuda", "cuda", "cuda:1", "cuda:1", "cpu"]
    with pytest.raises(UserError, match="'cuda:2': torch finds 2 GPUs"):
        choose_device("cuda:2")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert choose_device("auto") == "cpu"
    with pytest.raises(UserError, match="'gpu': torch finds 0 GPUs here. Use auto or cpu"):
        choose_device("gpu")
