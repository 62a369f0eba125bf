"""Every partitions definition, built from the registries."""

import dagster as dg

from agml_assets.registry.datasets import DatasetRegistry
from agml_assets.registry.models import ModelRegistry
from agml_assets.registry.tasks import TaskRegistry

DATASET, MODEL = "dataset", "model"
"""Dimensions of the partitions of models on datasets and tasks."""


def dataset_partitions(registry: DatasetRegistry) -> dg.StaticPartitionsDefinition:
    """Return one partition per dataset, heaviest first: the slowest run bounds a backfill's wall time."""
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
