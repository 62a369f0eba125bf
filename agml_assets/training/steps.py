"""The heavy steps of this room, wherever they run: the reference trainings and the out-of-fold regressions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64, Shaped, UInt8

from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXELS, SPLITS
from agml_assets.dataset.image_index import declared_classes, usable_images
from agml_assets.embeddings.artifacts import DUPLICATE_GROUPS, EMBEDDINGS, LABELS
from agml_assets.embeddings.embedder import PACKAGED_MODEL, local_model
from agml_assets.heavy import HeavyStep, Made, Work
from agml_assets.lineage import Artifact
from agml_assets.settings import Settings
from agml_assets.training.artifacts import (
    DYNAMICS,
    GROUPED_SPLITS,
    OUT_OF_FOLD,
    OUT_OF_FOLD_GROUPED,
    TEST_PREDICTIONS,
    TEST_PREDICTIONS_GROUPED,
)
from agml_assets.training.backbones import NAMED
from agml_assets.training.out_of_fold import out_of_fold, stratified_folds
from agml_assets.training.predictions import predictions_without_copies
from agml_assets.training.reference_trainer import (
    ReferenceTrainer,
    Training,
    dynamics_arrays,
    prediction_arrays,
)


def train_on_published_split(works: Mapping[Artifact, Work]) -> Iterator[Made]:
    """Train the reference model on the published split; a killed training goes on after its last epoch."""
    images, *_ = [_Images.of(work) for work in works.values()]
    training = images.train(next(iter(works.values())), images.published_split, "reference")
    for artifact in works:
        arrays = dynamics_arrays if artifact == DYNAMICS else prediction_arrays
        yield Made(artifact, arrays(training), _describe(training, images.labels), _facts(training))
    _forget(training)


def predict_without_leaks(works: Mapping[Artifact, Work]) -> Iterator[Made]:
    """Test where no copy of a test image was trained on: by a second training, or on what is left of the first."""
    work = works[TEST_PREDICTIONS_GROUPED]
    images = _Images.of(work)
    settings, published = work.dataset.settings, work.read(TEST_PREDICTIONS)
    joined = work.read(DUPLICATE_GROUPS).sort("row")["joined"].to_numpy()
    grouped = work.read(GROUPED_SPLITS).sort("row")["split"].to_numpy()
    if settings.leak_safe == "retrain":
        training = images.train(work, grouped, "reference_grouped")
        facts = _describe(training, images.labels)
        yield Made(TEST_PREDICTIONS_GROUPED, prediction_arrays(training), facts, _facts(training))
        _forget(training)
        return
    known = joined  # so that none is left where leak_safe is "off"
    if settings.leak_safe == "subset":
        known = joined[images.published_split == "train"]
    kept = predictions_without_copies(published, joined, known)
    facts = {"test_images_count": float(len(kept["rows"])), "leak_safe": settings.leak_safe}
    yield Made(TEST_PREDICTIONS_GROUPED, kept, facts)


def fit_published_folds(works: Mapping[Artifact, Work]) -> Iterator[Made]:
    """Fit one regression for each fold, on all other folds."""
    work = works[OUT_OF_FOLD]
    labels = work.read(LABELS)
    yield _fit(work, OUT_OF_FOLD, labels, stratified_folds(labels, work.dataset.settings.cv_folds))


def fit_leak_safe_folds(works: Mapping[Artifact, Work]) -> Iterator[Made]:
    """Fit one regression for each fold of whole groups, on all other folds."""
    work = works[OUT_OF_FOLD_GROUPED]
    labels = work.read(LABELS)
    yield _fit(work, OUT_OF_FOLD_GROUPED, labels, work.read(GROUPED_SPLITS).sort("row")["fold"].to_numpy())


def _backbone(settings: Settings) -> Sequence[tuple[str, str | None]]:
    name = settings.backbone
    if name in NAMED:
        return ((NAMED[name], None),)
    return () if name == PACKAGED_MODEL or local_model(name) else ((name, None),)


_IMAGES = (IMAGE_INDEX, PIXELS, SPLITS)
_VECTORS = (IMAGE_INDEX, EMBEDDINGS, LABELS)

TRAIN_REFERENCE = HeavyStep(
    "reference_training", (DYNAMICS, TEST_PREDICTIONS), _IMAGES, train_on_published_split, _backbone
)
TRAIN_LEAK_SAFE = HeavyStep(
    "leak_safe_training",
    (TEST_PREDICTIONS_GROUPED,),
    (*_IMAGES, DUPLICATE_GROUPS, GROUPED_SPLITS, TEST_PREDICTIONS),
    predict_without_leaks,
    _backbone,
)
FIT_FOLDS = HeavyStep("out_of_fold", (OUT_OF_FOLD,), _VECTORS, fit_published_folds)
FIT_FOLDS_GROUPED = HeavyStep(
    "out_of_fold_grouped", (OUT_OF_FOLD_GROUPED,), (*_VECTORS, GROUPED_SPLITS), fit_leak_safe_folds
)
STEPS = (TRAIN_REFERENCE, TRAIN_LEAK_SAFE, FIT_FOLDS, FIT_FOLDS_GROUPED)


@dataclass(frozen=True)
class _Images:
    """What a training of the reference model reads."""

    pixels: UInt8[np.ndarray, "n 256 256 3"]
    labels: Int64[np.ndarray, " n"]
    n_classes: int
    published_split: Shaped[np.ndarray, " n"]
    digest: str

    @classmethod
    def of(cls, work: Work) -> "_Images":
        index = work.read(IMAGE_INDEX)
        labels = usable_images(index)["label"].to_numpy().astype(np.int64)
        return cls(
            work.read(PIXELS),
            labels,
            len(declared_classes(index)),
            work.read(SPLITS).sort("row")[work.dataset.settings.split_recipe].to_numpy(),
            work.dataset.sidecar(PIXELS).digest,
        )

    def train(self, work: Work, split: Shaped[np.ndarray, " n"], name: str) -> Training:
        """Train on the split's train rows and predict its test rows."""
        return ReferenceTrainer.from_settings(work.dataset.settings).train(
            self.pixels,
            np.flatnonzero(split == "train"),
            self.labels,
            self.n_classes,
            work.dataset.work_folder(name),
            np.flatnonzero(split == "test"),
            work.progress("training images seen"),
            pixels_digest=self.digest,
        )


def _fit(work: Work, artifact: Artifact, labels: Int64[np.ndarray, " n"], folds: Int64[np.ndarray, " n"]) -> Made:
    n_classes = len(declared_classes(work.read(IMAGE_INDEX)))
    progress = work.progress("regressions fitted")
    probabilities = out_of_fold(work.read(EMBEDDINGS), labels, folds, n_classes, progress)
    correct = probabilities.argmax(axis=1) == labels
    facts = {"accuracy_ratio": float(correct.mean()), "folds_count": float(folds.max() + 1)}
    return Made(artifact, probabilities, facts)


def _describe(training: Training, labels: Int64[np.ndarray, " n"]) -> dict[str, Any]:
    counts = {
        "trained_images_count": float(len(training.rows)),
        "test_images_count": float(len(training.test_rows)),
        "epochs_count": float(training.true_train.shape[1]),
        "resumed_epochs_count": float(training.resumed_epochs),
    }
    if not len(training.test_rows):
        return counts
    correct = training.probabilities.argmax(axis=1) == labels[training.test_rows]
    return {**counts, "test_accuracy_ratio": float(correct.mean())}


def _facts(training: Training) -> dict[str, Any]:
    return {"trainer": training.identity, "images_at_once": training.images_at_once}


def _forget(training: Training) -> None:
    """Remove the checkpoint, now that its results are stored."""
    if training.checkpoint is not None:
        training.checkpoint.unlink(missing_ok=True)
