"""The split recipe `hf` against the published split of every image."""

import json

import numpy as np

from agml_assets.dataset.splits import split_hf


def test_every_published_image_falls_in_its_published_split(conformance):
    files = sorted((conformance / "agml_site" / "umap").glob("*_umap_2[Dd].json"))
    assert len(files) == 12
    for file in files:
        points = sorted(json.loads(file.read_text()), key=lambda point: point["index"])
        # The published class order is alphabetical in all of them.
        _, labels = np.unique([point["label"] for point in points], return_inverse=True)
        result = split_hf(labels, train_ratio=0.70, val_ratio=0.15, seed=42)
        assert list(result.assignment) == [point["split"] for point in points], file.name
        assert result.fallback == (), file.name
