"""How many images have another that looks nearly the same to the embedding model, and where those lie.

The search for neighbours is the work of `embeddings`; this counts.
"""

from typing import TYPE_CHECKING, Any

import polars as pl

from agml_assets.dataset.image_index import usable_images
from agml_assets.quality.groups import (
    count_cross_split,
    label_conflicts,
    largest_group,
    members,
    native_split_leaks,
)
from agml_assets.quality.images import skipped, with_splits
from agml_assets.quality.intervals import census
from agml_assets.settings import Settings

if TYPE_CHECKING:
    from agml_assets.embeddings.neighbors import Neighbors


def near_duplicate(
    *,
    image_index: pl.DataFrame,
    splits: pl.DataFrame,
    neighbors: "Neighbors",
    duplicate_groups: pl.DataFrame,
    settings: Settings,
) -> dict[str, Any]:
    """Count images with another at or above the cosine threshold, over all pairs.

    Groups are the connected components of all such pairs (single linkage), so two images of one
    group may be less alike than the threshold. Labels play no part. Published counts came from a
    search that could miss pairs; these cannot, and may therefore be higher.

    Args:
        image_index: Images with `row`, `source_row`, `class_name`.
        splits: Split of each row; the column `settings.split_recipe` is used for cross-split counts.
        neighbors: The search's threshold, number of pairs and kind of index.
        duplicate_groups: `exact`, `near` and `joined` group of each row.
        settings: Names the split recipe and the embedding model.

    Returns:
        Published: `total_images`; `embed_model`; `threshold` (cosine, inclusive);
        `near_duplicate_count`, images in at least one pair, exact copies among them;
        `near_duplicate_rate` count / total, a fraction; `near_duplicate_groups`;
        `cross_split_near_duplicates`, all images of groups that touch at least two splits;
        `faiss_index_type`, `IndexFlatIP` for the exact search, else the approximate index used.

        Added: `exact_search`, whether every pair was compared (else counts are lower bounds);
        `n_pairs` found and `pairs_stored`; `largest_group`; `without_exact_copies`, the same counts
        (`near_duplicate_count`, `near_duplicate_rate` of the images kept, `near_duplicate_groups`)
        when one image of each group of exact copies is kept; `joined_groups`, groups of at least two
        when exact and near copies are taken together; `effective_images`, the number of joined groups,
        single images included; `native_split_leaks`, `label_conflicts`, as for exact copies;
        `intervals`, which name the figures as a census.

        Skipped where there is no image or the recipe puts none into a split.
    """
    images = with_splits(usable_images(image_index), splits, settings.split_recipe)
    if images["split"].count() == 0:
        return skipped(
            f"The split recipe {settings.split_recipe!r} puts no image into any split.",
            embed_model=settings.embed_model,
        )
    groups = duplicate_groups.select("row", "exact", "near", "joined")
    images = images.join(groups, on="row", how="left", validate="1:1", maintain_order="left")
    total = images.height

    near = members(images, "near")
    joined = members(images, "joined")
    kept = images.unique("exact", keep="first", maintain_order=True)
    near_of_kept = members(kept, "near")
    return {
        "total_images": total,
        "embed_model": settings.embed_model,
        "threshold": float(neighbors.threshold),
        "near_duplicate_count": near.height,
        "near_duplicate_rate": round(near.height / total, 4),
        "near_duplicate_groups": near["group"].n_unique(),
        "cross_split_near_duplicates": count_cross_split(near),
        "faiss_index_type": "IndexFlatIP" if neighbors.index_type == "exact" else str(neighbors.index_type),
        "exact_search": neighbors.index_type == "exact",
        "n_pairs": int(neighbors.n_pairs),
        "pairs_stored": len(neighbors.pair_rows),
        "largest_group": largest_group(near),
        "without_exact_copies": {
            "near_duplicate_count": near_of_kept.height,
            "near_duplicate_rate": round(near_of_kept.height / kept.height, 4),
            "near_duplicate_groups": near_of_kept["group"].n_unique(),
        },
        "joined_groups": joined["group"].n_unique(),
        "effective_images": images["joined"].n_unique(),
        "native_split_leaks": native_split_leaks(near, images["native"].count() > 0),
        "label_conflicts": label_conflicts(near),
        "intervals": census("near_duplicate_rate", "without_exact_copies.near_duplicate_rate", "effective_images"),
    }
