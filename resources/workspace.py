"""The workspace resource: registry, settings and artifact store of a run, and the run's hold on its dataset."""

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import dagster as dg

from agml_assets.errors import UserError
from agml_assets.locks import exclusive
from agml_assets.registry.datasets import load_registry
from agml_assets.report.files import report_after_failure
from agml_assets.settings import load_settings, results_root
from agml_assets.store import PLATFORM, ArtifactStore
from agml_assets.workspace import DatasetWorkspace, Workspace

logger = logging.getLogger(__name__)

PARTITION_TAG = "dagster/partition"


class WorkspaceResource(dg.ConfigurableResource[Workspace]):
    """Gives assets a plain `Workspace`; while a run works on a dataset, no other run does.

    Attributes:
        results: Results root; null means `$AGML_RESULTS`, then the setting `output_dir`.
        config: Settings file; null means `$AGML_CONFIG`, then `config.json` in the working directory.
        registry: Registry file; null means `$AGML_REGISTRY`, then the one that comes with the package.
    """

    results: str | None = None
    config: str | None = None
    registry: str | None = None

    def open(self) -> Workspace:
        """Return the workspace without holding any dataset."""
        settings = load_settings(self.config)
        root = results_root(self.results, settings)
        return Workspace(load_registry(self.registry), settings, ArtifactStore(root))

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Workspace]:
        """Open the workspace, refuse an unknown dataset, and hold the run's dataset until the run ends."""
        try:
            workspace = self.open()
        except UserError as error:
            raise dg.Failure(error.message, allow_retries=False) from None
        with hold_dataset(workspace, context):
            yield workspace


def workspace_in_memory(workspace: Workspace) -> dg.ResourceDefinition:
    """Return a resource for a workspace that exists already, for runs in this process."""

    @dg.resource
    def resource(context: dg.InitResourceContext) -> Iterator[Workspace]:
        with hold_dataset(workspace, context):
            yield workspace

    return resource


@contextmanager
def hold_dataset(workspace: Workspace, context: dg.InitResourceContext) -> Iterator[None]:
    """Hold the dataset of a run against other runs; when steps failed, leave a report of what succeeded."""
    run = context.run
    key = run.tags.get(PARTITION_TAG) if run else None
    if run is None or key is None or _is_over(run, context.instance):
        yield
        return
    dataset = find_dataset(workspace, key)
    if dataset is None:
        # The first step refuses it, in words: an error here would drown them in Dagster's own stack.
        yield
        return
    if not os.environ.get("DAGSTER_HOME"):
        logger.info("DAGSTER_HOME is not set: artifacts are kept, the history of runs is not.")
    with ExitStack() as held:
        try:
            folder = workspace.store.local_folder(PLATFORM, "locks")
            lock = folder / f"{dataset.key}.lock"
            held.enter_context(exclusive(lock, f"dataset {dataset.key!r}", f"run {run.run_id}"))
        except OSError as error:
            raise dg.Failure(workspace.store.refusal(error).message, allow_retries=False) from None
        try:
            yield
        finally:
            # A failed step skips score and report; their readers still need what succeeded.
            if report_after_failure(dataset, run.run_id):
                logger.info("Wrote the report of %r from what is current.", dataset.key)


def _is_over(run: dg.DagsterRun, instance: dg.DagsterInstance | None) -> bool:
    # Dagster's command line sets up the resources once more to show a finished run; that must not wait.
    stored = instance.get_run_by_id(run.run_id) if instance else None
    return stored is not None and stored.is_finished


def find_dataset(workspace: Workspace, key: str) -> DatasetWorkspace | None:
    """Return the workspace of a dataset; None where it is not registered, or retired."""
    try:
        return workspace.dataset(key)
    except UserError:
        return None
