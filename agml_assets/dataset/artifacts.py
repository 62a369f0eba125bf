"""The artifacts of this room: what a source becomes."""

from agml_assets.lineage import Artifact

IMAGE_INDEX = Artifact("dataset/image_index", ".parquet", settings=("max_image_pixels",), reads_source=True)
PIXEL_HASHES = Artifact("dataset/pixel_hashes", ".parquet", settings=("max_image_pixels",), reads_source=True)
PIXELS = Artifact("dataset/pixels", ".npy", settings=("max_image_pixels",), reads_source=True)
SPLITS = Artifact(
    "dataset/splits",
    ".parquet",
    inputs=("dataset/image_index",),
    settings=("split_seed", "train_ratio", "val_ratio"),
)

ARTIFACTS = (IMAGE_INDEX, PIXEL_HASHES, PIXELS, SPLITS)
