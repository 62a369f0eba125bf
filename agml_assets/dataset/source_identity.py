"""What tells, before anything is read, whether a source is still the one that artifacts were made from."""

import os
from pathlib import Path

from blake3 import blake3

from agml_assets.dataset.sources.folder import list_fingerprint
from agml_assets.registry.datasets import DatasetEntry
from agml_assets.settings import expand_path


def source_digest(entry: DatasetEntry) -> str:
    """Return the identity of a source: what the registry says, and the files' names, sizes and times.

    Data on a hub has the identity of its registry entry; pin `revision` to notice that it moved.
    """
    if entry.source == "sample":
        from agml_assets.dataset.sources.sample import sample_fingerprint

        content = sample_fingerprint()
    else:
        path = entry.path
        if path is None and entry.source == "agml" and os.environ.get("AGML_DATA_DIR"):
            path = expand_path(os.environ["AGML_DATA_DIR"])
        if path is not None and entry.source == "agml":
            path = Path(path, entry.name)
        content = list_fingerprint(path) if path is not None and path.exists() else ""
    return blake3(f"{entry.source_digest()}\n{content}".encode()).hexdigest()[:32]
