"""The run's embedder: one model at a time, loaded when needed, freed at the end."""

import dagster as dg
import numpy as np

from agml_assets.settings import Settings
from resources.embedder import EmbedderResource

PIXELS = np.zeros((2, 256, 256, 3), np.uint8)
PACKAGED = Settings(embed_model="efficientnet_lite0")


def test_a_run_loads_its_model_once_and_frees_it_at_the_end():
    with EmbedderResource().yield_for_execution(dg.build_init_resource_context()) as embedders:
        embedder = embedders.get(PACKAGED)
        assert embedder.device is None
        embedder.encode_pixels(PIXELS)
        embedders.get(PACKAGED).encode_pixels(PIXELS)
        assert (embedder.loads, embedder.device) == (1, "cpu")
    assert embedder.device is None


def test_another_model_frees_the_first():
    with EmbedderResource().yield_for_execution(dg.build_init_resource_context()) as embedders:
        first = embedders.get(PACKAGED)
        first.encode_pixels(PIXELS)
        other = embedders.get(PACKAGED.model_copy(update={"embed_precision": "bfloat16"}))
        assert other is not first
        assert first.device is None
