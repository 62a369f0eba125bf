"""One dataset at work: its registry entry, its settings and its stored artifacts.

The plain object that assets, jobs and the command line share. What an artifact contains is its room's
business; Dagster is nobody's here.
"""

import logging
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agml_assets.errors import UserError
from agml_assets.lineage import Artifact
from agml_assets.registry.datasets import DatasetEntry, DatasetRegistry
from agml_assets.settings import Settings
from agml_assets.store import ArtifactStore, Sidecar

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Workspace:
    """The registry, the settings and the store of a run."""

    registry: DatasetRegistry
    settings: Settings
    store: ArtifactStore

    def dataset(self, key: str) -> "DatasetWorkspace":
        """Return the workspace of a registered dataset.

        Raises:
            UserError: The key is unknown, a setting is not valid, results would lie among the images, or the
                store is a bucket out of reach.
        """
        entry = self.registry.get(key)
        self.store.require_access()
        _refuse_results_inside(entry, self.store)
        settings = self.settings.override(dict(entry.settings), f"the registry entry of {entry.key!r}")
        return DatasetWorkspace(entry, settings, self.store)


@dataclass(frozen=True)
class DatasetWorkspace:
    """What is needed to make and to read the artifacts of one dataset."""

    entry: DatasetEntry
    settings: Settings
    store: ArtifactStore

    @property
    def key(self) -> str:
        """The dataset's registry key, which is also its partition and its folder."""
        return self.entry.key

    def sidecar(self, artifact: Artifact) -> Sidecar:
        """Return the sidecar of a stored artifact; one that is not there raises `UserError`."""
        sidecar = self.store.sidecar(self.key, artifact.file)
        if sidecar is None:
            raise UserError(
                f"Dataset {self.key!r}: {artifact.key} is not in the store "
                f"({self.store.path(self.key, artifact.file)}). Make it first: run the benchmark job of "
                f"this dataset, or materialize {artifact.key} for partition {self.key!r}."
            )
        return sidecar

    def read(self, artifact: Artifact) -> Any:
        """Read a stored artifact; one that is not there raises `UserError` saying how to make it."""
        self.sidecar(artifact)
        try:
            return self.store.read(self.key, artifact.file)
        except FileNotFoundError:
            raise UserError(
                f"Dataset {self.key!r}: {artifact.key} was removed to save space. Materialize it again."
            ) from None

    def work_folder(self, name: str) -> Path:
        """Return a local folder for unfinished work, kept between tries."""
        return self.store.local_folder(self.key, f".work/{name}")


def _refuse_results_inside(entry: DatasetEntry, store: ArtifactStore) -> None:
    """Refuse results among the images: every run would change the dataset, and who clears up would lose it."""
    if entry.path is None or not store.is_local:
        return
    root, images = Path(store.root.path).resolve(), entry.path.resolve()
    if root.is_relative_to(images):
        raise UserError(
            f"Dataset {entry.key!r}: the results root {root} lies inside the dataset's folder {images}. "
            "Name another with --results, $AGML_RESULTS or the setting 'output_dir'."
        )
    place = root / entry.key
    if place.is_relative_to(images) or images.is_relative_to(place):
        raise UserError(
            f"Dataset {entry.key!r}: its results would lie in {place}, which holds its images or lies among them "
            f"({images}). Name another results root with --results, $AGML_RESULTS or the setting 'output_dir', or "
            "give the dataset another `key`."
        )


@dataclass
class Making:
    """An artifact being made: remembers what is read, times the work, writes the result with its sidecar."""

    dataset: DatasetWorkspace
    artifact: Artifact
    inputs: dict[str, str] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    def read(self, upstream: Artifact) -> Any:
        """Read one of the artifact's declared inputs."""
        if upstream.key not in self.artifact.inputs:
            raise ValueError(f"{self.artifact.key} reads {upstream.key} without declaring it")
        value = self.dataset.read(upstream)
        self.inputs[upstream.key] = self.dataset.sidecar(upstream).digest
        return value

    def write(
        self, value: Any, *, info: Mapping[str, Any] | None = None, source_digest: str | None = None
    ) -> Sidecar:
        """Store the artifact and return its sidecar."""
        return self.dataset.store.write(
            self.dataset.key,
            self.artifact.file,
            value,
            {
                "artifact": self.artifact.key,
                "code_version": self.artifact.code_version,
                "inputs": self.inputs,
                "settings": self.dataset.settings.used(self.artifact.settings),
                "source_digest": source_digest,
                "info": dict(info or {}),
                "duration_s": round(time.monotonic() - self.started, 3),
            },
        )


@contextmanager
def making(dataset: DatasetWorkspace, artifact: Artifact, run_id: str = "") -> Iterator[Making]:
    """Make an artifact; a failure is noted beside it, named with the dataset, and raised again."""
    try:
        yield Making(dataset, artifact)
    except Exception as error:
        reason = error.message if isinstance(error, UserError) else traceback.format_exception_only(error)[-1]
        try:
            dataset.store.record_failure(dataset.key, artifact.file, error=reason.strip(), run_id=run_id)
        except Exception as second:  # a full disk, or a bucket out of reach: the first error is the one to tell
            logger.warning("The failure of %s could not be noted: %s", artifact.key, second)
        raise
