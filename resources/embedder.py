"""The embedder resource: one frozen model per run, loaded when the first batch needs it, freed at the end."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from agml_assets.embeddings.embedder import ImageEmbedder
from agml_assets.settings import Settings


class Embedders:
    """Keeps the one embedder in use; asking for another model frees the first."""

    def __init__(self) -> None:
        self._current: ImageEmbedder | None = None

    def get(self, settings: Settings) -> ImageEmbedder:
        """Return the embedder that the settings ask for."""
        wanted = ImageEmbedder.from_settings(settings)
        if self._current != wanted:
            self.close()
            self._current = wanted
        return self._current or wanted

    def close(self) -> None:
        """Free the model."""
        if self._current is not None:
            self._current.close()
            self._current = None


class EmbedderResource(dg.ConfigurableResource[Embedders]):
    """Gives assets the frozen model; nothing is loaded before an image has to be encoded."""

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Embedders]:
        """Free the model, the GPU's memory and its lock when the run ends."""
        embedders = Embedders()
        try:
            yield embedders
        finally:
            embedders.close()
