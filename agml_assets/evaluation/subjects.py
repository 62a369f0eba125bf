"""What a model is evaluated on: a registered dataset or a task, brought to one form.

Where images come from is here; encoding them is in `features`, fitting and scoring in `predictions`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from blake3 import blake3
from PIL import Image

from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXEL_HASHES, PIXELS, SPLITS
from agml_assets.dataset.image_index import declared_classes, usable_images
from agml_assets.dataset.sources import open_source
from agml_assets.embeddings.artifacts import DUPLICATE_GROUPS
from agml_assets.embeddings.cache import Encode
from agml_assets.embeddings.encoder import FrozenEncoder
from agml_assets.embeddings.images import (
    encode_from_pixels,
    encode_from_source,
    encode_opened,
    prepare_from_source,
    prepare_opened,
    side_by_side,
)
from agml_assets.evaluation.protocol import Protocol
from agml_assets.evaluation.tasks.base import TaskData
from agml_assets.evaluation.tasks.images import ImageOpener
from agml_assets.registry.tasks import TaskEntry
from agml_assets.store import file_digest
from agml_assets.training.artifacts import GROUPED_SPLITS
from agml_assets.workspace import DatasetWorkspace

PrepareImages = Callable[[Callable[[Image.Image], Any], Sequence[int]], Iterator[Any]]

LEAK_SAFE = "leak_safe"
PUBLISHED = "published"
"""Splits of a dataset: copies on one side only, or as published."""


@dataclass(frozen=True)
class Subject:
    """A dataset or a task, as models meet it.

    Attributes:
        key: Its partition, and its folder.
        name: What run records call it.
        config: Configuration of a hub dataset that has several.
        examples: One row per example: `example` (String, unique), `split` (`train`, `val`, `test`, or `all` where
            each example is predicted from the others), `label` (Int64, or a list of 0 and 1 where there are
            several outputs), `group` (Int64: examples of one group are copies, or belong together otherwise),
            `first_image` and `n_images` (Int64: its images among `digests`, one after the other).
        class_names: Name of each label.
        digests: Returns the content of every image, as digests; a task's images are read for it.
        encode_with: Takes an encoder; returns a function that encodes images, given by their places.
        prepare_images: Takes a function of a decoded RGB image, called in threads, and places in ascending order;
            yields what it makes of each.
        protocol: How a model is judged.
        inputs: Digests of what all this was read from.
        notes: Sentences for the run record.
        class_name_overrides: Names that prompts show for classes, by their declared names.
        prompts: In place of the model's; none, for the model's.
    """

    key: str
    name: str
    config: str | None
    examples: pl.DataFrame
    class_names: tuple[str, ...]
    digests: Callable[[], Sequence[str]]
    encode_with: Callable[[FrozenEncoder], Encode]
    prepare_images: PrepareImages
    protocol: Protocol
    inputs: dict[str, str]
    notes: tuple[str, ...] = ()
    class_name_overrides: Mapping[str, str] = field(default_factory=dict)
    prompts: tuple[str, ...] = ()

    def part(self, split: str) -> pl.DataFrame:
        """Return the examples of one split."""
        return self.examples.filter(pl.col("split") == split)


def dataset_subject(bench: DatasetWorkspace, protocol: Protocol, split: str) -> Subject:
    """Return a registered dataset whose artifacts are in the store.

    Args:
        bench: The dataset.
        protocol: How models are judged on it.
        split: `leak_safe`: grouped splits, no copies straddle; or `published`: the dataset's split recipe.

    Raises:
        UserError: An artifact is not there; says how to make it.
    """
    index, hashes = bench.read(IMAGE_INDEX), bench.read(PIXEL_HASHES)
    usable = usable_images(index)
    groups = bench.read(DUPLICATE_GROUPS)["joined"]
    if split == LEAK_SAFE:
        made_by, splits = GROUPED_SPLITS, bench.read(GROUPED_SPLITS)["split"]
    else:
        made_by, splits = SPLITS, bench.read(SPLITS)[bench.settings.split_recipe]
    read = (IMAGE_INDEX, PIXEL_HASHES, DUPLICATE_GROUPS, made_by)
    examples = pl.DataFrame(
        {
            "example": usable["source_row"].cast(pl.String),
            "split": splits,
            "label": usable["label"],
            "group": groups,
            "first_image": np.arange(usable.height),
            "n_images": np.ones(usable.height, np.int64),
        }
    ).filter(pl.col("split").is_not_null())
    return Subject(
        key=bench.key,
        name=bench.entry.name,
        config=bench.entry.hf_config_name,
        examples=examples,
        class_names=tuple(declared_classes(index)),
        digests=lambda: hashes["blake3"].to_list(),
        encode_with=lambda encoder: _encode_dataset(bench, encoder, index),
        prepare_images=lambda prepare, places: prepare_from_source(
            prepare, places, open_source(bench.entry), index, bench.settings.max_image_pixels
        ),
        protocol=protocol,
        inputs={artifact.key: bench.sidecar(artifact).digest for artifact in read},
        notes=("Splits never divide copies of an image.",) if split == LEAK_SAFE else (),
        class_name_overrides=bench.entry.class_name_overrides,
        prompts=bench.entry.prompts,
    )


def task_subject(entry: TaskEntry, data: TaskData, protocol: Protocol, max_pixels: int) -> Subject:
    """Return a task as its reader gives it.

    Args:
        entry: The task.
        data: Its examples.
        protocol: How models are judged on it.
        max_pixels: Limit of the decode policy.
    """
    frame = data.examples
    counts = frame["images"].list.len().cast(pl.Int64)
    references = frame["images"].explode().to_list()
    open_reference = ImageOpener(data.root)

    def open_image(place: int) -> bytes | Path:
        return open_reference(references[place])

    @cache
    def digests() -> Sequence[str]:
        return list(side_by_side(_content_digest, map(open_image, range(len(references)))))

    alone = pl.format("example {}", "example")  # an example without a group is one of its own
    extra = [name for name in ("subtask",) if name in frame.columns]
    examples = frame.select(
        "example",
        "split",
        pl.col("labels" if "labels" in frame.columns else "label").alias("label"),
        pl.coalesce(pl.format("group {}", "group"), alone).rank("dense").cast(pl.Int64).alias("group"),
        (counts.cum_sum() - counts).alias("first_image"),
        counts.alias("n_images"),
        *extra,
    )
    return Subject(
        key=entry.key,
        name=entry.display_name,
        config=None,
        examples=examples,
        class_names=data.class_names,
        digests=digests,
        encode_with=lambda encoder: encode_opened(encoder, open_image, max_pixels),
        prepare_images=lambda prepare, places: prepare_opened(prepare, places, open_image, max_pixels),
        protocol=replace(protocol, poisonous=data.poisonous, by_subtask="subtask" in frame.columns),
        inputs={
            "examples": _digest(frame.write_json(), *data.class_names),
            "images": _digest(*_states(data.root, references)),
        },
        notes=data.notes,
        class_name_overrides=entry.class_name_overrides,
        prompts=entry.prompts,
    )


def _encode_dataset(bench: DatasetWorkspace, encoder: FrozenEncoder, index: pl.DataFrame) -> Encode:
    if encoder.serves_from_pixels:
        return encode_from_pixels(encoder, bench.read(PIXELS))
    return encode_from_source(encoder, open_source(bench.entry), index, bench.settings.max_image_pixels)


def _states(root: Path, references: Sequence[str]) -> Iterator[str]:
    """Yield name, size and time of every file that holds images."""
    for name in dict.fromkeys(reference.partition("#")[0] for reference in references):
        state = (root / name).stat()
        yield f"{name} {state.st_size} {state.st_mtime_ns}"


def _content_digest(image: bytes | Path) -> str:
    return file_digest(image) if isinstance(image, Path) else blake3(image).hexdigest()


def _digest(*texts: str) -> str:
    return blake3("\n".join(texts).encode()).hexdigest()[:32]
