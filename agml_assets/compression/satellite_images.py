"""Satellite images in the layout of SSL4EO-S12-downstream: `<modality>/<part>/<id>.zarr.zip`, four seasons each.

Reading and the bands' statistics are here; what is made of the images is in `averaging` and `embed`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Float32

from agml_assets.errors import UserError

SEASONS = 4
_ENDING = ".zarr.zip"
_BANDS = "bands"  # the array in each archive: (1, seasons, bands, height, width)

_SAFE_CODECS = ("blosc", "bz2", "delta", "fixedscaleoffset", "gzip", "lz4", "lzma", "shuffle", "zlib", "zstd")
"""Codecs that only move numbers; among the others is one that unpickles what an archive holds."""

_SHIFT = 1000
"""Added to Sentinel-2 values, as in SSL4EO-S12 v1.1: ESA's products have had this offset since 25 January 2022."""


@dataclass(frozen=True)
class Modality:
    """What a folder of images holds, and the statistics of its bands in SSL4EO-S12 v1.1.

    Attributes:
        bands: Names of the bands in order.
        means: Of each band, after the shift.
        deviations: Standard deviation of each band.
        shifted: Whether the shift is added.
    """

    bands: tuple[str, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]
    shifted: bool


_L1C = ("B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B09", "B10", "B11", "B12")

# fmt: off
MODALITIES: Mapping[str, Modality] = MappingProxyType({
    "s2l1c": Modality(
        _L1C,
        (2607.345, 2393.068, 2320.225, 2373.963, 2562.536, 3110.071, 3392.832, 3321.154, 3583.77, 1838.712,
         1021.753, 3205.112, 2545.798),
        (786.523, 849.702, 875.318, 1143.578, 1126.248, 1161.98, 1273.505, 1246.79, 1342.755, 576.795, 45.626,
         1340.347, 1145.036),
        shifted=True,
    ),
    "s2l2a": Modality(
        tuple(band for band in _L1C if band != "B10"),
        (1793.243, 1924.863, 2184.553, 2340.936, 2671.402, 3240.082, 3468.412, 3563.244, 3627.704, 3711.071,
         3416.714, 2849.625),
        (1160.144, 1201.092, 1219.943, 1397.225, 1400.035, 1373.136, 1429.17, 1485.025, 1447.836, 1652.703,
         1471.002, 1365.307),
        shifted=True,
    ),
    "s1": Modality(("VV", "VH"), (-12.577, -20.265), (5.179, 5.872), shifted=False),
})
# fmt: on
"""Sentinel-2 top of atmosphere and surface reflectance (times 10,000), Sentinel-1 backscatter (dB)."""


@dataclass(frozen=True)
class SatelliteImages:
    """Locations of a folder, each with an archive in every modality asked for.

    Attributes:
        files: Archive of each location, by modality.
        ids: Names of the locations, sorted.
        seasons: Which of the four seasons are read, in this order.
        shift: Whether Sentinel-2 values get the offset of SSL4EO-S12 v1.1.
    """

    files: Mapping[str, Mapping[str, Path]]
    ids: tuple[str, ...]
    seasons: tuple[int, ...]
    shift: bool

    def read(self, location: str) -> dict[str, Float32[np.ndarray, "t c h w"]]:
        """Return the bands of a location by modality, in the units of `MODALITIES`.

        Raises:
            UserError: An archive cannot be read, or holds something else.
        """
        return {name: self._read_one(name, files[location]) for name, files in self.files.items()}

    def _read_one(self, name: str, file: Path) -> Float32[np.ndarray, "t c h w"]:
        array, attributes = _open_bands(file)
        expected = (1, SEASONS, len(MODALITIES[name].bands))
        if array.ndim != 5 or array.shape[:3] != expected:
            raise UserError(
                f"{file}: its array {_BANDS!r} has shape {array.shape}; modality {name} has (1, "
                f"{SEASONS} seasons, {expected[2]} bands, height, width)."
            )
        try:
            bands = np.asarray(array[0])[list(self.seasons)].astype(np.float32)
        except Exception as error:  # whatever zarr and its codecs raise at a damaged archive
            raise UserError(f"{file} cannot be read: {error}. Fetch it again.") from error
        bands = bands * np.float32(attributes.get("scale_factor", 1)) + np.float32(attributes.get("add_offset", 0))
        return bands + np.float32(_SHIFT) if self.shift and MODALITIES[name].shifted else bands


def find_satellite_images(
    root: Path, modalities: Sequence[str], seasons: Sequence[int] = range(SEASONS), *, shift: bool = True
) -> SatelliteImages:
    """Return the locations below a folder.

    Args:
        root: Holds a folder for each modality; its archives lie one folder deeper.
        modalities: Of `MODALITIES`, in the order in which they are read.
        seasons: Of 0 to 3, in the order in which they are read.
        shift: Add the offset of SSL4EO-S12 v1.1 to Sentinel-2 values, which the downstream data lack.

    Raises:
        UserError: A modality or season is unknown, there is no archive, or a location lacks one in a modality.
    """
    if not modalities or (unknown := [name for name in modalities if name not in MODALITIES]):
        named = f"no modality {', '.join(unknown)}" if modalities else "no modality to read"
        raise UserError(f"There is {named}: choose of {', '.join(MODALITIES)}.")
    if not seasons or sorted(set(seasons)) != sorted(seasons) or not set(seasons) <= set(range(SEASONS)):
        raise UserError(f"Seasons must be some of 0 to {SEASONS - 1}, each once, not {list(seasons)}.")
    files = {name: _archives(root / name) for name in modalities}
    every = sorted(set().union(*files.values()))
    for name, found in files.items():
        if missing := [location for location in every if location not in found]:
            raise UserError(
                f"{len(missing)} locations have no archive in {root / name}, among them {', '.join(missing[:5])}. "
                "Fetch them, or leave that modality out."
            )
    return SatelliteImages(files, tuple(every), tuple(seasons), shift)


def _archives(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for file in sorted(folder.glob(f"*/*{_ENDING}")):
        location = file.name.removesuffix(_ENDING)
        if location in found:
            raise UserError(f"Location {location!r} has two archives, {found[location]} and {file}. Remove one.")
        found[location] = file
    if not found:
        raise UserError(f"There is no archive {folder}/*/*{_ENDING}. Name the folder that holds {folder.name}.")
    return found


def _open_bands(file: Path) -> tuple[Any, Mapping[str, Any]]:
    """Open the array of an archive in Zarr's format 2 or 3; nothing in it is executed or unpickled."""
    try:
        import zarr
        from zarr.storage import ZipStore
    except ImportError:
        raise UserError(
            "Archives of satellite images need the package zarr: pip install 'agml-assets[satellite]'."
        ) from None
    try:
        array = zarr.open_group(ZipStore(file, mode="r"), mode="r")[_BANDS]
    except Exception as error:  # no archive, no group, no such array: zarr raises many things
        raise UserError(
            f"{file} holds no array {_BANDS!r} that zarr can read: {error}. Fetch it again."
        ) from error
    if not isinstance(array, zarr.Array) or array.dtype.kind not in "iuf":
        raise UserError(f"{file}: {_BANDS!r} is no array of numbers.")
    codecs = [type(codec).__module__.rpartition(".")[2] for codec in (*array.filters, *array.compressors)]
    if unsafe := [name for name in codecs if name not in _SAFE_CODECS]:
        raise UserError(
            f"{file}: {_BANDS!r} is stored with the codec {unsafe[0]}, which is not read here. Write it with one "
            f"of {', '.join(_SAFE_CODECS)}."
        )
    return array, dict(array.attrs)
