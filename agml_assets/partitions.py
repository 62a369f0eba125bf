"""Every partitions definition, built from the registries."""

from collections.abc import Mapping

import dagster as dg

from agml_assets.errors import UserError
from agml_assets.registry.datasets import DatasetRegistry
from agml_assets.registry.models import ModelRegistry
from agml_assets.registry.submissions import SubmissionRegistry
from agml_assets.registry.tasks import TaskRegistry

DATASET, MODEL = "dataset", "model"
"""Dimensions of the partitions of models on datasets and tasks."""

EVALUATE_MODELS = "evaluate_models"
"""The only job with these partitions."""

PARTITION_TAG = "dagster/partition"


def pair_of(tags: Mapping[str, str]) -> tuple[str, str]:
    """Return the dataset or task and the model of a run of `evaluate_models`.

    Raises:
        UserError: A tag is missing; Dagster itself says so without telling which.
    """
    subject, model = (tags.get(f"{PARTITION_TAG}/{dimension}") for dimension in (DATASET, MODEL))
    if not subject or not model:
        raise UserError(
            "Name the dataset or task and the model: both in the UI, or for `dagster job execute` all three tags, "
            """--tags '{"dagster/partition": "DATASET|MODEL", "dagster/partition/dataset": "DATASET", """
            """"dagster/partition/model": "MODEL"}'."""
        )
    return subject, model


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
