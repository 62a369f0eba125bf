"""The artifacts of this room: what a source becomes."""

from agml_assets.dataset.decode import POLICY_VERSION
from agml_assets.lineage import Artifact


def _decoded(key: str, suffix: str, *settings: str) -> Artifact:
    """Return an artifact of the pass that decodes the source."""
    settings = ("max_image_pixels", *settings)
    return Artifact(key, suffix, settings=settings, code_version=POLICY_VERSION, reads_source=True)


# The last settings of index and splits change no value, but which of them are refused.
IMAGE_INDEX = _decoded("dataset/image_index", ".parquet", "max_unreadable_pct")
PIXEL_HASHES = _decoded("dataset/pixel_hashes", ".parquet")
PIXELS = _decoded("dataset/pixels", ".npy")
SPLITS = Artifact(
    "dataset/splits",
    ".parquet",
    inputs=("dataset/image_index",),
    settings=("split_seed", "train_ratio", "val_ratio", "split_recipe"),
)
IMAGE_STATISTICS = Artifact("dataset/image_statistics", ".parquet", inputs=("dataset/pixels",))

ARTIFACTS = (IMAGE_INDEX, PIXEL_HASHES, PIXELS, SPLITS, IMAGE_STATISTICS)
