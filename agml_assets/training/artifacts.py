"""The artifacts of this room: leak-safe splits, the reference training, and out-of-fold probabilities."""

from agml_assets.lineage import Artifact

_TRAINER = (
    "backbone",
    "cartography_epochs",
    "cartography_lr",
    "embed_batch_size",
    "train_image_size",
    "train_precision",
    "split_seed",
)
_IMAGES = ("dataset/image_index", "dataset/pixels", "dataset/splits")
_VECTORS = ("dataset/image_index", "embeddings/embeddings", "embeddings/labels")

GROUPED_SPLITS = Artifact(
    "training/grouped_splits",
    ".parquet",
    inputs=("dataset/image_index", "embeddings/duplicate_groups"),
    settings=("split_seed", "train_ratio", "val_ratio", "cv_folds"),
)
DYNAMICS = Artifact("training/dynamics", ".npz", inputs=_IMAGES, settings=(*_TRAINER, "split_recipe"))
TEST_PREDICTIONS = Artifact(
    "training/test_predictions", ".npz", inputs=_IMAGES, settings=(*_TRAINER, "split_recipe")
)
TEST_PREDICTIONS_GROUPED = Artifact(
    "training/test_predictions_grouped",
    ".npz",
    inputs=(
        *_IMAGES,
        "embeddings/duplicate_groups",
        "training/grouped_splits",
        "training/test_predictions",  # read again where leak_safe is "subset"
    ),
    settings=(*_TRAINER, "split_recipe", "leak_safe"),
)
OUT_OF_FOLD = Artifact("training/out_of_fold", ".npy", inputs=_VECTORS, settings=("cv_folds",))
OUT_OF_FOLD_GROUPED = Artifact(
    "training/out_of_fold_grouped", ".npy", inputs=(*_VECTORS, "training/grouped_splits")
)
NOISE_CALIBRATION = Artifact(
    "training/noise_calibration",
    ".json",
    inputs=(*_VECTORS, "embeddings/duplicate_groups", "training/grouped_splits"),
)

ARTIFACTS = (
    GROUPED_SPLITS,
    DYNAMICS,
    TEST_PREDICTIONS,
    TEST_PREDICTIONS_GROUPED,
    OUT_OF_FOLD,
    OUT_OF_FOLD_GROUPED,
    NOISE_CALIBRATION,
)
