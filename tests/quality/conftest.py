"""Frames in the shape of the stored artifacts, from a few labels and groups."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from agml_assets.settings import Settings


@pytest.fixture
def settings() -> Settings:
    return Settings()


@pytest.fixture
def index() -> Callable[..., pl.DataFrame]:
    """Build an image index: one usable image for each label; `columns` override or add."""

    def build(labels: Sequence[int], names: Sequence[str], **columns: object) -> pl.DataFrame:
        n = len(labels)
        frame = pl.DataFrame(
            {
                "source_row": pl.Series(range(n), dtype=pl.Int64),
                "row": pl.Series(range(n), dtype=pl.Int64),
                "label": pl.Series(list(labels), dtype=pl.Int64),
                "class_name": pl.Series([names[label] for label in labels], dtype=pl.Enum(list(names))),
                "width": pl.Series([64] * n, dtype=pl.Int32),
                "height": pl.Series([64] * n, dtype=pl.Int32),
                "mode": ["RGB"] * n,
                "format": ["PNG"] * n,
                "bytes": pl.Series([1000] * n, dtype=pl.Int64),
                "exif_orientation": pl.Series([1] * n, dtype=pl.Int32),
                "frames": pl.Series([1] * n, dtype=pl.Int32),
                "transparent": [False] * n,
            }
        )
        return frame.with_columns(**{name: pl.lit(pl.Series(values)) for name, values in columns.items()})

    return build


@pytest.fixture
def splits() -> Callable[..., pl.DataFrame]:
    """Build splits; `native` defaults to none."""

    def build(recipe: Sequence[str | None], native: Sequence[str | None] | None = None) -> pl.DataFrame:
        return pl.DataFrame(
            {
                "row": pl.Series(range(len(recipe)), dtype=pl.Int64),
                "hf": pl.Series(list(recipe), dtype=pl.String),
                "native": pl.Series(list(native or [None] * len(recipe)), dtype=pl.String),
            }
        )

    return build


@pytest.fixture
def neighbors() -> Callable[..., SimpleNamespace]:
    """What the near-duplicate metric reads of a neighbour search, from its list of pairs."""

    def build(pairs: Sequence[tuple[int, int]], threshold: float = 0.98, kind: str = "exact") -> SimpleNamespace:
        rows = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return SimpleNamespace(pair_rows=rows, n_pairs=len(rows), threshold=threshold, index_type=kind)

    return build
