"""Leakage: what copies across splits do to accuracy, against classifiers whose true accuracy is known."""

import json

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import accuracy_score, f1_score

from agml_assets.quality.leakage import leakage
from agml_assets.training.grouped_splits import grouped_splits

NAMES = [f"class {label}" for label in range(10)]


def groups_frame(joined, exact=None):
    joined = np.asarray(joined, np.int64)
    exact = joined if exact is None else np.asarray(exact, np.int64)
    return pl.DataFrame({"row": np.arange(len(joined)), "exact": exact, "near": joined, "joined": joined})


def smallest_row(ids):
    """Return each row's group as the smallest row in it, as the artifact has it."""
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    return first[inverse]


def predictions(rows, labels, n_classes):
    """Return test predictions that name `labels`."""
    rows = np.asarray(rows, np.int64)
    return {"rows": rows, "probabilities": np.eye(n_classes, dtype=np.float32)[np.asarray(labels, np.int64)]}


NOTHING = {"rows": np.zeros(0, np.int64), "probabilities": np.zeros((0, 10), np.float32)}


def rows_of(frame, column, part="test"):
    return np.flatnonzero((frame[column] == part).to_numpy())


class Nearest:
    """A classifier that knows by heart the pictures it was trained on, and says any class for another."""

    def __init__(self, pictures, labels, train, seed=0):
        self.known = dict(zip(pictures[train].tolist(), labels[train].tolist(), strict=True))
        self.rng = np.random.default_rng(seed)
        self.pictures = pictures
        self.n_classes = int(labels.max()) + 1

    def predict(self, rows):
        guesses = self.rng.integers(0, self.n_classes, len(rows))
        return [
            self.known.get(self.pictures[row], guess) for row, guess in zip(rows.tolist(), guesses, strict=True)
        ]


@pytest.fixture
def doubled(index, splits, settings):
    """Every picture twice, its label drawn at random: what a model can learn is nothing but copies."""
    rng = np.random.default_rng(0)
    pictures = rng.permutation(np.repeat(np.arange(500), 2))
    labels = rng.integers(0, 10, 500)[pictures]
    groups = groups_frame(smallest_row(pictures))
    published = splits(rng.choice(["train", "val", "test"], 1000, p=[0.7, 0.15, 0.15]).tolist())
    grouped = grouped_splits(labels, groups["joined"].to_numpy(), 10, settings)

    def measure(settings):
        test, safe = rows_of(published, "hf"), rows_of(grouped, "split")
        model = Nearest(pictures, labels, rows_of(published, "hf", "train"))
        other = Nearest(pictures, labels, rows_of(grouped, "split", "train"), seed=1)
        safe_predictions = predictions(safe, other.predict(safe), 10)
        if settings.leak_safe == "subset":
            alone = test[[pictures[row] not in model.known for row in test]]
            safe_predictions = predictions(alone, model.predict(alone), 10)
        elif settings.leak_safe == "off":
            safe_predictions = NOTHING
        return leakage(
            image_index=index(labels.tolist(), NAMES),
            splits=published,
            duplicate_groups=groups,
            grouped_splits=grouped,
            embeddings=np.eye(500, dtype=np.float32)[pictures],
            test_predictions=predictions(test, model.predict(test), 10),
            test_predictions_grouped=safe_predictions,
            settings=settings,
        )

    return measure


def test_where_every_image_occurs_twice_the_published_accuracy_is_made_of_copies(doubled, settings):
    result = doubled(settings)
    assert result["published"]["accuracy"] > 0.5
    interval = result["intervals"]["leak_safe.accuracy"]
    assert interval["low"] < 0.1 < interval["high"]
    assert result["leakage_inflation"] == pytest.approx(
        result["published"]["accuracy"] - result["leak_safe"]["accuracy"], abs=1.01e-4
    )
    inflation = result["intervals"]["leakage_inflation"]
    assert 0 < inflation["low"] < result["leakage_inflation"] < inflation["high"]
    assert result["leakage_inflation_kept_classes"] == result["leakage_inflation"]
    assert result["leak_safe"]["classes_left_out"] == []
    assert result["leak_safe"]["sizes"] == {"train": 700, "val": 150, "test": 150}
    assert result["effective_sample_size"]["overall"] == 500
    assert sum(result["effective_sample_size"]["per_class"].values()) == 500
    assert result["largest_group"] == {"images": 2, "share": 0.002, "lowest_cosine": 1.0}


def test_the_paired_form_finds_the_same_with_one_model(doubled, settings):
    paired = doubled(settings)["paired"]
    assert paired["with_copy"]["accuracy"] == 1.0
    assert paired["without_copy"]["accuracy"] < 0.3
    assert paired["difference"] == pytest.approx(1 - paired["without_copy"]["accuracy"], abs=1e-4)
    result = doubled(settings)
    assert result["intervals"]["paired.difference"]["low"] > 0.5
    assert paired["with_copy"]["n"] + paired["without_copy"]["n"] == result["published"]["n_test"]


def test_the_subset_is_the_published_model_on_images_without_a_copy_in_train(doubled, settings):
    result = doubled(settings.override({"leak_safe": "subset"}, "test"))
    safe, alone = result["leak_safe"], result["paired"]["without_copy"]
    assert (safe["mode"], safe["n_test"]) == ("subset", alone["n"])
    assert safe["sizes"]["test"] == alone["n"]
    assert safe["accuracy"] < 0.3
    assert result["intervals"]["leakage_inflation"]["low"] > 0


def test_switched_off_there_is_no_leak_safe_figure_and_the_paired_form_stays(doubled, settings):
    result = doubled(settings.override({"leak_safe": "off"}, "test"))
    assert result["leak_safe"]["accuracy"] is None
    assert result["leak_safe"]["reason"] == "The setting leak_safe is 'off'."
    assert result["leakage_inflation"] is None
    assert result["leakage_inflation_reason"] == result["leak_safe"]["reason"]
    assert result["intervals"]["leakage_inflation"]["kind"] == "none"
    assert result["paired"]["difference"] > 0.5


def measure(
    index, splits, labels, groups, settings, n_classes=None, accuracy=1.0, native=None, exact=None, d=None
):
    """Measure a dataset on a published split by row and a model that is right with a fixed probability."""
    labels = np.asarray(labels, np.int64)
    n_classes = n_classes or int(labels.max()) + 1
    rng = np.random.default_rng(1)
    published = splits(rng.choice(["train", "val", "test"], len(labels), p=[0.7, 0.15, 0.15]).tolist(), native)
    frame = groups_frame(smallest_row(groups), exact)
    grouped = grouped_splits(labels, np.asarray(groups), n_classes, settings)

    def guess(rows):
        return predictions(
            rows,
            np.where(rng.random(len(rows)) < accuracy, labels[rows], (labels[rows] + 1) % n_classes),
            n_classes,
        )

    test, safe = guess(rows_of(published, "hf")), guess(rows_of(grouped, "split"))
    result = leakage(
        image_index=index(labels.tolist(), [f"class {label}" for label in range(n_classes)]),
        splits=published,
        duplicate_groups=frame,
        grouped_splits=grouped,
        embeddings=np.ones((len(labels), 1), np.float32) if d is None else d,
        test_predictions=test,
        test_predictions_grouped=safe,
        settings=settings,
    )
    json.dumps(result, allow_nan=False)
    return result, test, safe


def test_figures_are_scikit_learns(index, splits, settings):
    labels = np.random.default_rng(2).integers(0, 6, 800)
    result, test, safe = measure(index, splits, labels, np.arange(800), settings, accuracy=0.7)
    for name, predicted in (("published", test), ("leak_safe", safe)):
        true, guess = labels[predicted["rows"]], predicted["probabilities"].argmax(axis=1)
        assert result[name]["accuracy"] == pytest.approx(accuracy_score(true, guess), abs=5.1e-5)
        assert result[name]["macro_f1"] == pytest.approx(f1_score(true, guess, average="macro"), abs=5.1e-5)
    assert result["intervals"]["published.accuracy"]["kind"] == "proportion"
    assert result["intervals"]["published.macro_f1"]["kind"] == "sample"


def test_without_copies_no_inflation_is_found(index, splits, settings):
    labels = np.random.default_rng(3).integers(0, 4, 2000)
    result, _, _ = measure(index, splits, labels, np.arange(2000), settings, accuracy=0.8)
    interval = result["intervals"]["leakage_inflation"]
    assert interval["low"] < 0 < interval["high"]
    assert result["paired"]["with_copy"] == {"n": 0, "accuracy": None}
    assert result["paired"]["difference"] is None
    assert result["intervals"]["paired.difference"]["kind"] == "none"
    assert result["largest_group"] == {"images": 1, "share": 0.0005, "lowest_cosine": None}
    assert result["images_sent_to_train"] == {}


@pytest.mark.parametrize("mode", ["retrain", "subset"])
def test_a_class_of_two_groups_is_left_out_of_leak_safe_figures_only(index, splits, settings, mode):
    settings = settings.override({"leak_safe": mode}, "test")
    labels = np.append(np.arange(600) % 3, [3] * 30)
    groups = np.append(np.arange(600), 600 + np.arange(30) % 2)
    result, test, safe = measure(index, splits, labels, groups, settings)
    assert result["leak_safe"]["classes_left_out"] == [
        {"class": "class 3", "groups": 2, "reason": "class with 2 groups"}
    ]
    assert result["images_sent_to_train"] == {"class with 2 groups": 30}
    assert result["leak_safe"]["n_classes"] == 3
    assert result["leak_safe"]["n_test"] == len(safe["rows"]) == (labels[safe["rows"]] < 3).sum()
    assert result["published"]["n_test"] == len(test["rows"]) > (labels[test["rows"]] < 3).sum()
    assert result["effective_sample_size"]["per_class"]["class 3"] == 2


def test_a_dataset_like_agarwood_tells_sizes_and_classes_left_out(index, splits, settings):
    """92 % of the images in groups of near-duplicates, the largest of 20 % of all."""
    rng = np.random.default_rng(4)
    groups = np.arange(3000)
    groups[:600] = 0
    groups[600:2760] = 600 + rng.integers(0, 540, 2160)
    labels = rng.integers(0, 8, 3000)[groups]
    exact = np.arange(3000)
    result, _, _ = measure(index, splits, labels, groups, settings, n_classes=8, accuracy=0.8, exact=exact)
    left_out = result["leak_safe"]["classes_left_out"]
    assert [entry["class"] for entry in left_out] == [f"class {labels[0]}"]
    assert left_out[0]["reason"] == "group of 600 images exceeds the room left"
    assert result["images_sent_to_train"] == {"group of 600 images exceeds the room left": 600}
    assert result["largest_group"]["share"] == 0.2
    assert sum(result["leak_safe"]["sizes"].values()) == 3000
    assert result["leak_safe"]["accuracy"] == pytest.approx(0.8, abs=0.08)
    assert result["intervals"]["leakage_inflation"]["kind"] == "sample"
    assert result["intervals"]["leak_safe.accuracy"]["groups"] < result["leak_safe"]["n_test"]
    assert result["label_conflicts"] == {"groups": 0, "images": 0}


def test_below_half_of_the_classes_the_leak_safe_accuracy_is_not_identifiable(index, splits, settings):
    labels = np.append(np.zeros(400, int), np.repeat([1, 2], 20))
    groups = np.append(np.arange(400), 400 + np.repeat([0, 1], 20))
    result, _, _ = measure(index, splits, labels, groups, settings)
    expected = "not identifiable: 1 of 3 classes remain; at least half are needed"
    assert result["leak_safe"]["reason"] == expected
    assert result["leak_safe"]["accuracy"] is None
    assert result["intervals"]["leak_safe.macro_f1"] == {"kind": "none", "reason": expected}


def test_below_thirty_test_images_the_leak_safe_accuracy_is_not_identifiable(index, splits, settings):
    labels = np.arange(190) % 2
    result, _, safe = measure(index, splits, labels, np.arange(190), settings)
    n = len(safe["rows"])
    assert n < 30
    assert result["leak_safe"]["reason"] == (f"not identifiable: {n} test images remain; at least 30 are needed")
    labels = np.arange(204) % 2
    assert "reason" not in measure(index, splits, labels, np.arange(204), settings)[0]["leak_safe"]


def test_a_declared_class_without_images_is_not_one_that_is_left_out(index, splits, settings):
    labels = np.random.default_rng(5).integers(0, 3, 500)
    result, _, _ = measure(index, splits, labels, np.arange(500), settings, n_classes=20)
    assert result["leak_safe"]["n_classes"] == 3
    assert result["leak_safe"]["classes_left_out"] == []
    assert result["effective_sample_size"]["per_class"]["class 19"] == 0


def test_a_chain_shows_in_the_lowest_cosine_of_the_largest_group(index, splits, settings):
    # Neighbours are 5 degrees apart, so each is a near-duplicate of the next and the ends are opposite.
    angles = np.deg2rad(np.append(np.arange(0, 185, 5), np.linspace(200, 300, 263)))
    vectors = np.column_stack([np.cos(angles), np.sin(angles)]).astype(np.float32)
    groups = np.append(np.zeros(37, int), np.arange(37, 300))
    result, _, _ = measure(index, splits, np.arange(300) % 2, groups, settings, d=vectors)
    assert result["largest_group"]["images"] == 37
    assert result["largest_group"]["lowest_cosine"] == pytest.approx(-1, abs=1e-4)


def test_the_lowest_cosine_is_that_of_all_pairs_in_a_group_of_several_blocks(index, splits, settings, monkeypatch):
    monkeypatch.setattr("agml_assets.quality.leakage._BLOCK", 64)
    vectors = np.random.default_rng(6).normal(size=(300, 5)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    groups = np.append(np.zeros(250, int), np.arange(250, 300))
    result, _, _ = measure(index, splits, np.arange(300) % 2, groups, settings, d=vectors)
    every_pair = vectors[:250] @ vectors[:250].T
    assert result["largest_group"]["lowest_cosine"] == pytest.approx(float(every_pair.min()), abs=5.1e-5)


def test_the_datasets_own_splits_are_audited_for_exact_and_joined_copies(index, splits, settings):
    # PlantSeg-like: two exact copies over train and test, two more only alike over train and validation.
    n = 300
    joined, exact = np.arange(n), np.arange(n)
    exact[1] = joined[1] = 0
    joined[3] = 2
    native = ["train", "test", "train", "val", *["train"] * (n - 4)]
    labels = np.arange(n) % 2
    result, _, _ = measure(index, splits, labels, joined, settings, native=native, exact=exact)
    assert result["native_splits"]["exact"]["train-test"] == {"groups": 1, "train_images": 1, "test_images": 1}
    assert result["native_splits"]["exact"]["train-val"]["groups"] == 0
    assert result["native_splits"]["joined"]["train-val"] == {"groups": 1, "train_images": 1, "val_images": 1}
    assert result["label_conflicts"] == {"groups": 1, "images": 2}


def test_a_dataset_without_its_own_splits_has_no_audit_of_them(doubled, settings):
    assert doubled(settings)["native_splits"] is None


def test_small_classes_are_named_where_they_make_macro_f1_unreliable(index, splits, settings):
    labels = np.append(np.zeros(900, int), np.ones(60, int))
    result, _, _ = measure(index, splits, labels, np.arange(960), settings)
    assert "class 1" in result["small_class_warning"]["leak_safe"]
    assert "warning" in result["intervals"]["leak_safe.macro_f1"]
    labels = np.arange(960) % 2
    assert measure(index, splits, labels, np.arange(960), settings)[0]["small_class_warning"] == {
        "published": None,
        "leak_safe": None,
    }


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_handful_of_images_without_a_model_still_has_its_audit(n, index, splits, settings):
    labels = np.arange(n) % 2
    result = leakage(
        image_index=index(labels.tolist(), ["a", "b"]),
        splits=splits(["train"] * n),
        duplicate_groups=groups_frame(np.zeros(n, int)),
        grouped_splits=grouped_splits(labels, np.zeros(n, int), 2, settings),
        embeddings=np.ones((n, 1), np.float32),
        test_predictions=NOTHING,
        test_predictions_grouped=NOTHING,
        settings=settings,
    )
    assert result["skipped"] is True
    assert result["largest_group"]["images"] == n
    assert result["effective_sample_size"]["overall"] == 1
    assert sum(result["images_sent_to_train"].values()) == n
    assert result["label_conflicts"]["images"] == (n if n > 1 else 0)
