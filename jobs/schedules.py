"""What runs by the clock. Off until someone starts it: in the UI, or with `dagster schedule start`."""

from collections.abc import Iterator

import dagster as dg


def build_schedules(datasets: dg.PartitionsDefinition) -> list[dg.ScheduleDefinition]:
    """Return the schedules over the given dataset partitions."""

    @dg.schedule(
        name="weekly_benchmark",
        job_name="benchmark",
        cron_schedule="0 3 * * 6",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Saturdays at 3:00 UTC: the benchmark of every dataset that is not retired, a run each.",
    )
    def weekly_benchmark(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
        # A key is asked for once and never again: the date makes next week's another one.
        for key in datasets.get_partition_keys():
            yield dg.RunRequest(run_key=f"{context.scheduled_execution_time:%Y-%m-%d}:{key}", partition_key=key)

    return [weekly_benchmark]
