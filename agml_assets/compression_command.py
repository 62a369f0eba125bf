"""`agml-assets compression`: submissions measured and compared, images and datasets turned into submissions.

Each subcommand is a thin call of a function; no Dagster here.
"""

import argparse
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import polars as pl

from agml_assets.compression.steps import MAKE, SubmissionRun
from agml_assets.errors import UserError
from agml_assets.registry.submissions import SubmissionEntry, SubmissionRegistry, load_submissions
from agml_assets.todo import open_workspace

logger = logging.getLogger(__name__)


def add_parser(commands: Any) -> None:
    """Add `compression` to the subcommands of the command line."""
    parser = commands.add_parser("compression", help="measure how much compressed embeddings keep")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    evaluate = actions.add_parser(
        "evaluate",
        help="score registered submissions on their tasks, and compare them",
        description="Score submissions on their tasks, doing only what is not up to date, then compare all.",
    )
    evaluate.add_argument("keys", nargs="*", metavar="KEY", help="registered submissions")
    evaluate.add_argument("--all", action="store_true", help="all registered submissions")
    evaluate.add_argument("--phase", metavar="NAME", help="all registered submissions of a phase")
    evaluate.add_argument("--force", action="store_true", help="make everything again, also what is up to date")
    _add_places(evaluate)
    evaluate.set_defaults(call=lambda options: _evaluate(options, evaluate))
    _add_run(actions)
    _add_embed(actions)
    _add_export(actions)


def _add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", metavar="FOLDER", help="in place of $AGML_RESULTS")
    parser.add_argument("--config", metavar="FILE", help="settings, in place of $AGML_CONFIG")


def _add_run(actions: Any) -> None:
    run = actions.add_parser(
        "run",
        help="one file of embeddings on a folder of labels, as NeuCo-Bench does it",
        description="Score one file of embeddings by the rules of NeuCo-Bench, into its tree of results.",
    )
    run.add_argument("--annotation_path", required=True, metavar="FOLDER", help="of <task>__<type>.csv")
    run.add_argument("--submission_file", required=True, metavar="FILE", help="embeddings")
    run.add_argument("--output_dir", default="results/", metavar="FOLDER")
    run.add_argument("--config", default="config.yaml", metavar="FILE", help="keys of NeuCo-Bench")
    run.add_argument("--method_name", metavar="NAME", help="by default the file's name")
    run.add_argument("--phase", default="results", metavar="NAME", help="runs of one phase are ranked together")
    run.add_argument("--exclude_file", metavar="FILE", help="ids that are left out, one a line")
    run.set_defaults(call=_run)


def _add_embed(actions: Any) -> None:
    embed = actions.add_parser(
        "embed",
        help="turn images into a file of embeddings",
        description="Turn photographs, or satellite images of SSL4EO-S12-downstream, into a file of embeddings.",
    )
    embed.add_argument("images", metavar="FOLDER")
    embed.add_argument("output", metavar="FILE", help=".csv or .parquet")
    embed.add_argument("--model", required=True, metavar="KEY", help="registered model, or averaging")
    embed.add_argument("--satellite", action="store_true", help="the folder holds s1, s2l1c, s2l2a with archives")
    embed.add_argument("--modality", default="s2l2a", metavar="NAME", help="whose true colours a model sees")
    embed.add_argument("--seasons", nargs="+", type=int, default=[0, 1, 2, 3], metavar="N", help="of 0 to 3")
    embed.set_defaults(call=_embed)


def _add_export(actions: Any) -> None:
    export = actions.add_parser(
        "export",
        help="write a dataset's stored embeddings as a submission, with its classes as a task",
    )
    export.add_argument("dataset", metavar="KEY", help="registered dataset whose embeddings are in the store")
    export.add_argument("output", metavar="FILE", help=".csv or .parquet")
    export.add_argument("--labels", metavar="FOLDER", help="where class__classification.csv is written")
    _add_places(export)
    export.set_defaults(call=_export)


def _evaluate(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from agml_assets.compression.leaderboard import write_leaderboard

    if bool(options.keys) + options.all + (options.phase is not None) != 1:
        parser.error("say what to evaluate: KEY ..., --phase NAME, or --all")
    registry = load_submissions()
    entries = _chosen(options, registry)
    workspace = open_workspace(options.results, options.config)
    rows: list[Sequence[str]] = []
    failed = 0
    for entry in entries:
        run = SubmissionRun(entry, workspace)
        try:
            with run.held("agml-assets compression"):
                for step, make in MAKE.items():
                    if options.force or not run.is_current(step):
                        make(run)
            found = run.read("summary")
            size = f"{found['bytes_per_embedding']:g} bytes"
            mean, n = found["mean_kept"], len(found["tasks"])
            rows.append(
                (entry.key, size, "no task has a score" if mean is None else f"keeps {mean:.3f} of {n} tasks")
            )
            _tell(entry.key, found, run.read("task_scores")["notes"])
        except UserError as error:
            failed += 1
            rows.append((entry.key, "failed", error.message.splitlines()[0]))
            logger.error("Submission %s: %s", entry.key, error.message)
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for row in rows:
        click.echo("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[2]]))
    if failed < len(rows):
        click.echo(f"Compared in {write_leaderboard(workspace, registry).path}")
    return int(failed > 0)


def _chosen(options: argparse.Namespace, registry: SubmissionRegistry) -> list[SubmissionEntry]:
    if not registry.entries:
        raise UserError(f"No submission is registered in {registry.where}.")
    if options.phase is None:
        return list(registry.entries) if options.all else [registry.get(key) for key in options.keys]
    phases = registry.phases()
    if options.phase not in phases:
        raise UserError(f"There is no phase {options.phase!r}. Phases are: {', '.join(phases)}.")
    return phases[options.phase]


def _tell(key: str, summary: Mapping[str, Any], notes: Mapping[str, Sequence[str]]) -> None:
    """Say loudly what was left out; that all samples of a task match needs no word."""
    whole = {some[0] for some in notes.values() if len(some) == 1}
    for note in dict.fromkeys(note for note in summary["notes"] if note not in whole):
        logger.warning("Submission %s: %s", key, note)
    for task, reason in summary["left_out"].items():
        logger.warning("Submission %s: task %r has no score: %s", key, task, reason)


def _as_text(table: pl.DataFrame) -> str:
    """Return a leaderboard as lines: names of columns, then a run each, whatever the width of the terminal."""
    rows = [table.columns, *([_cell(value) for value in row] for row in table.iter_rows())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return "" if value is None else str(value)


def _run(options: argparse.Namespace) -> int:
    from agml_assets.compression.compatible.run import run_compatible

    found = run_compatible(
        options.annotation_path,
        options.submission_file,
        options.output_dir,
        options.config,
        options.method_name,
        options.phase,
        options.exclude_file,
    )
    click.echo(f"Results in {found.folder}")
    if found.leaderboard is not None:
        click.echo(_as_text(found.leaderboard.table))
        click.echo(f"Leaderboard in {found.leaderboard.path}")
    return 0


def _embed(options: argparse.Namespace) -> int:
    from agml_assets.compression.embed import (
        AVERAGING,
        embed_photographs,
        embed_satellite_images,
        require_table_name,
        write_submission,
    )
    from agml_assets.evaluation.backbones import BackboneEncoder
    from agml_assets.registry.models import load_models
    from agml_assets.settings import load_settings

    if options.model == AVERAGING and not options.satellite:
        raise UserError("The averaging baseline is for satellite images: add --satellite, or name a model.")
    require_table_name(Path(options.output))  # before hours of work
    encoder = None if options.model == AVERAGING else BackboneEncoder(load_models().get(options.model))
    try:
        if options.satellite:
            ids, vectors = embed_satellite_images(Path(options.images), encoder, options.modality, options.seasons)
        else:
            assert encoder is not None
            ids, vectors = embed_photographs(Path(options.images), encoder, load_settings().max_image_pixels)
    finally:
        if encoder is not None:
            encoder.close()
    file = write_submission(Path(options.output), ids, vectors)
    click.echo(f"{len(ids):,} embeddings of {vectors.shape[1]:,} values in {file}")
    return 0


def _export(options: argparse.Namespace) -> int:
    from agml_assets.compression.embed import dataset_embeddings, write_submission, write_table

    workspace = open_workspace(options.results, options.config)
    ids, vectors, labels = dataset_embeddings(workspace.dataset(options.dataset))
    file = write_submission(Path(options.output), ids, vectors)
    click.echo(f"{len(ids):,} embeddings of {vectors.shape[1]:,} values in {file}")
    if options.labels:
        click.echo(f"Their classes in {write_table(Path(options.labels) / 'class__classification.csv', labels)}")
    return 0
