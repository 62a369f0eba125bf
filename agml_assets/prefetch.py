"""Download what runs read, where there is network; say what is missing, where there is none.

Datasets and models are opened by the loaders that runs use: what they can read here, they can read there.
"""

import argparse
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from agml_assets.errors import UserError
from agml_assets.registry.models import ModelEntry, ModelRegistry, load_models
from agml_assets.workspace import DatasetWorkspace, Workspace

if TYPE_CHECKING:
    from agml_assets.embeddings.encoder import FrozenEncoder

logger = logging.getLogger(__name__)

_EVALUATION = "evaluation"


@dataclass(frozen=True)
class Piece:
    """A dataset or a model that runs read.

    Attributes:
        name: For people, such as `dataset 'beans'`.
        reader: What first needs it: a dataset's key, or evaluation.
        open: Opens it with the loader of the runs, downloading what is not there.
    """

    name: str
    reader: str
    open: Callable[[], object]


def pieces_of(workspace: Workspace, keys: list[str]) -> Iterator[Piece]:
    """Yield every dataset and, once each, every model that the phases of these datasets read."""
    seen: set[str] = set()
    for key in keys:
        try:
            bench = workspace.dataset(key)
        except UserError as error:
            yield Piece(f"dataset {key!r}", key, _raising(error))
            continue
        for piece in _pieces_of_one(bench):
            if piece.name not in seen:
                seen.add(piece.name)
                yield piece


def pieces_of_models(registry: ModelRegistry, keys: Sequence[str]) -> Iterator[Piece]:
    """Yield what an evaluation reads of each model: its image half and, of those that have one, its text half.

    Raises:
        UserError: Names every key that is not registered.
    """
    entries, problems = [], []
    for key in dict.fromkeys(keys):
        try:
            entries.append(registry.get(key))
        except UserError as error:
            problems.append(error.message)
    if problems:
        raise UserError("\n".join(problems))
    for entry in entries:
        yield from _pieces_of_model(entry)


def _pieces_of_model(entry: ModelEntry) -> Iterator[Piece]:
    def open_images() -> None:
        from agml_assets.evaluation.backbones import BackboneEncoder

        _encode_one(BackboneEncoder(entry))

    def open_text() -> object:
        from agml_assets.evaluation.backbones.text_towers import TextTower

        return TextTower(entry).encode(["a photo."])

    revision = f" at {entry.revision}" if entry.revision else ""
    name = f"{entry.key!r} ({entry.checkpoint}{revision})"
    yield Piece(f"model {name}", _EVALUATION, open_images)
    if entry.zero_shot and entry.provider == "transformers" and entry.vector == "features":  # what zero-shot takes
        yield Piece(f"text half of model {name}", _EVALUATION, open_text)


def _encode_one(encoder: "FrozenEncoder") -> None:
    """Load a model as runs do: its weights, and what prepares images."""
    try:
        encoder.encode_prepared(np.stack([encoder.prepare_image(Image.new("RGB", (256, 256)))]))
    finally:
        encoder.close()


def fetch(pieces: Iterator[Piece]) -> Iterator[tuple[Piece, str]]:
    """Open every piece; yield each that cannot be had, and why."""
    for piece in pieces:
        try:
            piece.open()
        except Exception as error:  # the next piece may well be had
            yield piece, error.message if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        else:
            logger.info("%s is here.", piece.name)


def _pieces_of_one(bench: DatasetWorkspace) -> Iterator[Piece]:
    def open_data() -> object:
        from agml_assets.dataset.sources import open_source

        return open_source(bench.entry).info()

    def open_embedder() -> None:
        from agml_assets.embeddings.embedder import ImageEmbedder

        _encode_one(ImageEmbedder.from_settings(settings))

    def open_reference() -> object:
        from agml_assets.training.backbones import open_backbone

        return open_backbone(settings.backbone).load()

    settings = bench.settings
    yield Piece(f"dataset {bench.key!r}", bench.key, open_data)
    if {2, 3} & set(bench.entry.phases):
        revision = f" at {settings.embed_revision}" if settings.embed_revision else ""
        yield Piece(f"embedding model {settings.embed_model!r}{revision}", bench.key, open_embedder)
    if 3 in bench.entry.phases:
        yield Piece(f"backbone {settings.backbone!r}", bench.key, open_reference)


def _raising(error: UserError) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the `prefetch` command."""
    prefetch = commands.add_parser(
        "prefetch",
        help="download datasets and models, so that runs need no network",
        description="Download registered datasets with the models that their runs read, and models to be "
        "evaluated, so that runs need no network.",
    )
    prefetch.add_argument("keys", nargs="*", metavar="KEY", help="registered keys")
    prefetch.add_argument("--all", action="store_true", help="all registered datasets")
    prefetch.add_argument(
        "--model",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY",
        help="registered models, for evaluate; with their text half where they have one",
    )
    prefetch.add_argument("--check", action="store_true", help="download nothing; name what is missing")
    prefetch.add_argument("--config", metavar="FILE", help="settings, in place of $AGML_CONFIG")
    prefetch.set_defaults(call=lambda options: _prefetch(options, prefetch))


def _prefetch(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if (options.keys and options.all) or not (options.keys or options.all or options.model):
        parser.error("say what to prefetch: KEY ... or --all, --model KEY ...")
    # Read when the hub's library is first imported, which is below.
    os.environ["HF_HUB_OFFLINE"] = "1" if options.check else "0"
    from agml_assets.batch import choose_keys
    from agml_assets.todo import open_workspace

    pieces: list[Iterator[Piece]] = []
    of = []
    if options.keys or options.all:
        workspace = open_workspace(config=options.config)
        keys = choose_keys(workspace.registry, options.keys)
        pieces.append(pieces_of(workspace, keys))
        of.append(f"{len(keys)} datasets")
    if options.model:
        models = list(
            pieces_of_models(load_models(), options.model)
        )  # a wrong key is told before anything is read
        pieces.append(iter(models))
        of.append(f"{len(set(options.model))} models")
    missing = 0
    for piece, reason in fetch(chain.from_iterable(pieces)):
        missing += 1
        logger.error("Missing: %s (for %s). %s", piece.name, piece.reader, reason)
    read = " and ".join(of)
    if missing:
        raise UserError(f"{missing} of what {read} read could not be had; each is named above.")
    logger.info("Everything that %s read is here.", read)
    return 0
