"""All of a dataset but the training's arithmetic: files decoded once, against once a metric and once an epoch.

`python benchmarks/bench_pipeline.py [--images N] [--epochs E] [--repeats R]`. Both ways hash the pixels, embed
with the packaged network, find near-duplicates, measure separability and diversity, fit the out-of-fold
regressions, lay out the images by UMAP, and bring every epoch's images to the network's input; none is trained.
"""

import argparse
import hashlib
import io
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import faiss
import numpy as np
import torch
import umap
from measure import compare
from photographs import Photographs
from PIL import Image, ImageOps
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import davies_bouldin_score, silhouette_score
from sklearn.metrics.pairwise import cosine_distances
from sklearn.model_selection import PredefinedSplit, cross_val_predict

from agml_assets.dataset.decode_pass import decode_source
from agml_assets.embeddings.embedder import PACKAGED_MODEL, ImageEmbedder
from agml_assets.embeddings.neighbors import find_neighbors
from agml_assets.embeddings.umap_projection import project_umap
from agml_assets.quality.clusters import (
    centroids,
    cosine_silhouettes,
    davies_bouldin,
    distances_to_centroid,
    mean_cosine_distances,
)
from agml_assets.settings import Settings
from agml_assets.training.backbones import open_backbone
from agml_assets.training.out_of_fold import out_of_fold, stratified_folds
from agml_assets.training.reference_trainer import ReferenceTrainer, _Run

CLASSES, BATCH, THRESHOLD, TRAIN_SHARE = 8, 64, 0.98, 0.7


class Plan(NamedTuple):
    """What both ways are given."""

    source: Photographs
    labels: np.ndarray
    folds: np.ndarray
    epochs: int

    @property
    def train_rows(self) -> np.ndarray:
        """Rows that would be trained on."""
        return np.arange(round(TRAIN_SHARE * len(self.labels)))


class Found(NamedTuple):
    """What both ways give; `inputs` is the mean of all that the network would be fed in the last epoch."""

    md5: list[str]
    vectors: np.ndarray
    n_pairs: int
    silhouette: float
    davies_bouldin: float
    diversity: np.ndarray
    probabilities: np.ndarray
    layout: np.ndarray
    inputs: float


class Files(torch.utils.data.Dataset):
    """Images decoded whenever they are asked for, resized, cropped and normalised."""

    def __init__(self, files: list[bytes]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, row: int) -> torch.Tensor:
        image = Image.open(io.BytesIO(self.files[row])).convert("RGB")
        short = min(image.size)
        width, height = (int(256 * side / short) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
        left, top = (width - 256) // 2 + 16, (height - 256) // 2 + 16
        crop = np.array(image.crop((left, top, left + 224, top + 224)), dtype=np.float32)
        return (torch.from_numpy(crop).permute(2, 0, 1) - 127) / 128


def obvious(network: torch.nn.Module, plan: Plan) -> Found:
    """Decode for each metric and each epoch, in this process as by default; scikit-learn, FAISS, umap-learn."""
    md5 = []
    for file in plan.source.files:
        md5.append(hashlib.md5(ImageOps.exif_transpose(Image.open(io.BytesIO(file))).tobytes()).hexdigest())
    dataset = Files(list(plan.source.files))
    with torch.inference_mode():
        loader = torch.utils.data.DataLoader(dataset, BATCH)
        vectors = torch.cat([network.extract_features(images).mean((2, 3)) for images in loader]).numpy()
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    limits, _, _ = index.range_search(vectors, THRESHOLD)
    index.search(vectors, 51)
    by_class = [vectors[plan.labels == label] for label in range(CLASSES)]
    spread = [cosine_distances(some)[np.triu_indices(len(some), 1)].mean() for some in by_class]
    model = LogisticRegression(max_iter=1000)
    probabilities = cross_val_predict(
        model, vectors, plan.labels, cv=PredefinedSplit(plan.folds), method="predict_proba"
    )
    layout = umap.UMAP(n_neighbors=15, min_dist=0.1, metric="cosine", random_state=42).fit_transform(vectors)
    train = torch.utils.data.Subset(dataset, plan.train_rows.tolist())
    for _ in range(plan.epochs):
        inputs = sum(float(images.sum()) for images in torch.utils.data.DataLoader(train, BATCH, shuffle=True))
    test = torch.utils.data.Subset(dataset, range(len(train), len(dataset)))
    for _ in torch.utils.data.DataLoader(test, BATCH):
        pass
    return Found(
        md5,
        vectors,
        (int(limits[-1]) - len(vectors)) // 2,
        float(silhouette_score(vectors, plan.labels, metric="cosine")),
        float(davies_bouldin_score(vectors, plan.labels)),
        np.array(spread),
        probabilities,
        layout,
        inputs,
    )


def ours(embedder: ImageEmbedder, plan: Plan) -> Found:
    """Decode once, on all cores, and take everything else from the stored squares."""
    with tempfile.TemporaryDirectory() as folder:
        decoded = decode_source(plan.source, work_dir=Path(folder), settings=Settings())
        pixels = np.load(decoded.pixels, mmap_mode="r")
        vectors = embedder.encode_pixels(pixels)
        inputs = load_epochs(pixels, plan)
    neighbors = find_neighbors(vectors, threshold=THRESHOLD, max_pairs=10_000_000)
    means = centroids(vectors, plan.labels, CLASSES)
    return Found(
        decoded.pixel_hashes["md5_native"].to_list(),
        vectors,
        neighbors.n_pairs,
        float(cosine_silhouettes(vectors, plan.labels, CLASSES).mean()),
        davies_bouldin(means, distances_to_centroid(vectors, plan.labels, means))[0],
        mean_cosine_distances(vectors, plan.labels, CLASSES),
        out_of_fold(vectors, plan.labels, plan.folds, CLASSES),
        project_umap(vectors, neighbors, n_components=2, seed=42),
        inputs,
    )


def load_epochs(pixels: np.ndarray, plan: Plan) -> float:
    """Bring the images to the network's input as the trainer does, twice an epoch: it trains, then watches."""
    trainer = ReferenceTrainer(PACKAGED_MODEL)
    run = _Run(torch.nn.Linear(1, 1), open_backbone(PACKAGED_MODEL), torch.device("cpu"), trainer, pixels)
    rng, rows = np.random.default_rng(0), plan.train_rows
    for _ in range(plan.epochs):
        for order in (rng.permutation(len(rows)), np.arange(len(rows))):
            inputs = sum(float(run._images(crops).sum()) for _, crops in run._crops_of(rows, order))
    test = np.arange(len(rows), len(plan.labels))
    for _, crops in run._crops_of(test, np.arange(len(test))):
        run._images(crops)
    return inputs


def agree(theirs: Found, mine: Found) -> str:
    """Compare everything that has one right answer; of the layout, that all points are finite."""
    assert theirs.md5 == mine.md5
    cosines = (theirs.vectors * mine.vectors).sum(axis=1)
    assert cosines.min() > 0.99999, cosines.min()
    assert theirs.n_pairs == mine.n_pairs, (theirs.n_pairs, mine.n_pairs)
    np.testing.assert_allclose(mine.silhouette, theirs.silhouette, atol=1e-4)
    np.testing.assert_allclose(mine.davies_bouldin, theirs.davies_bouldin, rtol=1e-3)
    np.testing.assert_allclose(mine.diversity, theirs.diversity, atol=1e-4)
    np.testing.assert_allclose(mine.probabilities, theirs.probabilities, atol=0.02)
    np.testing.assert_allclose(mine.inputs, theirs.inputs, rtol=1e-3)
    assert np.isfinite(mine.layout).all()
    return f"identical hashes, {mine.n_pairs} pairs and inputs; vectors within cosine {1 - cosines.min():.0e}"


def main() -> None:
    """Print a row."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=800)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    source = Photographs(options.images, (0.5, 0.5), CLASSES)
    labels = np.array(source.labels)
    plan = Plan(source, labels, stratified_folds(labels, 5), options.epochs)
    embedder = ImageEmbedder(PACKAGED_MODEL)
    warm = Plan(Photographs(80, (0.5, 0.5), CLASSES), labels[:80], stratified_folds(labels[:80], 5), 1)
    ours(embedder, warm)
    network = embedder.backend._model
    obvious(network, warm)
    ways: dict[str, Callable[[], Found]] = {
        "obvious": partial(obvious, network, plan),
        "ours": partial(ours, embedder, plan),
    }
    print(
        compare(
            work=f"everything but the training's passes: {options.images} images of 0.5 megapixels, "
            f"{options.epochs} epochs",
            obvious_way="decoding once a metric and once an epoch, scikit-learn, FAISS, umap-learn",
            agree=agree,
            at_least=5,
            repeats=options.repeats,
            obvious_repeats=1,
            **ways,
        )
    )


if __name__ == "__main__":
    main()
