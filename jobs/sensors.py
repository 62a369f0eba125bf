"""What runs when something happens. Off until someone starts it: in the UI, or with `dagster sensor start`."""

import json
from collections.abc import Iterator

import dagster as dg
from blake3 import blake3

from agml_assets.registry.datasets import DatasetEntry
from agml_assets.report.artifacts import CONFIG_USED
from agml_assets.todo import last_config
from agml_assets.workspace import DatasetWorkspace, Workspace

_EVERY_S = 600
_OF_NO_CONSEQUENCE = {"num_images", "retired"}  # neither changes what a benchmark measures


def build_sensors(datasets: dg.PartitionsDefinition) -> list[dg.SensorDefinition]:
    """Return the sensors over the given dataset partitions."""

    @dg.sensor(
        name="new_in_registry",
        job_name="benchmark",
        minimum_interval_seconds=_EVERY_S,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=(
            "Every ten minutes: the benchmark of each dataset that has no report, or whose registry entry has "
            "changed since its report, once. A run that fails is not asked for again until the entry changes."
        ),
    )
    def new_in_registry(
        context: dg.SensorEvaluationContext, workspace: dg.ResourceParam[Workspace]
    ) -> Iterator[dg.RunRequest | dg.SkipReason]:
        # The registry is read at each tick; partitions are those of the moment when the definitions were loaded.
        registered, loaded = workspace.registry.keys(), set(datasets.get_partition_keys())
        run_keys = {key: _run_key(workspace, key) for key in registered if key in loaded}
        for key, run_key in run_keys.items():
            if run_key is not None:
                yield dg.RunRequest(run_key=run_key, partition_key=key)
        waiting = ""
        if unknown := [key for key in registered if key not in loaded]:
            waiting = f" New ones wait until the definitions are reloaded: {', '.join(unknown)}."
            context.log.warning(waiting.strip())
        if not any(run_keys.values()):
            yield dg.SkipReason(f"All {len(run_keys)} datasets have a report of their entry.{waiting}")

    return [new_in_registry]


def _run_key(workspace: Workspace, key: str) -> str | None:
    """Return what identifies the run that a dataset needs; None where its report is of today's entry.

    A key is asked for once and never again. It therefore says what is wanted (the entry) and what there is (the
    report): an entry that is changed and changed back is new both times, one whose run failed is not.
    """
    dataset = DatasetWorkspace(workspace.registry.get(key), workspace.settings, workspace.store)
    wanted = _facts(dataset.entry)
    held = last_config(dataset).get("dataset")
    if (
        isinstance(held, dict)
        and {name: value for name, value in held.items() if name not in _OF_NO_CONSEQUENCE} == wanted
    ):
        return None
    sidecar = workspace.store.sidecar(key, CONFIG_USED.file)
    return f"{key}:{_digest(wanted)}:{sidecar.digest[:16] if sidecar else 'none'}"


def _facts(entry: DatasetEntry) -> dict[str, object]:
    return entry.model_dump(mode="json", exclude=_OF_NO_CONSEQUENCE)


def _digest(facts: dict[str, object]) -> str:
    return blake3(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
