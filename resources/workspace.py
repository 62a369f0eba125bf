"""The workspace resource: registry, settings and artifact store of a run, and the run's hold on its dataset."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import dagster as dg
from dagster._core.storage.tags import PARTITION_NAME_TAG
from pydantic import PrivateAttr

from agml_assets.locks import exclusive
from agml_assets.registry.datasets import DatasetRegistry, load_registry
from agml_assets.settings import Settings, load_settings, results_root
from agml_assets.store import PLATFORM, ArtifactStore
from agml_assets.workspace import Workspace


class WorkspaceResource(dg.ConfigurableResourceFactory[Workspace]):
    """Gives assets a plain `Workspace`; while a run works on a dataset, no other run does.

    Attributes:
        results: Results root; null means `$AGML_RESULTS`, then the setting `output_dir`.
        config: Settings file; null means `$AGML_CONFIG`, then `config.json` in the working directory.
        registry: Registry file; null means `$AGML_REGISTRY`, then the one that comes with the package.
    """

    results: str | None = None
    config: str | None = None
    registry: str | None = None
    _loaded_registry: DatasetRegistry | None = PrivateAttr(default=None)
    _loaded_settings: Settings | None = PrivateAttr(default=None)

    def using(self, registry: DatasetRegistry | None, settings: Settings | None) -> "WorkspaceResource":
        """Return this resource with a registry and settings that are already in memory."""
        self._loaded_registry, self._loaded_settings = registry, settings
        return self

    def open(self) -> Workspace:
        """Return the workspace without holding any dataset."""
        settings = self._loaded_settings or load_settings(self.config)
        registry = self._loaded_registry or load_registry(self.registry)
        return Workspace(registry, settings, ArtifactStore(results_root(self.results, settings)))

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Workspace]:
        """Open the workspace, refuse unknown datasets, and hold the run's dataset until the run ends."""
        workspace = self.open()
        run = context.run
        key = run.tags.get(PARTITION_NAME_TAG) if run else None
        if run is None or key is None:
            held = nullcontext()
        else:
            key = workspace.registry.get(key).key
            folder = workspace.store.local_folder(PLATFORM, "locks")
            held = exclusive(folder / f"{key}.lock", f"dataset {key!r}", f"run {run.run_id}")
        with held:
            yield workspace
