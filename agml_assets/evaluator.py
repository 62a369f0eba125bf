"""`agml-assets evaluate`: models on datasets and tasks, one after another, doing only what is not up to date."""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXEL_HASHES, PIXELS, SPLITS
from agml_assets.embeddings.artifacts import DUPLICATE_GROUPS, EMBEDDINGS, LABELS, NEIGHBORS
from agml_assets.errors import UserError
from agml_assets.evaluation.evaluate import MAKE, Evaluation, estimate_seconds
from agml_assets.evaluation.open import open_evaluation, require_options
from agml_assets.evaluation.tasks.download import download_task
from agml_assets.evaluation.ways import WAYS
from agml_assets.quality.summary import judge_dataset
from agml_assets.registry.models import load_models
from agml_assets.registry.tasks import load_tasks
from agml_assets.todo import open_workspace
from agml_assets.training.artifacts import GROUPED_SPLITS
from agml_assets.workspace import Workspace

logger = logging.getLogger(__name__)

_READ = (
    IMAGE_INDEX, PIXEL_HASHES, PIXELS, SPLITS, EMBEDDINGS, LABELS, NEIGHBORS, DUPLICATE_GROUPS, GROUPED_SPLITS
)  # fmt: skip
"""Artifacts of a dataset that an evaluation reads, and those that they are made from."""


def add_parser(commands: Any) -> None:
    """Add `evaluate` to the subcommands of the command line."""
    parser = commands.add_parser(
        "evaluate",
        help="evaluate models on datasets and tasks",
        description="Encode with a frozen model, fit a probe, score the test examples: what is not up to date.",
    )
    parser.add_argument("subjects", nargs="+", metavar="KEY", help="registered datasets or tasks")
    parser.add_argument(
        "--model", action="append", required=True, metavar="KEY", help="registered model; repeatable"
    )
    parser.add_argument(
        "--probe",
        choices=WAYS,
        help="in place of the task's, or of the settings'; zero_shot fits nothing, fine_tune trains the model",
    )
    parser.add_argument("--n-train", type=int, metavar="N", help="training examples, drawn class-balanced")
    parser.add_argument("--split", choices=("leak_safe", "published"), help="of a dataset")
    parser.add_argument("--seed", type=int, metavar="N", help="of the draw and of the probe")
    parser.add_argument("--results", metavar="FOLDER", help="in place of $AGML_RESULTS")
    parser.add_argument("--config", metavar="FILE", help="settings, in place of $AGML_CONFIG")
    parser.add_argument("--force", action="store_true", help="make everything again, also what is up to date")
    parser.set_defaults(call=_evaluate)


def evaluate_model(
    subject: str,
    model: str,
    *,
    results: str | Path | None = None,
    config: str | Path | None = None,
    force: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Evaluate a registered model on a registered dataset or task, and return its scores.

    Args:
        subject: Key of a dataset, of which what is read is made first, or of a task, whose data are fetched where
            that is possible.
        model: Key of a model.
        results: Results root, in place of `$AGML_RESULTS` and the setting `output_dir`.
        config: Settings file, in place of `$AGML_CONFIG`.
        force: Make everything again, also what is current.
        options: `probe`, `n_train`, `seed`, `split` in place of what registry and settings say.

    Returns:
        What `evaluation/scores` holds.

    Raises:
        UserError: A key or option is not valid, or something is not there.
    """
    workspace = open_workspace(results, config)
    # Said before a dataset is measured or a task is fetched for it.
    load_models().get(model)
    require_options(options, workspace.settings)
    _prepare(workspace, subject)
    evaluation = open_evaluation(workspace, subject, model, **options)
    try:
        _make(evaluation, force=force)
    finally:
        evaluation.encoder.close()
    found: dict[str, Any] = evaluation.read("scores")
    return found


def _prepare(workspace: Workspace, subject: str) -> None:
    """Fetch a task whose folder is not there yet, or make what an evaluation reads of a dataset."""
    task = load_tasks().find(subject)
    if task is not None:
        if task.download.files and not task.root().is_dir():
            download_task(task)
        return
    if workspace.registry.find(subject) is None:
        return  # told where the evaluation is opened
    from agml_assets.runner import execute

    bench = workspace.dataset(subject)
    verdicts = judge_dataset(bench)
    if todo := [artifact for artifact in _READ if verdicts[artifact.key].state != "current"]:
        execute(workspace, bench, todo)


def _make(evaluation: Evaluation, *, force: bool) -> None:
    """Make what is not current, holding the pair against other runs."""
    with evaluation.held("agml-assets evaluate"):
        for step in evaluation.steps:
            if not force and evaluation.is_current(step):
                continue
            if step == "features":
                _say_how_long(evaluation)
            MAKE[step](evaluation)


def _say_how_long(evaluation: Evaluation) -> None:
    images, seconds = estimate_seconds(evaluation)
    if images:
        logger.info(
            "%s on %s: %d images to encode, about %.1f hours on %s.",
            evaluation.model.key,
            evaluation.subject.key,
            images,
            seconds / 3600,
            evaluation.encoder.device,
        )


def _evaluate(options: argparse.Namespace) -> int:
    failed = 0
    rows: list[Sequence[str]] = []
    for subject in options.subjects:
        for model in options.model:
            try:
                found = evaluate_model(
                    subject,
                    model,
                    results=options.results,
                    config=options.config,
                    force=options.force,
                    probe=options.probe,
                    n_train=options.n_train,
                    split=options.split,
                    seed=options.seed,
                )
                rows.append((subject, model, found["metric"], _score(found)))
            except UserError as error:
                failed += 1
                rows.append((subject, model, "failed", error.message.splitlines()[0]))
                logger.error("%s on %s: %s", model, subject, error.message)
            except Exception as error:  # a model's own code, or a device: the rest can still be done
                failed += 1
                rows.append((subject, model, "failed", f"{type(error).__name__}: {error}".splitlines()[0]))
                logger.exception("%s on %s failed.", model, subject)
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        click.echo("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]))
    return int(failed > 0)


def _score(found: dict[str, Any]) -> str:
    interval = found["interval"]
    limits = f" (95 % interval {interval['low']:.3f} to {interval['high']:.3f})" if "low" in interval else ""
    return f"{found['score']:.3f}{limits}"
