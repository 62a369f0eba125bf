"""The workspace resource: registry, settings and artifact store of a run, and the run's hold on its dataset."""

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import dagster as dg

from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXEL_HASHES, PIXELS
from agml_assets.embeddings.steps import EMBED
from agml_assets.errors import UserError
from agml_assets.handover import may_be_at_work
from agml_assets.locks import exclusive
from agml_assets.partitions import EVALUATE_MODELS, PARTITION_TAG, RUN_AGENTS, agent_pair_of, pair_of
from agml_assets.quality.summary import judge_dataset
from agml_assets.registry.datasets import load_registry
from agml_assets.report.files import report_after_failure
from agml_assets.settings import load_settings, results_root
from agml_assets.store import PLATFORM, ArtifactStore
from agml_assets.training.artifacts import DYNAMICS, TEST_PREDICTIONS, TEST_PREDICTIONS_GROUPED
from agml_assets.training.steps import TRAIN_LEAK_SAFE, TRAIN_REFERENCE
from agml_assets.workspace import DatasetWorkspace, Workspace

logger = logging.getLogger(__name__)

_HOLDER = "run "

_WORK = {
    "decode": (IMAGE_INDEX, PIXEL_HASHES, PIXELS),
    "embeddings": (),  # what a killed run leaves there is of no use: its finished shards are in the cache
    "reference": (DYNAMICS, TEST_PREDICTIONS),
    "reference_grouped": (TEST_PREDICTIONS_GROUPED,),
}
"""Folders of unfinished work, and the artifacts whose next try goes on from it."""

_HEAVY = {
    "embeddings": EMBED.name,
    "reference": TRAIN_REFERENCE.name,
    "reference_grouped": TRAIN_LEAK_SAFE.name,
}
"""Folders in which a job may be at work whose run was killed, and the job's step."""


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
            pairs = {EVALUATE_MODELS: pair_of, RUN_AGENTS: agent_pair_of}
            if context.run is not None and context.run.job_name in pairs:
                pairs[context.run.job_name](context.run.tags)  # before Dagster stumbles over what is missing
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
    _say_where_history_goes(context.instance)
    with ExitStack() as held:
        try:
            folder = workspace.store.local_folder(PLATFORM, "locks")
            lock = exclusive(folder / f"{dataset.key}.lock", f"dataset {dataset.key!r}", f"{_HOLDER}{run.run_id}")
            killed = held.enter_context(lock)
            workspace.store.remove_leftovers(dataset.key)
            _remove_finished_work(dataset)
        except OSError as error:
            raise dg.Failure(workspace.store.refusal(error).message, allow_retries=False) from None
        except UserError as error:
            raise dg.Failure(error.message, allow_retries=False) from None
        _close_killed_run(killed, context.instance)
        try:
            yield
        finally:
            _report_what_succeeded(dataset, run.run_id)
            workspace.store.discard_staged()


def _report_what_succeeded(dataset: DatasetWorkspace, run_id: str) -> None:
    """Write score and report after a failed step, which skips them: their readers still need what succeeded."""
    try:
        if report_after_failure(dataset, run_id):
            logger.info("Wrote the report of %r from what is current.", dataset.key)
    except UserError as error:  # the disk that made the step fail is still full
        logger.warning("The report of %r could not be written: %s", dataset.key, error.message)


def _say_where_history_goes(instance: dg.DagsterInstance | None) -> None:
    # Here, as it loads Dagster's storages, which definitions do not need.
    from resources.history import VARIABLE, BenchmarkInstance

    if not os.environ.get("DAGSTER_HOME"):
        logger.info("DAGSTER_HOME is not set: artifacts are kept, the history of runs is not.")
    elif os.environ.get(VARIABLE) and not isinstance(instance, BenchmarkInstance):
        logger.warning(
            "$%s is not used: the dagster.yaml in $DAGSTER_HOME is not the one of this project.", VARIABLE
        )


def _remove_finished_work(dataset: DatasetWorkspace) -> None:
    """Remove the work of a killed run from which no try will go on, unless its job may have outlived it."""
    base = dataset.store.local_folder(dataset.key, ".work")
    left = {
        name: base / name
        for name in _WORK
        if (base / name).exists()
        and any((base / name).iterdir())
        and not (name in _HEAVY and may_be_at_work(dataset, _HEAVY[name]))
    }
    if not left:
        return
    try:
        verdicts = judge_dataset(dataset)
    except UserError:
        return  # the source cannot be read: the first step says so
    for name, folder in left.items():
        if all(verdicts[artifact.key].state == "current" for artifact in _WORK[name]):
            shutil.rmtree(folder, ignore_errors=True)


def _close_killed_run(holder: str | None, instance: dg.DagsterInstance | None) -> None:
    """Mark the run that was killed holding the dataset as failed: Dagster would count it as running for ever."""
    if holder is None or instance is None or not holder.startswith(_HOLDER):
        return
    killed = instance.get_run_by_id(holder.removeprefix(_HOLDER))
    if killed is not None and not killed.is_finished:
        instance.report_run_failed(killed, "The process of this run was killed.")
        logger.info("Marked the killed run %s as failed.", killed.run_id)


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
