"""Datasets of the AgML library, the iNatAg collections among them; the only place that imports `agml`."""

import os
from pathlib import Path

from agml_assets.dataset.sources.folder import FolderSource
from agml_assets.errors import UserError
from agml_assets.registry.datasets import DatasetEntry
from agml_assets.settings import expand_path


def open_agml(entry: DatasetEntry) -> FolderSource:
    """Return an AgML classification dataset, from a local copy or downloaded by `agml`.

    AgML keeps a folder per class; its own loader shuffles, so the folders are read here, in stable order.

    Args:
        entry: `path` (or `$AGML_DATA_DIR`) is the folder that holds the dataset's folder.
    """
    where = f"Dataset {entry.key!r}"
    root = entry.path or _data_dir()
    try:
        from agml.data import AgMLDataLoader
    except ImportError as error:
        raise UserError(
            f"{where}: the agml package cannot be imported ({error}). On a machine without libGL run "
            "`pip uninstall -y opencv-python` and `pip install --force-reinstall --no-deps "
            "opencv-python-headless`, or install libgl1."
        ) from None
    try:
        loader = AgMLDataLoader(entry.name, **({"dataset_path": str(root)} if root else {}))
    except OSError as error:
        raise UserError(
            f"{where}: AgML cannot download {entry.name!r} ({type(error).__name__}). Run this where there is "
            "network, or put a copy under `path` or $AGML_DATA_DIR: <folder>/"
            f"{entry.name}/<class>/<image>."
        ) from None
    except (ValueError, KeyError) as error:
        raise UserError(f"{where}: AgML does not load {entry.name!r}: {error}") from None
    if loader.task != "image_classification":
        raise UserError(f"{where}: {entry.name!r} is for {loader.task}, not for image classification.")
    resolved = {"source": "agml", "name": entry.name, "path": str(loader.dataset_root)}
    return FolderSource(entry, Path(loader.dataset_root), tuple(loader.classes), resolved)


def _data_dir() -> Path | None:
    named = os.environ.get("AGML_DATA_DIR")
    return expand_path(named) if named else None
