"""Assets for leak-safe splits, the reference training and out-of-fold probabilities. Thin: load, call, record."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import dagster as dg
import numpy as np
from jaxtyping import Int64, Shaped, UInt8

from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXELS, SPLITS
from agml_assets.dataset.image_index import declared_classes, usable_images
from agml_assets.embeddings.artifacts import DUPLICATE_GROUPS, EMBEDDINGS, LABELS
from agml_assets.recording import Step, asset_key, asset_spec, dataset_asset, step, table
from agml_assets.training.artifacts import (
    DYNAMICS,
    GROUPED_SPLITS,
    NOISE_CALIBRATION,
    OUT_OF_FOLD,
    OUT_OF_FOLD_GROUPED,
    TEST_PREDICTIONS,
    TEST_PREDICTIONS_GROUPED,
)
from agml_assets.training.checks import copies_check, copies_spec, enough_check, enough_spec
from agml_assets.training.grouped_splits import grouped_splits
from agml_assets.training.noise_calibration import noise_calibration
from agml_assets.training.out_of_fold import out_of_fold, stratified_folds
from agml_assets.training.predictions import predictions_without_copies
from agml_assets.training.reference_trainer import (
    ReferenceTrainer,
    Training,
    dynamics_arrays,
    prediction_arrays,
)
from agml_assets.workspace import Workspace


def build_assets(datasets: dg.PartitionsDefinition) -> Sequence[dg.AssetsDefinition]:
    """Return the assets of this room for the given dataset partitions."""

    @dataset_asset(
        GROUPED_SPLITS,
        "A split and folds that no group of copies straddles; what could not be drawn, and why.",
        datasets,
        kind="parquet",
        checks=[copies_spec(datasets), enough_spec(datasets)],
    )
    def leak_safe_splits(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.MaterializeResult:
        """Draw train, validation, test and folds by whole groups of copies."""
        with step(context, workspace, GROUPED_SPLITS) as work:
            index, groups = work.read(IMAGE_INDEX), work.read(DUPLICATE_GROUPS)
            labels = usable_images(index)["label"].to_numpy()
            joined = groups.sort("row")["joined"].to_numpy()
            frame = grouped_splits(labels, joined, len(declared_classes(index)), work.dataset.settings)
            work.checks += [copies_check(frame, joined), enough_check(frame)]
            reasons = frame["reason"].drop_nulls().value_counts(sort=True)
            return work.done(
                frame,
                {
                    **{
                        f"{part}_count": float((frame["split"] == part).sum()) for part in ("train", "val", "test")
                    },
                    "sent_to_train_count": float(frame["reason"].count()),
                    "sent_to_train": table(("reason", "images"), reasons.iter_rows()),
                },
            )

    @dg.multi_asset(
        name="train_reference",
        can_subset=True,
        specs=[
            asset_spec(
                DYNAMICS,
                "Probabilities of every training image in every epoch of the reference model. Heavy.",
                datasets,
                kind="pytorch",
                skippable=True,
            ),
            asset_spec(
                TEST_PREDICTIONS,
                "Probabilities of the published test split by the trained reference model.",
                datasets,
                kind="pytorch",
                skippable=True,
            ),
        ],
    )
    def train_reference(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> Iterator[dg.MaterializeResult]:
        """Train the reference model on the published split; a killed training goes on after its last epoch."""
        with ExitStack() as stack:
            steps = {
                artifact: stack.enter_context(step(context, workspace, artifact))
                for artifact in (DYNAMICS, TEST_PREDICTIONS)
                if asset_key(artifact) in context.selected_asset_keys
            }
            images, *_ = [_Images.of(work) for work in steps.values()]
            training = images.train(next(iter(steps.values())), images.published_split, "reference")
            for artifact, work in steps.items():
                arrays = dynamics_arrays if artifact == DYNAMICS else prediction_arrays
                yield work.done(arrays(training), _describe(training, images.labels), info=_facts(training))
            _forget(training)

    @dataset_asset(
        TEST_PREDICTIONS_GROUPED,
        "Probabilities of leak-safe test images: by a model trained on the grouped split (leak_safe: retrain), or "
        "of the published test images without a copy in training (subset). Heavy where it trains.",
        datasets,
        kind="pytorch",
    )
    def leak_safe_predictions(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.MaterializeResult:
        """Test where no copy of a test image was trained on."""
        with step(context, workspace, TEST_PREDICTIONS_GROUPED) as work:
            images = _Images.of(work)
            settings, published = work.dataset.settings, work.read(TEST_PREDICTIONS)
            joined = work.read(DUPLICATE_GROUPS).sort("row")["joined"].to_numpy()
            grouped = work.read(GROUPED_SPLITS).sort("row")["split"].to_numpy()
            if settings.leak_safe == "retrain":
                training = images.train(work, grouped, "reference_grouped")
                result = work.done(
                    prediction_arrays(training), _describe(training, images.labels), info=_facts(training)
                )
                _forget(training)
                return result
            known = joined  # so that none is left where leak_safe is "off"
            if settings.leak_safe == "subset":
                known = joined[images.published_split == "train"]
            kept = predictions_without_copies(published, joined, known)
            return work.done(
                kept, {"test_images_count": float(len(kept["rows"])), "leak_safe": settings.leak_safe}
            )

    @dataset_asset(
        OUT_OF_FOLD,
        "Class probabilities of every image by a regression on the embeddings of the other folds.",
        datasets,
        kind="numpy",
    )
    def published_folds(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.MaterializeResult:
        """Fit one regression for each fold, on all other folds."""
        with step(context, workspace, OUT_OF_FOLD) as work:
            labels = work.read(LABELS)
            return _fit_folds(work, labels, stratified_folds(labels, work.dataset.settings.cv_folds))

    @dataset_asset(
        OUT_OF_FOLD_GROUPED,
        "Class probabilities of every image by a regression on folds that hold no copy of it.",
        datasets,
        kind="numpy",
    )
    def leak_safe_folds(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.MaterializeResult:
        """Fit one regression for each fold of whole groups, on all other folds."""
        with step(context, workspace, OUT_OF_FOLD_GROUPED) as work:
            return _fit_folds(work, work.read(LABELS), work.read(GROUPED_SPLITS).sort("row")["fold"].to_numpy())

    @dataset_asset(
        NOISE_CALIBRATION,
        "How many injected label flips are flagged, and how many untouched images: what a flagged share means.",
        datasets,
        kind="json",
    )
    def calibration(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.MaterializeResult:
        """Flip labels, by whole groups, and count what is flagged."""
        with step(context, workspace, NOISE_CALIBRATION) as work:
            value = noise_calibration(
                work.read(EMBEDDINGS),
                work.read(LABELS),
                work.read(DUPLICATE_GROUPS).sort("row")["joined"].to_numpy(),
                work.read(GROUPED_SPLITS).sort("row")["fold"].to_numpy(),
                len(declared_classes(work.read(IMAGE_INDEX))),
                progress=work.progress("regressions of the calibration fitted"),
            )
            return work.done(value, {"not_computable": value["reason"]} if value.get("skipped") else {})

    return [
        leak_safe_splits,
        train_reference,
        leak_safe_predictions,
        published_folds,
        leak_safe_folds,
        calibration,
    ]


@dataclass(frozen=True)
class _Images:
    """What a training of the reference model reads."""

    pixels: UInt8[np.ndarray, "n 256 256 3"]
    labels: Int64[np.ndarray, " n"]
    n_classes: int
    published_split: Shaped[np.ndarray, " n"]
    digest: str

    @classmethod
    def of(cls, work: Step) -> "_Images":
        index = work.read(IMAGE_INDEX)
        labels = usable_images(index)["label"].to_numpy().astype(np.int64)
        return cls(
            work.read(PIXELS),
            labels,
            len(declared_classes(index)),
            work.read(SPLITS).sort("row")[work.dataset.settings.split_recipe].to_numpy(),
            work.dataset.sidecar(PIXELS).digest,
        )

    def train(self, work: Step, split: Shaped[np.ndarray, " n"], name: str) -> Training:
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


def _fit_folds(
    work: Step, labels: Int64[np.ndarray, " n"], folds: Int64[np.ndarray, " n"]
) -> dg.MaterializeResult:
    n_classes = len(declared_classes(work.read(IMAGE_INDEX)))
    progress = work.progress("regressions fitted")
    probabilities = out_of_fold(work.read(EMBEDDINGS), labels, folds, n_classes, progress)
    correct = probabilities.argmax(axis=1) == labels
    return work.done(
        probabilities, {"accuracy_ratio": float(correct.mean()), "folds_count": float(folds.max() + 1)}
    )


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
