"""`agml-assets leaderboard`: new run records are merged, and the leaderboard is made, without Dagster."""

import argparse
from pathlib import Path
from typing import Any

import click

from agml_assets.leaderboard.catalogue import load_catalogue
from agml_assets.leaderboard.outputs import OUTPUTS, Source, read_source
from agml_assets.leaderboard.record_files import passed_over, performance_folder
from agml_assets.leaderboard.run_records import count_records, one_line
from agml_assets.leaderboard.staging import STAGING, stage
from agml_assets.settings import expand_path, load_settings, results_root
from agml_assets.store import PLATFORM, ArtifactStore

_LISTED = 20  # names in one line


def add_parser(commands: Any) -> None:
    """Add `leaderboard` to the subcommands of the command line."""
    parser = commands.add_parser("leaderboard", help="merge run records of models, and make the leaderboard")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    staging = actions.add_parser("stage", help="append staged run records to the files of their datasets")
    staging.add_argument("--dry-run", action="store_true", help="check everything and write nothing")
    staging.add_argument("--staging", default=STAGING, metavar="FOLDER", help=f"new records; ./{STAGING}")
    staging.set_defaults(call=_stage)
    build = actions.add_parser("build", help="check all run records and write the leaderboard's files")
    build.add_argument("--results", metavar="FOLDER", help="in place of $AGML_RESULTS")
    build.set_defaults(call=_build)
    for action in (staging, build):
        action.add_argument("--performance", metavar="FOLDER", help="run records, in place of $AGML_PERFORMANCE")


def _stage(options: argparse.Namespace) -> int:
    performance = performance_folder(options.performance)
    staging = expand_path(options.staging, "folder of staged records").absolute()
    merges = stage(performance, staging, load_catalogue(performance.parent), dry_run=options.dry_run)
    for merge in merges:
        click.echo(merge.describe())
        for record in merge.added:
            for warning in record.warnings:
                click.echo(one_line(f"  record {record.position}: {warning.name}: {warning.message}"))
    for line in _passed_over(staging):
        click.echo(line)
    if not merges:
        click.echo(f"No .json file in {staging}: nothing to do.")
    elif options.dry_run:
        click.echo("Dry run: nothing was written.")
    return 0


def _build(options: argparse.Namespace) -> int:
    store = ArtifactStore(results_root(options.results, load_settings()))
    source = read_source(options.performance, store)
    texts = {file: make(source) for file, make in OUTPUTS.items()}  # all are made before one is written
    for file, text in texts.items():
        path = store.path(PLATFORM, file)
        store.write_text(path, text)
        click.echo(str(path))
    click.echo(_summary(source))
    return 0


def _passed_over(folder: Path) -> list[str]:
    names = passed_over(folder)
    listed = ", ".join([*names[:_LISTED], *(["..."] if len(names) > _LISTED else [])])
    return [one_line(f"  Not read, as it is not called NAME.json: {listed}")] if names else []


def _summary(source: Source) -> str:
    counts = count_records(source.records)
    lines = [
        f"{len(source.files)} files in {source.folder}: {counts['accepted']} records accepted, "
        f"{counts['with_warnings']} of them with warnings; {counts['refused']} refused."
    ]
    lines += [f"  refused: {one.describe()}" for one in source.records.refused]
    lines += _passed_over(source.folder)
    if not source.catalogue.found:
        lines.append(f"  No dataset catalogue in {Path(source.folder).parent}: names were not checked.")
    return "\n".join(lines)
