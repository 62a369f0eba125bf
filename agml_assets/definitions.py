"""The only place that wires everything: assets, jobs, schedules, sensors, resources become one `Definitions`."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from agml_assets.agents import assets as agents_assets
from agml_assets.compression import assets as compression_assets
from agml_assets.dataset import assets as dataset_assets
from agml_assets.embeddings import assets as embeddings_assets
from agml_assets.evaluation import assets as evaluation_assets
from agml_assets.leaderboard import assets as leaderboard_assets
from agml_assets.partitions import (
    agent_partitions,
    dataset_partitions,
    evaluation_partitions,
    submission_partitions,
)
from agml_assets.quality import assets as quality_assets
from agml_assets.registry.agents import load_agents
from agml_assets.registry.datasets import DatasetRegistry, load_registry
from agml_assets.registry.models import load_models
from agml_assets.registry.submissions import check_keys_are_no_datasets, load_submissions
from agml_assets.registry.tasks import check_keys_are_unique, load_tasks
from agml_assets.report import assets as report_assets
from agml_assets.settings import load_settings
from agml_assets.site import assets as site_assets
from agml_assets.training import assets as training_assets
from jobs.agent_jobs import agent_jobs
from jobs.compression_jobs import compression_jobs
from jobs.dataset_jobs import build_jobs
from jobs.evaluation_jobs import evaluation_jobs
from jobs.leaderboard_jobs import leaderboard_job
from jobs.schedules import build_schedules
from jobs.sensors import build_sensors
from jobs.site_jobs import site_files_job
from resources.compute import ComputeResource
from resources.embedder import EmbedderResource
from resources.workspace import WorkspaceResource


def build_defs(
    *,
    registry: DatasetRegistry | None = None,
    resources: Mapping[str, Any] | None = None,
) -> dg.Definitions:
    """Return the whole graph.

    Args:
        registry: In place of the one in `$AGML_REGISTRY` or in the package.
        resources: Take the place of the resources with the same names.
    """
    registry = registry or load_registry()
    tasks, models, submissions = load_tasks(), load_models(), load_submissions()
    check_keys_are_unique(tasks, registry)
    check_keys_are_no_datasets(submissions, registry)
    datasets = dataset_partitions(registry)
    pairs = evaluation_partitions(registry, tasks, models)
    rooms = (dataset_assets, embeddings_assets, training_assets, quality_assets, report_assets)
    return dg.Definitions(
        assets=[
            *(asset for room in rooms for asset in room.build_assets(datasets)),
            *evaluation_assets.build_assets(pairs),
            *compression_assets.build_assets(submission_partitions(submissions)),
            *agents_assets.build_assets(agent_partitions(load_agents())),
            *leaderboard_assets.build_assets(),
            *site_assets.build_assets(),
        ],
        jobs=[
            *build_jobs(),
            *evaluation_jobs(),
            *compression_jobs(),
            *agent_jobs(),
            leaderboard_job(),
            site_files_job(),
        ],
        schedules=build_schedules(datasets),
        sensors=build_sensors(datasets),
        resources={
            "workspace": WorkspaceResource(),
            "embedders": EmbedderResource(),
            "compute": ComputeResource(),
            **(resources or {}),
        },
        # One process per run: one import of torch, one load of the model, one holder of the GPU.
        executor=dg.in_process_executor,
    )


@dg.definitions
def defs() -> dg.Definitions:
    """Return the definitions that Dagster loads."""
    # A mistake in the settings is told here, in words; a run would drown it in Dagster's own stack.
    load_settings()
    return build_defs()
