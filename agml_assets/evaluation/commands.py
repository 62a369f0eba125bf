"""`agml-assets evaluate`: models on datasets and tasks, one after another, doing only what is not up to date."""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from agml_assets.errors import UserError
from agml_assets.evaluation.evaluate import MAKE, Evaluation, estimate_seconds
from agml_assets.evaluation.open import open_evaluation
from agml_assets.evaluation.ways import WAYS
from agml_assets.locks import exclusive
from agml_assets.store import PLATFORM
from agml_assets.todo import open_workspace

logger = logging.getLogger(__name__)


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


def evaluate(
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
        subject: Key of a dataset, whose benchmark has run, or of a task, whose data are at hand.
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
    evaluation = open_evaluation(workspace, subject, model, **options)
    try:
        _make(evaluation, force=force)
    finally:
        evaluation.encoder.close()
    found: dict[str, Any] = evaluation.read("scores")
    return found


def _make(evaluation: Evaluation, *, force: bool) -> None:
    """Make what is not current, holding the pair against other runs."""
    subject, model = evaluation.subject.key, evaluation.model.key
    lock = evaluation.store.local_folder(PLATFORM, "locks") / f"{subject}.{model}.lock"
    with exclusive(lock, f"{model} on {subject}", "agml-assets evaluate"):
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
                found = evaluate(
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
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        click.echo("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]))
    return int(failed > 0)


def _score(found: dict[str, Any]) -> str:
    interval = found["interval"]
    limits = f" (95 % interval {interval['low']:.3f} to {interval['high']:.3f})" if "low" in interval else ""
    return f"{found['score']:.3f}{limits}"
