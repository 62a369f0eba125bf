"""The weekly schedule asks for each dataset once a week, and nobody started it."""

from datetime import UTC, datetime

import dagster as dg
import pytest

from agml_assets.definitions import build_defs
from agml_assets.registry.datasets import DatasetEntry, DatasetRegistry


def entry(name, **fields):
    return DatasetEntry(name=name, **fields)


@pytest.fixture
def definitions():
    entries = (entry("small", num_images=10), entry("old", retired=True), entry("large", num_images=1000))
    return build_defs(registry=DatasetRegistry(entries, "a test"))


@pytest.fixture
def schedule(definitions):
    """The schedule, with an instance of Dagster while it is used."""
    with dg.DagsterInstance.local_temp() as instance:
        repository = definitions.get_repository_def()
        found = repository.get_schedule_def("weekly_benchmark")

        def context(when):
            return dg.build_schedule_context(instance, when, repository_def=repository)

        yield found, context


def saturday(day):
    return datetime(2026, 11, day, 3, tzinfo=UTC)


def test_every_dataset_that_is_not_retired_is_asked_for_heaviest_first(schedule):
    found, context = schedule
    requests = found.evaluate_tick(context(saturday(28))).run_requests
    assert [r.partition_key for r in requests] == ["large", "small"]
    assert [r.run_key for r in requests] == ["2026-11-28:large", "2026-11-28:small"]
    assert {r.tags["dagster/partition"] for r in requests} == {"large", "small"}


def test_the_same_tick_asks_for_the_same_runs_and_next_week_s_for_others(schedule):
    found, context = schedule
    first, again, next_week = ({r.run_key for r in found(context(saturday(day)))} for day in (21, 21, 28))
    assert first == again and len(first) == 2
    assert not first & next_week


def test_it_is_for_the_benchmark_on_saturdays_and_off(schedule):
    found, _ = schedule
    assert (found.job_name, found.cron_schedule) == ("benchmark", "0 3 * * 6")
    assert found.execution_timezone == "UTC"
    assert found.default_status == dg.DefaultScheduleStatus.STOPPED
    assert "not retired" in found.description
