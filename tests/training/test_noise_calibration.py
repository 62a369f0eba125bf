import json

import numpy as np
import pytest
from cleanlab.filter import find_label_issues
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from agml_assets.errors import UserError
from agml_assets.training import noise_calibration as module
from agml_assets.training.noise_calibration import flag_labels, noise_calibration
from agml_assets.training.out_of_fold import out_of_fold, stratified_folds


def digits(n=300):
    x, y = load_digits(return_X_y=True)
    return (x[:n] / 16).astype(np.float32), y[:n]


def blobs(n=300, n_classes=3, distance=1.0, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    x = 0.25 * rng.normal(size=(n, 8)) + distance * np.eye(8)[y]
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), y


def calibrate(x, y, groups=None, folds=None, n_classes=None, **options):
    groups = np.arange(len(y)) if groups is None else groups
    folds = stratified_folds(y, 5) if folds is None else folds
    return noise_calibration(x, y, groups, folds, n_classes or y.max() + 1, **options)


@pytest.fixture
def labellings(monkeypatch):
    """Every labelling with its images that a calibration asks to be counted."""
    counted = []
    count = module._count

    def record(given, probabilities, flipped):
        counted.append((given, flipped))
        return count(given, probabilities, flipped)

    monkeypatch.setattr(module, "_count", record)
    return counted


def test_flips_of_digits_are_found_as_measured_with_scikit_learn_and_cleanlab():
    """Flips of 1, 5, 10 and 20 % of the digits, measured once with both libraries alone."""
    x, y = load_digits(return_X_y=True)
    x = x / 16
    rng = np.random.default_rng(0)
    expected = [(0.01, 17, 11, 0.73, 0.47), (0.05, 89, 87, 0.85, 0.83), (0.1, 179, 189, 0.87, 0.92)]
    clean = out_of_fold(x, y, stratified_folds(y, 5, seed=0), 10)
    assert (clean.argmax(axis=1) == y).mean() == pytest.approx(0.969393, abs=0.001)
    assert flag_labels(y, clean).tolist() == [1553, 1551, 129]
    for rate, n_flipped, n_flagged, precision, recall in expected:
        rows = rng.choice(len(y), int(rate * len(y)), replace=False)
        given = y.copy()
        given[rows] = (y[rows] + rng.integers(1, 10, len(rows))) % 10
        flagged = flag_labels(given, out_of_fold(x, given, stratified_folds(given, 5, seed=0), 10))
        hits = np.isin(flagged, rows).sum()
        assert len(rows) == n_flipped
        assert abs(len(flagged) - n_flagged) <= 2
        assert hits / len(flagged) == pytest.approx(precision, abs=0.02)
        assert hits / len(rows) == pytest.approx(recall, abs=0.02)


def test_r_and_f_are_the_flagged_shares_of_flipped_and_untouched_images(labellings):
    x, y = digits()
    folds = stratified_folds(y, 5)
    result = calibrate(x, y, folds=folds)
    assert len(labellings) == 30
    by_case = [(kind, step, run) for kind in ("uniform", "by_confusion") for step in range(3) for run in range(5)]
    for (kind, step, run), (given, flipped) in list(zip(by_case, labellings, strict=True))[::7]:
        assert np.array_equal(flipped, given != y)
        model = LogisticRegression(tol=1e-6, max_iter=10_000)
        splits = [(np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)) for fold in range(5)]
        theirs = cross_val_predict(model, x.astype(np.float64), given, cv=splits, method="predict_proba")
        flagged = find_label_issues(given, theirs, n_jobs=1)
        # Ours stop a little earlier: one image on the edge may fall on the other side.
        measured = result[kind][step]
        assert measured["injected"][run] == flipped.sum()
        assert abs(measured["r"][run] - flagged[flipped].mean()) <= 1.01 / flipped.sum()
        assert abs(measured["f"][run] - flagged[~flipped].mean()) <= 2.01 / (~flipped).sum()


def test_levels_are_shares_of_the_images():
    result = calibrate(*digits())
    assert result["levels"] == [0.01, 0.05, 0.1]
    assert result["seeds"] == 5
    assert (result["rows"], result["groups"], result["classes"]) == (300, 300, 10)
    for kind in ("uniform", "by_confusion"):
        assert [each["level"] for each in result[kind]] == [0.01, 0.05, 0.1]
        assert [each["injected"] for each in result[kind]] == [[3] * 5, [15] * 5, [30] * 5]
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_flips_among_well_separated_classes_are_all_found_without_false_alarms():
    result = calibrate(*blobs(distance=5.0))
    assert result["flagged"] == 0
    # Three flips, as of 1 %, are too few for confident learning to be sure of each.
    for level in result["uniform"][1:]:
        assert np.mean(level["r"]) > 0.9
        assert np.mean(level["f"]) < 0.01


def test_among_meaningless_labels_flips_are_found_no_more_often_than_others():
    x, y = blobs()
    y = np.random.default_rng(1).permutation(y)
    for level in calibrate(x, y)["uniform"][1:]:
        assert abs(np.mean(level["r"]) - np.mean(level["f"])) < 0.2


def test_copies_are_flipped_together_and_alike(labellings):
    x, y = blobs()
    x, y, groups = np.repeat(x, 3, axis=0), np.repeat(y, 3), np.repeat(np.arange(len(y)), 3)
    calibrate(x, y, groups, folds=stratified_folds(y[::3], 5).repeat(3))
    assert len(labellings) == 30
    for given, flipped in labellings:
        assert 0 < flipped.sum() < len(y)
        assert (given.reshape(-1, 3) == given.reshape(-1, 3)[:, :1]).all()
        assert (flipped.reshape(-1, 3) == flipped.reshape(-1, 3)[:, :1]).all()


def test_a_group_of_many_copies_is_not_flipped_where_it_would_exceed_the_level(labellings):
    x, y = blobs()
    groups = np.where(np.arange(300) < 60, 0, np.arange(300))
    result = calibrate(x, y, groups, folds=np.where(groups == 0, 0, np.arange(300) % 5))
    assert not any(flipped[:60].any() for _, flipped in labellings)
    assert [each["injected"] for each in result["uniform"]] == [[3] * 5, [15] * 5, [30] * 5]


def test_groups_larger_than_every_level_still_give_one_flipped_group(labellings):
    x, y = blobs()
    groups = np.arange(300) // 12
    calibrate(x, y, groups, folds=groups % 5)
    assert {int(flipped.sum()) for _, flipped in labellings} == {12, 24}


def test_flips_by_confusion_go_where_the_model_confuses(labellings):
    rng = np.random.default_rng(0)
    y = np.arange(400) % 4
    centers = np.array([[1.0, 0, 0], [0.9, 0.2, 0], [0, 0, 1], [0, 1, 0]])  # 0 and 1 are alike
    x = centers[y] + 0.1 * rng.normal(size=(400, 3))
    calibrate(5 * x, y)
    uniform, by_confusion = labellings[:15], labellings[15:]

    def share_of_the_alike(pairs):
        moved = [given[flipped & (y < 2)] for given, flipped in pairs]
        return (np.concatenate(moved) < 2).mean()

    assert share_of_the_alike(uniform) < 0.5
    assert share_of_the_alike(by_confusion) > 0.8


def test_the_same_seed_gives_the_same_result_and_another_seed_another():
    x, y = blobs(120)
    assert calibrate(x, y, seed=1) == calibrate(x, y, seed=1) != calibrate(x, y, seed=2)


def test_how_many_labellings_fit_into_memory_changes_nothing_but_rounding(monkeypatch):
    x, y = blobs(150)
    whole = calibrate(x, y)
    monkeypatch.setattr("agml_assets.training.out_of_fold._MAX_WEIGHTS", 60)
    monkeypatch.setattr("agml_assets.training.out_of_fold._BLOCK_VALUES", 200)
    in_parts = calibrate(x, y)
    for kind in ("uniform", "by_confusion"):
        for one, other in zip(whole[kind], in_parts[kind], strict=True):
            assert one["injected"] == other["injected"]
            assert np.allclose(one["r"], other["r"], atol=0.51)
            assert np.allclose(one["f"], other["f"], atol=0.01)


def test_a_large_dataset_is_sampled_by_whole_groups_and_keeps_its_classes(labellings, monkeypatch):
    monkeypatch.setattr(module, "MAX_ROWS", 200)
    x, y = blobs(900, 3)
    y = y.copy()
    y[:6] = 3
    groups = np.where(np.arange(900) < 6, np.arange(900), np.arange(900) // 2)
    result = calibrate(x, y, groups, folds=groups % 5)
    assert 198 <= result["rows"] <= 200
    assert result["classes"] == 4
    rows = module._sample(y, groups, 4, 42)
    assert len(rows) == result["rows"]
    sizes = np.bincount(groups)
    assert (np.bincount(groups[rows], minlength=len(sizes)) == sizes)[groups[rows]].all()
    shares = np.bincount(y[rows])
    assert shares[3] >= 3
    assert shares[:3].min() > 55


def test_classes_in_few_groups_are_left_out():
    x, y = blobs()
    y = np.append(y, [3, 3, 3, 3])
    groups = np.append(np.arange(300), [300, 300, 301, 301])
    result = calibrate(np.vstack([x, x[:4]]), y, groups, n_classes=5)
    assert (result["rows"], result["classes"]) == (300, 3)


@pytest.mark.parametrize(
    ("n", "labels", "groups", "folds", "reason"),
    [
        (30, np.zeros(30), np.arange(30), np.arange(30) % 5, "1 classes have at least 3 groups"),
        (0, np.zeros(0), np.zeros(0), np.zeros(0), "0 classes"),
        (10, np.arange(10) % 2, np.arange(10), np.arange(10) % 5, "10 groups of copies; at least 20"),
        (40, np.arange(40) % 2, np.arange(40) // 4, np.arange(40) // 4 % 5, "10 groups of copies"),
        (40, np.arange(40) % 2, np.arange(40), np.zeros(40), "one fold"),
    ],
)
def test_too_little_to_flip_is_skipped_with_the_reason(n, labels, groups, folds, reason):
    x = np.random.default_rng(0).normal(size=(n, 3))
    result = noise_calibration(x, *(a.astype(np.int64) for a in (labels, groups, folds)), 2)
    assert result["skipped"]
    assert reason in result["reason"]


def test_rows_that_are_not_finite_are_named():
    x, y = blobs()
    x[7, 1] = np.nan
    with pytest.raises(UserError, match=r"rows \[7\]"):
        calibrate(x, y)


def test_progress_runs_from_the_first_to_the_last_fit():
    seen = []
    calibrate(*blobs(), progress=lambda done, total: seen.append((done, total)))
    assert [total for _, total in seen] == [31 * 5] * len(seen)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert seen[0][0] == 1
    assert seen[-1][0] == 31 * 5


def test_flags_are_those_of_cleanlab_whatever_numbers_the_classes_have():
    x, y = digits()
    y = (y + np.random.default_rng(0).integers(0, 2, len(y)) * (np.arange(len(y)) % 9 == 0)) % 10
    probabilities = out_of_fold(x, y, stratified_folds(y, 5), 10)
    theirs = find_label_issues(y, probabilities, return_indices_ranked_by="self_confidence", n_jobs=1)
    assert len(theirs) > 10
    assert flag_labels(y, probabilities).tolist() == theirs.tolist()

    spread = np.zeros((len(y), 31), dtype=np.float32)
    spread[:, ::3][:, :10] = probabilities
    assert flag_labels(3 * y, spread).tolist() == theirs.tolist()


def test_a_label_whose_class_no_model_has_seen_is_not_flagged():
    x, y = digits()
    y = np.where(np.arange(len(y)) < 8, 10, y)
    folds = np.where(y == 10, 0, np.arange(len(y)) % 5)
    assert not np.isin(flag_labels(y, out_of_fold(x, y, folds, 11)), np.arange(8)).any()
