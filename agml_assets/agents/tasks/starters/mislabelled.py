"""Ranks images by how little a simple model, trained on the others, expects their labels."""

import csv

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def describe(images: np.ndarray) -> np.ndarray:
    """Return fifteen numbers of each image: quantiles of its red, green and blue."""
    pixels = images.reshape(len(images), -1, 3)
    return np.hstack([np.percentile(pixels, percent, axis=1) for percent in (5, 25, 50, 75, 95)])


def main() -> None:
    """Read data/images.npz, write submission.csv."""
    found = np.load("data/images.npz", allow_pickle=False)
    features, labels = describe(found["images"]), found["labels"]

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=3000))
    probabilities = cross_val_predict(model, features, labels, cv=5, method="predict_proba")
    column = np.searchsorted(np.unique(labels), labels)
    suspicion = 1 - probabilities[np.arange(len(labels)), column]
    print(f"{(suspicion > 0.9).sum()} of {len(labels)} labels are given less than one chance in ten.")

    with open("submission.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "suspicion"])
        writer.writerows(zip(found["ids"], suspicion, strict=True))


if __name__ == "__main__":
    main()
