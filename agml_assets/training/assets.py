"""Assets for leak-safe splits, the reference training and out-of-fold probabilities. Thin: load, call, record."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import dagster as dg

from agml_assets.dataset.artifacts import IMAGE_INDEX
from agml_assets.dataset.image_index import declared_classes, usable_images
from agml_assets.embeddings.artifacts import DUPLICATE_GROUPS, EMBEDDINGS, LABELS
from agml_assets.recording import asset_key, asset_spec, dataset_asset, step, table
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
from agml_assets.training.steps import FIT_FOLDS, FIT_FOLDS_GROUPED, TRAIN_LEAK_SAFE, TRAIN_REFERENCE
from agml_assets.workspace import Workspace
from resources.compute import Compute


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
        context: dg.AssetExecutionContext,
        workspace: dg.ResourceParam[Workspace],
        compute: dg.ResourceParam[Compute],
    ) -> Iterator[dg.MaterializeResult]:
        """Train the reference model on the published split, where the run's heavy steps are computed."""
        with ExitStack() as stack:
            steps = {
                artifact: stack.enter_context(step(context, workspace, artifact))
                for artifact in (DYNAMICS, TEST_PREDICTIONS)
                if asset_key(artifact) in context.selected_asset_keys
            }
            for made in compute.make(context, TRAIN_REFERENCE, steps):
                yield steps[made.artifact].record(made)

    @dataset_asset(
        TEST_PREDICTIONS_GROUPED,
        "Probabilities of leak-safe test images: by a model trained on the grouped split (leak_safe: retrain), or "
        "of the published test images without a copy in training (subset). Heavy where it trains.",
        datasets,
        kind="pytorch",
    )
    def leak_safe_predictions(
        context: dg.AssetExecutionContext,
        workspace: dg.ResourceParam[Workspace],
        compute: dg.ResourceParam[Compute],
    ) -> dg.MaterializeResult:
        """Test where no copy of a test image was trained on."""
        with step(context, workspace, TEST_PREDICTIONS_GROUPED) as work:
            trains = work.dataset.settings.leak_safe == "retrain"
            return compute.record_only(context, TRAIN_LEAK_SAFE, work, heavy=trains)

    @dataset_asset(
        OUT_OF_FOLD,
        "Class probabilities of every image by a regression on the embeddings of the other folds.",
        datasets,
        kind="numpy",
    )
    def published_folds(
        context: dg.AssetExecutionContext,
        workspace: dg.ResourceParam[Workspace],
        compute: dg.ResourceParam[Compute],
    ) -> dg.MaterializeResult:
        """Fit one regression for each fold, on all other folds."""
        with step(context, workspace, OUT_OF_FOLD) as work:
            return compute.record_only(context, FIT_FOLDS, work)

    @dataset_asset(
        OUT_OF_FOLD_GROUPED,
        "Class probabilities of every image by a regression on folds that hold no copy of it.",
        datasets,
        kind="numpy",
    )
    def leak_safe_folds(
        context: dg.AssetExecutionContext,
        workspace: dg.ResourceParam[Workspace],
        compute: dg.ResourceParam[Compute],
    ) -> dg.MaterializeResult:
        """Fit one regression for each fold of whole groups, on all other folds."""
        with step(context, workspace, OUT_OF_FOLD_GROUPED) as work:
            return compute.record_only(context, FIT_FOLDS_GROUPED, work)

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
