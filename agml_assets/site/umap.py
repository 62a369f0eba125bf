"""`<dataset>_umap_2d.json` and `_umap_3d.json` of the AgML site, under the names that its pages ask for.

The projections are made in `embeddings`; here they get the site's names and its compact text.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agml_assets.embeddings.artifacts import UMAP_3D, UMAP_PROJECTION
from agml_assets.lineage import Artifact
from agml_assets.registry.datasets import DatasetRegistry
from agml_assets.site.results import site_names
from agml_assets.store import ArtifactStore

_ENDINGS = {UMAP_PROJECTION: "_umap_2d.json", UMAP_3D: "_umap_3d.json"}


@dataclass(frozen=True)
class Projections:
    """The projections of a site.

    Attributes:
        files: For each file of the site, ascending by name, the dataset's key and the artifact that it shows.
        missing: File names of registered datasets, not retired, that have no projection yet.
    """

    files: dict[str, tuple[str, Artifact]]
    missing: tuple[str, ...]


def find_projections(registry: DatasetRegistry, store: ArtifactStore) -> Projections:
    """Return which files the site gets from the projections in the store."""
    names = site_names(registry)
    files: dict[str, tuple[str, Artifact]] = {}
    missing: list[str] = []
    for entry in registry.entries:
        for artifact, ending in _ENDINGS.items():
            name = names[entry.key] + ending
            if store.sidecar(entry.key, artifact.file) is not None:
                files[name] = (entry.key, artifact)
            elif not entry.retired:
                missing.append(name)
    return Projections(dict(sorted(files.items())), tuple(sorted(missing)))


def dump_points(records: Sequence[dict[str, Any]]) -> str:
    """Return the points as the site publishes them: one JSON list without white space.

    Args:
        records: `x`, `y` (and `z`), `label`, `split`, `index` of each image, see `umap_records`.

    Raises:
        ValueError: A coordinate is not finite.
    """
    return json.dumps(records, separators=(",", ":"), allow_nan=False)
