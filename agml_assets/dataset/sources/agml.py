"""Datasets of the AgML library, the iNatAg collections among them; the only place that imports `agml`."""

import os
from pathlib import Path
from typing import Any

from agml_assets.dataset.sources.folder import FolderSource
from agml_assets.errors import UserError, did_you_mean
from agml_assets.registry.datasets import DatasetEntry
from agml_assets.settings import expand_path


def open_agml(entry: DatasetEntry) -> FolderSource:
    """Return an AgML classification dataset, from a local copy or downloaded by `agml`.

    AgML keeps a folder per class; its own loader shuffles without a seed, so the folders are read here, in
    stable order, and files are decoded by this project's policy.

    Args:
        entry: `path` (or `$AGML_DATA_DIR`) is the folder that holds the dataset's folder, or is to; else AgML's
            own data folder.

    Raises:
        UserError: There is no such classification dataset, no copy and no network, or `agml` does not work.
    """
    where = f"Dataset {entry.key!r}"
    known, loader_class = _import_agml(where)
    if entry.name not in known:
        raise UserError(
            f"{where}: AgML has no dataset {entry.name!r}.{did_you_mean(entry.name, known)} A folder per class of "
            "your own is read with `source: folder`."
        )
    task = known[entry.name]["ml_task"]
    if task != "image_classification":
        raise UserError(f"{where}: {entry.name!r} is for {task}, not for image classification.")
    root = entry.path or _data_dir()
    try:
        loader = loader_class(entry.name, **({"dataset_path": str(root)} if root else {}))
    except OSError as error:
        raise UserError(
            f"{where}: there is no copy of {entry.name!r} under {root or 'the data folder of agml'}, and AgML "
            f"cannot download it ({type(error).__name__}). Run this where there is network, or put a copy under "
            f"`path` or $AGML_DATA_DIR: <folder>/{entry.name}/<class>/<image>."
        ) from None
    except KeyError as error:
        raise UserError(
            f"{where}: the copy of {entry.name!r} under {root or 'the data folder of agml'} holds a folder "
            f"{error.args[0]!r}, which is none of its classes. Remove it."
        ) from None
    resolved = {
        "source": "agml",
        "name": entry.name,
        "path": str(loader.dataset_root),
        "config": None,
        "revision": None,
        "revision_reason": "AgML does not version its datasets",
    }
    return FolderSource(entry, Path(loader.dataset_root), tuple(loader.classes), resolved)


def _import_agml(where: str) -> tuple[dict[str, Any], Any]:
    """Return what AgML knows of each public dataset, and its loader."""
    try:
        from agml.data import AgMLDataLoader
        from agml.utils.data import load_public_sources
    except ImportError as error:
        raise UserError(
            f"{where}: the agml package cannot be imported ({error}). On a machine without libGL run "
            "`pip uninstall -y opencv-python` and `pip install --force-reinstall --no-deps "
            "opencv-python-headless`, or install libgl1."
        ) from None
    except OSError as error:
        raise UserError(
            f"{where}: agml writes its configuration to ~/.agml when it is imported, and cannot ({error}). Let "
            "HOME name a folder that can be written to."
        ) from None
    return load_public_sources(), AgMLDataLoader


def _data_dir() -> Path | None:
    named = os.environ.get("AGML_DATA_DIR")
    return expand_path(named) if named else None
