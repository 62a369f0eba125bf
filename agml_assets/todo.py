"""Find a dataset, registered or not, and say what of it is not current. Reads the store alone; runs nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agml_assets.dataset.artifacts import PIXELS
from agml_assets.errors import UserError
from agml_assets.lineage import Artifact, Verdict
from agml_assets.quality.artifacts import SCORE
from agml_assets.quality.summary import asked_for, judge_dataset
from agml_assets.registry.datasets import load_registry, resolve_dataset
from agml_assets.report.artifacts import ARTIFACTS as REPORT_ARTIFACTS
from agml_assets.report.artifacts import CONFIG_USED
from agml_assets.report.result import build_config_used
from agml_assets.settings import load_settings, results_root
from agml_assets.store import ArtifactStore
from agml_assets.workspace import DatasetWorkspace, Workspace


def open_workspace(
    results: str | Path | None = None, config: str | Path | None = None, registry: str | Path | None = None
) -> Workspace:
    """Return the workspace that the arguments name, else environment, settings and working directory."""
    settings, known = load_settings(config), load_registry(registry)
    return Workspace(known, settings, ArtifactStore(results_root(results, settings)))


def open_dataset(
    dataset: str,
    *,
    results: str | Path | None = None,
    config: str | Path | None = None,
    registry: str | Path | None = None,
    **overrides: Any,
) -> tuple[Workspace, DatasetWorkspace]:
    """Find a dataset, registered or not, and return the workspace that knows it, and its own."""
    return find_dataset(open_workspace(results, config, registry), dataset, **overrides)


def find_dataset(workspace: Workspace, dataset: str, **overrides: Any) -> tuple[Workspace, DatasetWorkspace]:
    """Find a dataset, registered or not.

    Args:
        workspace: Registry, settings and store.
        dataset: A registered key or name, `owner/name` on the hub, `iNatAg/...`, or a folder.
        overrides: Fields of its registry entry that take other values; None means unchanged.

    Returns:
        The workspace that knows the dataset as it is meant, and the dataset's own.

    Raises:
        UserError: There is no such dataset, an override is not valid, or results of another are in its place.
    """
    entry = resolve_dataset(dataset, workspace.registry, **overrides)
    knowing = replace(workspace, registry=workspace.registry.with_entry(entry))
    bench = knowing.dataset(entry.key)
    if workspace.registry.find(dataset) is None:
        _refuse_the_place_of_another(bench)
    return knowing, bench


def to_make(bench: DatasetWorkspace, *, force: bool = False) -> list[Artifact]:
    """Return what of a dataset is not what its source, settings and code would make today; nothing if all is.

    Args:
        bench: The dataset.
        force: Count nothing as current.
    """
    verdicts = judge_dataset(bench)
    stale = [a for a in asked_for(bench) if force or verdicts[a.key].state != "current"]
    if any(PIXELS.key in a.inputs for a in stale) and PIXELS not in stale and _was_removed(bench, PIXELS):
        stale.insert(0, PIXELS)
    if not stale and _report_is_current(bench, verdicts):
        return []
    return [*stale, SCORE, *REPORT_ARTIFACTS]


def read_again(bench: DatasetWorkspace, todo: Sequence[Artifact]) -> list[Artifact]:
    """Return what of `todo` is to be made of the images first, because they may be what they were.

    A file that was touched or copied makes a dataset another one until it is read; where what is read is the same
    to the byte, nothing behind it has to be made again.
    """
    stale = [a for a in todo if a.reads_source and bench.store.sidecar(bench.key, a.file) is not None]
    behind = [a for a in todo if a.inputs and bench.store.sidecar(bench.key, a.file) is not None]
    return stale if stale and behind else []


def last_config(bench: DatasetWorkspace) -> dict[str, Any]:
    """Return the stored `config_used.json`; empty where there is none, or a damaged one."""
    if bench.store.sidecar(bench.key, CONFIG_USED.file) is None:
        return {}
    try:
        config: dict[str, Any] = bench.store.read(bench.key, CONFIG_USED.file)
    except ValueError:
        return {}
    return config if isinstance(config, dict) else {}


def _refuse_the_place_of_another(bench: DatasetWorkspace) -> None:
    """Refuse to overwrite the results of another dataset whose name ends alike, such as two folders `images`."""
    entry, held = bench.entry.model_dump(mode="json"), last_config(bench).get("dataset")
    if held and any(held.get(field) != entry[field] for field in ("name", "source", "path")):
        raise UserError(
            f"Dataset {entry['path'] or entry['name']!r}: {bench.store.path(bench.key, CONFIG_USED.file).parent} "
            f"holds the results of {held.get('path') or held.get('name')!r}. Name another results root with "
            "--results or $AGML_RESULTS, or register the dataset with a `key` of its own."
        )


def _was_removed(bench: DatasetWorkspace, artifact: Artifact) -> bool:
    sidecar = bench.store.sidecar(bench.key, artifact.file)
    return sidecar is not None and sidecar.removed


def _report_is_current(bench: DatasetWorkspace, verdicts: Mapping[str, Verdict]) -> bool:
    files = [artifact.file for artifact in (SCORE, *REPORT_ARTIFACTS)]
    if any(bench.store.sidecar(bench.key, file) is None for file in files):
        return False
    if bench.store.is_local and not all(bench.store.is_intact(bench.key, file) for file in files):
        return False
    return last_config(bench) == build_config_used(bench, verdicts)
