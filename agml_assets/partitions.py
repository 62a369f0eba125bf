"""Every partitions definition, built from the registries."""

import dagster as dg

from agml_assets.registry.datasets import DatasetRegistry


def dataset_partitions(registry: DatasetRegistry) -> dg.StaticPartitionsDefinition:
    """Return one partition per dataset, heaviest first: the slowest run bounds a backfill's wall time."""
    return dg.StaticPartitionsDefinition(registry.keys())
