"""Whether a model of the hub lies in the local cache; asked of the hub's own library, without network."""

from pathlib import Path

# What `transformers` reads weights from, whole or as an index of parts.
_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


def is_cached(model: str, revision: str | None, cache: Path | None = None) -> bool:
    """Return whether configuration and weights of a model are in the cache.

    Args:
        model: `owner/name`.
        revision: Branch, tag or commit; None means the default branch.
        cache: Folder of the cache; None means the library's own.
    """
    from huggingface_hub import try_to_load_from_cache

    def has(file: str) -> bool:
        return isinstance(try_to_load_from_cache(model, file, cache_dir=cache, revision=revision), str)

    return has("config.json") and any(has(file) for file in _WEIGHTS)
