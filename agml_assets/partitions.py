"""Every partitions definition, built from the registries."""

import json
from collections.abc import Mapping

import dagster as dg

from agml_assets.errors import UserError
from agml_assets.registry.agents import AgentRegistry
from agml_assets.registry.datasets import DatasetRegistry
from agml_assets.registry.models import ModelRegistry
from agml_assets.registry.submissions import SubmissionRegistry
from agml_assets.registry.tasks import TaskRegistry

DATASET, MODEL = "dataset", "model"
"""Dimensions of the partitions of models on datasets and tasks."""

EVALUATE_MODELS = "evaluate_models"
"""The only job with these partitions."""

TASK, AGENT = "task", "agent"
"""Dimensions of the partitions of agents on tasks."""

RUN_AGENTS = "agents"
"""The only job with these partitions."""

PARTITION_TAG = "dagster/partition"


def pair_of(tags: Mapping[str, str]) -> tuple[str, str]:
    """Return the dataset or task and the model of a run of `evaluate_models`.

    Raises:
        UserError: A tag is missing; Dagster itself says so without telling which.
    """
    return _two_of(tags, (DATASET, "dataset or task"), (MODEL, "model"))


def agent_pair_of(tags: Mapping[str, str]) -> tuple[str, str]:
    """Return the task and the agent of a run of `agents`.

    Raises:
        UserError: A tag is missing.
    """
    return _two_of(tags, (TASK, "task"), (AGENT, "agent"))


def _two_of(tags: Mapping[str, str], first: tuple[str, str], second: tuple[str, str]) -> tuple[str, str]:
    (one, one_in_words), (other, other_in_words) = first, second
    keys = tags.get(f"{PARTITION_TAG}/{one}"), tags.get(f"{PARTITION_TAG}/{other}")
    if not keys[0] or not keys[1]:
        # Dimensions in the order of their names, as Dagster joins them.
        names = "|".join(name.upper() for name in sorted((one, other)))
        example = {
            PARTITION_TAG: names,
            f"{PARTITION_TAG}/{one}": one.upper(),
            f"{PARTITION_TAG}/{other}": other.upper(),
        }
        raise UserError(
            f"Name the {one_in_words} and the {other_in_words}: both in the UI, or for `dagster job execute` all "
            f"three tags, --tags '{json.dumps(example)}'."
        )
    return keys[0], keys[1]


def dataset_partitions(registry: DatasetRegistry) -> dg.StaticPartitionsDefinition:
    """Return one partition per dataset, heaviest first: the slowest run bounds a backfill's wall time."""
    return dg.StaticPartitionsDefinition(registry.keys())


def submission_partitions(registry: SubmissionRegistry) -> dg.StaticPartitionsDefinition:
    """Return one partition per submission of embeddings, in the order of the registry."""
    return dg.StaticPartitionsDefinition(registry.keys())


def evaluation_partitions(
    datasets: DatasetRegistry, tasks: TaskRegistry, models: ModelRegistry
) -> dg.MultiPartitionsDefinition:
    """Return one partition per pair of a dataset or task and a model; only their own job uses them."""
    return dg.MultiPartitionsDefinition(
        {
            DATASET: dg.StaticPartitionsDefinition([*datasets.keys(), *tasks.keys()]),
            MODEL: dg.StaticPartitionsDefinition(models.keys()),
        }
    )


def agent_partitions(registry: AgentRegistry) -> dg.MultiPartitionsDefinition:
    """Return one partition per pair of a task and an agent; only their own job uses them."""
    return dg.MultiPartitionsDefinition(
        {
            TASK: dg.StaticPartitionsDefinition([entry.key for entry in registry.tasks]),
            AGENT: dg.StaticPartitionsDefinition([entry.key for entry in registry.agents]),
        }
    )
