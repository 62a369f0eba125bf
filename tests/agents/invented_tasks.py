"""Tasks in place, made without being prepared."""

from pathlib import Path

import polars as pl

from agml_assets.agents.submission import ANSWERS
from agml_assets.agents.task import AgentTask
from agml_assets.registry.agents import AgentTaskEntry

IDS = ["a", "b", "c", "d"]


def invent_task(root: Path, answers: pl.DataFrame | None = None, **manifest: object) -> AgentTask:
    """Return a task with these answers; by default four labels by id, measured by accuracy."""
    for part in ("env", "private", "workspace"):
        (root / part).mkdir(parents=True)
    if answers is None:
        answers = pl.DataFrame({"id": IDS, "label": [0, 1, 1, 2]})
    answers.write_parquet(root / "private" / ANSWERS)
    described = {
        "key": "invented",
        "folder": str(root),
        "metric": "accuracy",
        "submission": {"id_column": "id", "columns": {"label": "integer"}},
        **manifest,
    }
    entry = AgentTaskEntry.model_validate(described)
    return AgentTask(entry, "Do it.", root / "env", root / "private", "digest")
