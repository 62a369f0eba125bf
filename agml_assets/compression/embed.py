"""From images to a file of embeddings: a folder of photographs or of satellite archives, by a registered model.

What a submission file must look like is `submissions`; the averaging baseline is `averaging`.
"""

import logging
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl
from jaxtyping import Float, Float32, UInt8
from PIL import Image

from agml_assets.compression.averaging import NEEDED, average_locations
from agml_assets.compression.satellite_images import MODALITIES, SatelliteImages, find_satellite_images
from agml_assets.dataset.artifacts import IMAGE_INDEX
from agml_assets.dataset.image_index import usable_images
from agml_assets.dataset.sources.folder import SUFFIXES
from agml_assets.embeddings.artifacts import DUPLICATE_GROUPS, EMBEDDINGS
from agml_assets.embeddings.encoder import FrozenEncoder
from agml_assets.embeddings.images import encode_opened
from agml_assets.errors import UserError
from agml_assets.locks import Unfinished
from agml_assets.workspace import DatasetWorkspace

logger = logging.getLogger(__name__)

AVERAGING = "averaging"
"""In place of a model: the averaging baseline."""

_COLOURS = ("B04", "B03", "B02")  # red, green, blue
_OFFSET, _BRIGHTEST = 1000, 3000  # reflectance 0 to 0.3, times 10,000: the usual stretch of true-colour images
_ENDINGS = (".csv", ".parquet")


def embed_photographs(
    root: Path, encoder: FrozenEncoder, max_pixels: int
) -> tuple[tuple[str, ...], Float32[np.ndarray, "n d"]]:
    """Return a vector of every image file below a folder; ids are paths inside it, with slashes.

    Raises:
        UserError: There is no image file, or one cannot be decoded.
    """
    files = sorted(
        path
        for path in root.rglob("*")
        if path.suffix.lower() in SUFFIXES and path.is_file() and not _is_hidden(path.relative_to(root))
    )
    if not files:
        raise UserError(f"There is no image file below {root}.")
    vectors = encode_opened(encoder, files.__getitem__, max_pixels)(range(len(files)))
    return tuple(file.relative_to(root).as_posix() for file in files), vectors.astype(np.float32)


def embed_satellite_images(
    root: Path, encoder: FrozenEncoder | None, modality: str = "s2l2a", seasons: Sequence[int] = range(4)
) -> tuple[tuple[str, ...], Float32[np.ndarray, "n d"]]:
    """Return a vector of every location below a folder in the layout of SSL4EO-S12-downstream.

    A model sees the location in true colour, once a season; its vectors are averaged over the seasons.

    Args:
        root: The folder.
        encoder: A model; None for the averaging baseline, which reads all three modalities.
        modality: Of Sentinel-2, for a model.
        seasons: Which of the four are read.
    """
    if encoder is None:
        images = find_satellite_images(root, NEEDED, seasons)
        vectors, unfit = average_locations(images)
        if unfit:
            logger.warning(
                "%s pixels of %s of %s locations are no finite numbers and count as their band's mean; the first "
                "of these are %s.",
                *(f"{number:,}" for number in (sum(unfit.values()), len(unfit), len(images.ids))),
                ", ".join(list(unfit)[:5]),
            )
        return images.ids, vectors
    if modality not in MODALITIES or "B04" not in MODALITIES[modality].bands:
        raise UserError(f"Modality {modality!r} has no true colours: choose s2l1c or s2l2a.")
    images = find_satellite_images(root, [modality], seasons)
    n = len(images.seasons)

    def open_season(place: int) -> bytes:
        return _as_png(true_colour(images, images.ids[place // n], modality)[place % n])

    largest = 10**8  # pixels; what is encoded here was made here
    vectors = encode_opened(encoder, open_season, largest)(range(n * len(images.ids)))
    return images.ids, vectors.reshape(len(images.ids), n, -1).mean(axis=1, dtype=np.float64).astype(np.float32)


def true_colour(images: SatelliteImages, location: str, modality: str) -> UInt8[np.ndarray, "t h w 3"]:
    """Return a location in true colour, season by season: reflectance 0 to 0.3 becomes 0 to 255."""
    bands = images.read(location)[modality]
    places = [MODALITIES[modality].bands.index(colour) for colour in _COLOURS]
    dark = _OFFSET if images.shift else 0
    share = (np.nan_to_num(bands[:, places], nan=dark) - dark) / _BRIGHTEST
    return np.rint(255 * np.clip(share, 0, 1)).astype(np.uint8).transpose(0, 2, 3, 1)


def dataset_embeddings(
    bench: DatasetWorkspace,
) -> tuple[tuple[str, ...], Float32[np.ndarray, "n d"], pl.DataFrame]:
    """Return the stored embeddings of a dataset: ids (`source_row`), vectors, and their labels.

    Labels are as a label file has them: `id`, `label` (name of the class) and `group`, so that copies of an image
    never stand on both sides of a split.
    """
    usable = usable_images(bench.read(IMAGE_INDEX))
    ids = usable["source_row"].cast(pl.String)
    labels = pl.DataFrame(
        {"id": ids, "label": usable["class_name"].cast(pl.String), "group": bench.read(DUPLICATE_GROUPS)["joined"]}
    )
    return tuple(ids), np.asarray(bench.read(EMBEDDINGS)), labels


def write_submission(file: Path, ids: Sequence[str], vectors: Float[np.ndarray, "n d"]) -> Path:
    """Write embeddings as a submission, CSV or Parquet by the file's ending, and return its path.

    Raises:
        UserError: The ending is another.
    """
    return write_table(file, submission_table(ids, vectors))


def submission_table(ids: Sequence[str], vectors: Float[np.ndarray, "n d"]) -> pl.DataFrame:
    """Return embeddings as a table: `id`, and a float32 column `0`, `1`, ... per dimension."""
    columns = [str(place) for place in range(vectors.shape[1])]
    return pl.DataFrame({"id": list(ids)}).hstack(pl.from_numpy(np.asarray(vectors, np.float32), schema=columns))


def require_table_name(file: Path) -> Path:
    """Return the name of a table to be written.

    Raises:
        UserError: It does not end as a CSV or a Parquet file.
    """
    if file.suffix.lower() not in _ENDINGS:
        raise UserError(f"{file}: name a file that ends with {' or '.join(_ENDINGS)}.")
    return file


def write_table(file: Path, frame: pl.DataFrame) -> Path:
    """Write a table as CSV or Parquet, by the file's ending: whole or not at all."""
    require_table_name(file)
    with Unfinished(file.parent, file.name) as stage:
        if file.suffix.lower() == ".csv":
            frame.write_csv(stage)
        else:
            frame.write_parquet(stage)
        stage.chmod(0o644)
        stage.replace(file)
    return file


def _as_png(pixels: UInt8[np.ndarray, "h w 3"]) -> bytes:
    stream = BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", compress_level=1)
    return stream.getvalue()


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
