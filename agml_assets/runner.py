"""Run the benchmark of one dataset from Python or the command line, doing only what is not current."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from upath import UPath

from agml_assets.errors import UserError
from agml_assets.lineage import Artifact
from agml_assets.locks import wait_until_free
from agml_assets.quality.summary import failures_of_run
from agml_assets.report.artifacts import RESULT
from agml_assets.store import PLATFORM
from agml_assets.todo import open_dataset, read_again, to_make
from agml_assets.workspace import DatasetWorkspace, Workspace

if TYPE_CHECKING:
    import dagster as dg
    from dagster._utils.error import SerializableErrorInfo

logger = logging.getLogger(__name__)


def run_dataset(
    dataset: str,
    *,
    phases: Sequence[int] | int | None = None,
    hf_config_name: str | None = None,
    label_col: str | None = None,
    image_col: str | None = None,
    metadata_cols: Sequence[str] | None = None,
    compound_label_cols: Sequence[str] | None = None,
    results: str | Path | None = None,
    config: str | Path | None = None,
    registry: str | Path | None = None,
    force: bool = False,
) -> UPath:
    """Benchmark one dataset and return the path of its `result.json`.

    Args:
        dataset: A registered key or name, `owner/name` on the hub, `iNatAg/...`, or a folder.
        phases: 1 structure, 2 embeddings, 3 training; by default those of the registry.
        hf_config_name: Configuration of a hub dataset that has several.
        label_col: Label column.
        image_col: Image column.
        metadata_cols: Columns that describe the images; an empty list means none.
        compound_label_cols: Columns whose joined values are the label.
        results: Results root, in place of `$AGML_RESULTS` and the setting `output_dir`.
        config: Settings file, in place of `$AGML_CONFIG`.
        registry: Registry file, in place of `$AGML_REGISTRY`.
        force: Make everything again, also what is current.

    Raises:
        UserError: The dataset or a setting is not valid, or a step failed; what succeeded is kept and reported.
    """
    workspace, bench = open_dataset(
        dataset,
        results=results,
        config=config,
        registry=registry,
        phases=phases,
        hf_config_name=hf_config_name,
        label_col=label_col,
        image_col=image_col,
        metadata_cols=metadata_cols,
        compound_label_cols=compound_label_cols,
    )
    path = bench.store.path(bench.key, RESULT.file)
    # What another run is making at this moment shall not be made twice.
    try:
        wait_until_free(
            bench.store.local_folder(PLATFORM, "locks") / f"{bench.key}.lock", f"dataset {bench.key!r}"
        )
    except OSError as error:
        raise bench.store.refusal(error) from None
    todo = to_make(bench, force=force)
    if not force and (first := read_again(bench, todo)):
        execute(workspace, bench, first)
        todo = to_make(bench)
    if todo:
        execute(workspace, bench, todo)
    else:
        logger.info("Everything about %r is up to date.", bench.key)
    return path


def execute(workspace: Workspace, bench: DatasetWorkspace, todo: Sequence[Artifact]) -> None:
    """Make artifacts of a dataset; a step that fails raises `UserError`; what succeeded is kept and reported."""
    from agml_assets.definitions import build_defs
    from agml_assets.recording import asset_key
    from resources.workspace import workspace_in_memory

    definitions = build_defs(registry=workspace.registry, resources={"workspace": workspace_in_memory(workspace)})
    job = definitions.resolve_job_def("benchmark")
    with _open_instance() as instance:
        done = job.execute_in_process(
            partition_key=bench.key,
            instance=instance,
            asset_selection=[asset_key(a) for a in todo],
            raise_on_error=False,
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )
    if not done.success:
        raise UserError(_describe_failures(done, bench))


def _open_instance() -> "dg.DagsterInstance":
    """Return the instance of `$DAGSTER_HOME`, or one in memory."""
    import dagster as dg

    home = os.environ.get("DAGSTER_HOME")
    if not home:
        return dg.DagsterInstance.ephemeral()
    try:
        return dg.DagsterInstance.get()
    except (dg.DagsterError, OSError) as error:
        raise UserError(
            f"$DAGSTER_HOME ({home}) cannot be used: {str(error).strip().splitlines()[0]} Let it name a folder "
            "that exists, by its absolute path, or unset it."
        ) from None


def _root_cause(error: "SerializableErrorInfo | None") -> str:
    """Return the message of the error that those of Dagster wrap."""
    if error is None:
        return "failed"
    while error.cause:
        error = error.cause
    return error.message.partition(f"{error.cls_name}: ")[2] if error.cls_name == "Failure" else error.message


def _describe_failures(done: "dg.ExecuteInProcessResult", bench: DatasetWorkspace) -> str:
    reasons = []
    for event in done.all_events:
        if event.is_step_failure:
            data = event.step_failure_data
            if data.error and data.error.cls_name == "DagsterExecutionInterruptedError":
                raise KeyboardInterrupt
            told = data.user_failure_data.description if data.user_failure_data else None
            if data.error and data.error.cls_name == "DagsterAssetCheckFailedError":
                told = "\n".join(failures_of_run(bench, done.run_id))
            if not told and data.error:
                logger.error("%s", data.error.to_string())  # no user's mistake: show where it happened
            reasons.append(f"{event.step_key}: {told or _root_cause(data.error)}")
    if not reasons:
        reasons = [_root_cause(e.job_failure_data.error) for e in done.all_events if e.is_run_failure]
    report = bench.store.path(bench.key, RESULT.file)
    kept = f"\nWhat succeeded is kept, and reported in {report}." if report.exists() else ""
    return f"The benchmark of {bench.key!r} failed.\n" + "\n".join(r.strip() for r in reasons) + kept
