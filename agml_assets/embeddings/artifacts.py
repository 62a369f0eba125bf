"""The artifacts of this room: vectors and what lies near what."""

from agml_assets.lineage import Artifact

_MODEL_SETTINGS = ("embed_model", "embed_revision", "embed_precision")

EMBEDDINGS = Artifact(
    "embeddings/embeddings",
    ".npy",
    # A model with another resize rule than that of the pixels reads the images again.
    inputs=("dataset/image_index", "dataset/pixel_hashes", "dataset/pixels"),
    settings=_MODEL_SETTINGS,
)
LABELS = Artifact("embeddings/labels", ".npy", inputs=("dataset/image_index",))
NEIGHBORS = Artifact(
    "embeddings/neighbors",
    ".npz",
    inputs=("embeddings/embeddings",),
    settings=("near_dup_threshold", "faiss_ivf_threshold", "max_pairs"),
)
DUPLICATE_GROUPS = Artifact(
    "embeddings/duplicate_groups", ".parquet", inputs=("dataset/pixel_hashes", "embeddings/neighbors")
)
_UMAP_INPUTS = ("dataset/image_index", "dataset/splits", "embeddings/embeddings", "embeddings/neighbors")
UMAP_PROJECTION = Artifact("embeddings/umap_projection", ".json", inputs=_UMAP_INPUTS, settings=("split_recipe",))
UMAP_3D = Artifact("embeddings/umap_3d", ".json", inputs=_UMAP_INPUTS, settings=("split_recipe",))

ARTIFACTS = (EMBEDDINGS, LABELS, NEIGHBORS, DUPLICATE_GROUPS, UMAP_PROJECTION, UMAP_3D)
