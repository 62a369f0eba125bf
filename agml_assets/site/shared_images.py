"""Images that occur in more than one dataset, by their decoded pixels.

A model trained on one dataset and tested on another has seen these. The hashes are made in `dataset`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXEL_HASHES, SPLITS
from agml_assets.dataset.image_index import usable_images
from agml_assets.workspace import DatasetWorkspace, Workspace

IMAGES_SCHEMA: dict[str, type[pl.DataType]] = {
    "blake3": pl.String,
    "dataset": pl.String,
    "source_row": pl.Int64,
    "class_name": pl.String,
    "split": pl.String,
}
PAIRS_SCHEMA: dict[str, type[pl.DataType]] = {
    "dataset": pl.String,
    "other": pl.String,
    "shared": pl.Int64,
    "dataset_images": pl.Int64,
    "other_images": pl.Int64,
}


@dataclass(frozen=True)
class SharedImages:
    """What datasets share.

    Attributes:
        images: One row for each image whose pixels occur in another dataset too: `blake3` of its pixels,
            `dataset` key, `source_row`, `class_name`, and `split` by the dataset's recipe, null where that is
            not there; by `blake3`, `dataset`, `source_row`.
        pairs: For each pair of datasets that share something, `dataset` before `other`: `shared`, different
            pictures in both; `dataset_images` and `other_images`, the images that show them.
        missing: Key and reason of each dataset that could not be compared.
    """

    images: pl.DataFrame
    pairs: pl.DataFrame
    missing: dict[str, str]


def find_shared_images(workspace: Workspace) -> SharedImages:
    """Compare the pixels of all registered datasets that are not retired, however many have been read.

    Two passes: of all datasets together memory holds 8 bytes a different picture, and then the shared images.
    """
    datasets = [workspace.dataset(key) for key in sorted(workspace.registry.keys())]
    lacking = {dataset.key: _lack(dataset) for dataset in datasets}
    read = [dataset for dataset in datasets if lacking[dataset.key] is None]
    candidates = _occurring_twice(_prefixes(dataset) for dataset in read)
    images = pl.concat(
        [pl.DataFrame(schema=IMAGES_SCHEMA), *(_images(dataset, candidates) for dataset in read)]
    ).filter(pl.col("dataset").n_unique().over("blake3") >= 2)
    return SharedImages(
        images=images.sort("blake3", "dataset", "source_row"),
        pairs=_count_pairs(images),
        missing={key: reason for key, reason in lacking.items() if reason is not None},
    )


def _lack(dataset: DatasetWorkspace) -> str | None:
    """Return why a dataset cannot be compared, None where it can."""
    index, hashes = (dataset.store.sidecar(dataset.key, one.file) for one in (IMAGE_INDEX, PIXEL_HASHES))
    if index is None or hashes is None:
        return "not read yet"
    if hashes.code_version != PIXEL_HASHES.code_version:
        return f"hashed by code version {hashes.code_version}, now {PIXEL_HASHES.code_version}"
    if index.source_digest != hashes.source_digest:
        return "the image index and the hashes are of different states of the source"
    return None


def _prefixes(dataset: DatasetWorkspace) -> pl.Series:
    """Return half of the hash of each different picture, as a number."""
    return _prefix(dataset.read(PIXEL_HASHES)["blake3"].unique())


def _prefix(hashes: pl.Series) -> pl.Series:
    return hashes.str.slice(0, 16).str.to_integer(base=16, dtype=pl.UInt64)


def _occurring_twice(prefixes: Iterator[pl.Series]) -> pl.Series:
    """Return the numbers that several datasets have, ascending."""
    together = pl.concat([pl.Series("prefix", [], dtype=pl.UInt64), *(one.alias("prefix") for one in prefixes)])
    return together.filter(together.is_duplicated()).unique().sort()


def _images(dataset: DatasetWorkspace, candidates: pl.Series) -> pl.DataFrame:
    """Return the images of a dataset whose pixels may occur in another one too."""
    hashes = dataset.read(PIXEL_HASHES).select("row", "blake3")
    hashes = hashes.filter(_prefix(hashes["blake3"]).is_in(candidates.implode()))
    index = usable_images(dataset.read(IMAGE_INDEX)).select("row", "source_row", "class_name")
    found = hashes.join(index, on="row", how="inner", validate="1:1")
    splits = dataset.store.sidecar(dataset.key, SPLITS.file)
    if splits and splits.inputs.get(IMAGE_INDEX.key) == dataset.sidecar(IMAGE_INDEX).digest:
        recipe = dataset.settings.split_recipe
        found = found.join(dataset.read(SPLITS).select("row", split=recipe), on="row", how="left")
    found = found.with_columns(dataset=pl.lit(dataset.key))
    missing: Sequence[str] = [name for name in IMAGES_SCHEMA if name not in found.columns]
    found = found.with_columns(pl.lit(None).alias(name) for name in missing)
    return found.select(pl.col(name).cast(kind) for name, kind in IMAGES_SCHEMA.items())


def _count_pairs(images: pl.DataFrame) -> pl.DataFrame:
    counts = images.group_by("blake3", "dataset").agg(images=pl.len().cast(pl.Int64))
    both = counts.join(counts.rename({"dataset": "other"}), on="blake3", suffix="_of_other")
    pairs = both.filter(pl.col("dataset") < pl.col("other")).group_by("dataset", "other")
    return (
        pairs.agg(
            shared=pl.len(), dataset_images=pl.col("images").sum(), other_images=pl.col("images_of_other").sum()
        )
        .select(pl.col(name).cast(kind) for name, kind in PAIRS_SCHEMA.items())
        .sort("dataset", "other")
    )
