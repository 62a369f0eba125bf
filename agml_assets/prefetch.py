"""Download what runs read, where there is network; say what is missing, where there is none.

Datasets and models are opened by the loaders that runs use: what they can read here, they can read there.
"""

import argparse
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image

from agml_assets.errors import UserError
from agml_assets.workspace import DatasetWorkspace, Workspace

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Piece:
    """A dataset or a model that runs read.

    Attributes:
        name: For people, such as `dataset 'beans'`.
        dataset: Key of the first dataset that needs it.
        open: Opens it with the loader of the runs, downloading what is not there.
    """

    name: str
    dataset: str
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

        embedder = ImageEmbedder.from_settings(settings)
        try:
            embedder.encode_prepared(np.stack([embedder.prepare_image(Image.new("RGB", (256, 256)))]))
        finally:
            embedder.close()

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
        description="Download the datasets and models of registered datasets, so that runs need no network.",
    )
    prefetch.add_argument("keys", nargs="*", metavar="KEY", help="registered keys")
    prefetch.add_argument("--all", action="store_true", help="all registered datasets")
    prefetch.add_argument("--check", action="store_true", help="download nothing; name what is missing")
    prefetch.add_argument("--config", metavar="FILE", help="settings, in place of $AGML_CONFIG")
    prefetch.set_defaults(call=lambda options: _prefetch(options, prefetch))


def _prefetch(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if bool(options.keys) == options.all:
        parser.error("say what to prefetch: KEY ..., or --all")
    # Read when the hub's library is first imported, which is below.
    os.environ["HF_HUB_OFFLINE"] = "1" if options.check else "0"
    from agml_assets.batch import choose_keys
    from agml_assets.todo import open_workspace

    workspace = open_workspace(config=options.config)
    keys = choose_keys(workspace.registry, options.keys)
    missing = 0
    for piece, reason in fetch(pieces_of(workspace, keys)):
        missing += 1
        logger.error("Missing: %s (for %s). %s", piece.name, piece.dataset, reason)
    if missing:
        raise UserError(f"{missing} of what {len(keys)} datasets read could not be had; each is named above.")
    logger.info("Everything that %d datasets read is here.", len(keys))
    return 0
