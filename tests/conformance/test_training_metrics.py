"""The 27 published reports: training-based metrics rebuilt from the published counts and matrices."""

import json

import numpy as np
import polars as pl
import pytest

from agml_assets.quality.class_confusability import class_confusability
from agml_assets.quality.dataset_cartography import dataset_cartography

N_REPORTS = 27


@pytest.fixture(scope="module")
def reports(conformance):
    published = json.loads((conformance / "agml_site" / "results.json").read_text())
    assert len(published) == N_REPORTS
    return {name: report["metrics"] for name, report in published.items()}


def image_index(labels, names):
    rows = pl.Series(range(len(labels)), dtype=pl.Int64)
    classes = pl.Series(list(labels), dtype=pl.Int64)
    names_of_images = pl.Series([names[label] for label in labels], dtype=pl.Enum(names))
    return pl.DataFrame({"source_row": rows, "row": rows, "label": classes, "class_name": names_of_images})


def no_copies(n):
    rows = pl.Series(range(n), dtype=pl.Int64)
    return pl.DataFrame({"row": rows, "exact": rows, "near": rows, "joined": rows})


def test_cartography_from_the_published_counts(reports):
    # Images of each category as many as published; how confident exactly is not published for any.
    confidences = {"n_easy": 0.9, "n_ambiguous": 0.5, "n_hard": 0.1}
    for metrics in reports.values():
        published = metrics["dataset_cartography"]
        largest = np.concatenate(
            [np.full((published[key], published["n_epochs"]), value) for key, value in confidences.items()]
        ).astype(np.float32)
        n_train = len(largest)
        assert n_train == metrics["class_imbalance"]["total_train_examples"]
        ours = dataset_cartography(
            image_index=image_index([0] * n_train, ["any"]),
            dynamics={"rows": np.arange(n_train), "max_train": largest, "true_eval": largest, "max_eval": largest},
            duplicate_groups=no_copies(n_train),
        )
        leading = {key: ours[key] for key in list(ours)[: len(published)]}
        measured = ("mean_confidence", "mean_variability")
        assert json.dumps(leading | dict.fromkeys(measured)) == json.dumps(published | dict.fromkeys(measured))


def row_counts(rates, most):
    """Return the smallest counts whose shares, to four decimals, are these."""
    totals = np.arange(1, most + 1)[:, None]
    counts = np.rint(np.array(rates) * totals)
    fits = (np.round(counts / totals, 4) == np.array(rates)).all(axis=1) & (counts.sum(axis=1) == totals[:, 0])
    return counts[fits.argmax()].astype(int) if fits.any() else None


def test_confusion_matrix_and_pairs_from_counts_that_give_the_published_shares(reports):
    for metrics in reports.values():
        published = metrics["class_confusability"]
        names = list(published["per_class_accuracy"])
        true, predicted = [], []
        for label, rates in enumerate(published["confusion_matrix"]):
            counts = row_counts(rates, published["n_test_samples"])
            assert counts is not None, (label, rates)
            true += [label] * int(counts.sum())
            predicted += np.repeat(np.arange(len(names)), counts).tolist()
        ours = class_confusability(
            image_index=image_index(true, names),
            test_predictions={
                "rows": np.arange(len(true)),
                "probabilities": np.eye(len(names), dtype=np.float32)[predicted],
            },
            duplicate_groups=no_copies(len(true)),
        )
        assert list(ours)[: len(published)] == list(published)
        for key in ("per_class_accuracy", "confusion_matrix", "top_confused_pairs", "n_top_pairs"):
            assert json.dumps(ours[key]) == json.dumps(published[key])
