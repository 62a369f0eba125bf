"""Libraries that are not installed with the package, because they need torchvision."""

from importlib import import_module
from types import ModuleType
from typing import Any

from agml_assets.errors import UserError
from agml_assets.registry.models import ModelEntry


def import_extra(entry: ModelEntry, module: str, package: str) -> ModuleType:
    """Return a library of the extra `models`.

    Raises:
        UserError: It is not installed, or does not load beside the installed torch; says what to do.
    """
    try:
        return import_module(module)
    except (ImportError, RuntimeError, OSError) as error:  # the last two: torchvision of another build
        raise UserError(
            f"Model {entry.key!r} needs {package}, and that torchvision, of the same build as torch "
            f"({type(error).__name__}: {error}).\n"
            'Install both, `pip install "agml-assets[models]"`, with torch and torchvision from the same index of '
            "PyTorch; or choose a model whose provider is transformers or packaged."
        ) from None


def cannot_load(entry: ModelEntry, error: Exception) -> UserError:
    """Return the error that says which model could not be loaded, and why."""
    lines = str(error).strip().splitlines()
    return UserError(
        f"Model {entry.key!r} cannot be loaded: {lines[0] if lines else type(error).__name__}\n"
        f"Check `checkpoint` ({entry.checkpoint!r}) and `revision` of its entry in the model registry; without "
        "network, download it beforehand into $HF_HOME."
    )


def no_vector(entry: ModelEntry, there_are: str) -> UserError:
    """Return the error that says that the wanted vector cannot be made."""
    return UserError(
        f"Model {entry.key!r} gives no {entry.vector}: {there_are}. Choose another `vector` in its entry of the "
        "model registry."
    )


def hub_name(entry: ModelEntry) -> str:
    """Return the checkpoint with its revision on the hub, as open_clip and timm write it."""
    return f"{entry.checkpoint}@{entry.revision}" if entry.revision else entry.checkpoint


def identity_of(entry: ModelEntry, library: ModuleType, checkpoint: str) -> dict[str, Any]:
    """Return what vectors depend on: the library decides how images are prepared, so its version is among it."""
    return {
        "model": checkpoint,
        "revision": entry.revision,
        "vector": entry.vector,
        "preprocessing": f"{library.__name__} {getattr(library, '__version__', 'of unknown version')}",
    }
