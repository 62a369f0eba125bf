"""The `agml-assets` command: each subcommand is a thin call of a job or a function."""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType

from agml_assets import agents_command, compression_command, evaluator, prefetch, slurm
from agml_assets.errors import UserError
from agml_assets.leaderboard import commands as leaderboard
from agml_assets.progress import show_log

_INTERRUPTED = 130  # 128 + SIGINT, as shells count
_GRACE_S = 20.0
_END_S = 27.0  # above what a batch gives its processes, below the 30 s that Slurm leaves before it kills


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    options = _parser().parse_args(arguments)
    show_log()
    # Batch systems end what takes too long with SIGTERM; that shall leave what Ctrl-C leaves.
    signal.signal(signal.SIGTERM, _interrupt)
    if getattr(options, "end_with_parent", False):
        threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        return int(options.call(options))
    except UserError as error:
        print(f"Error: {error.message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted. The same command goes on where it stopped.", file=sys.stderr)
        return _INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("agml-assets", description="How good is an image dataset?")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="benchmark datasets, doing only what is not up to date",
        description="Benchmark one dataset, or many registered ones, doing only what is not up to date.",
    )
    run.add_argument("keys", nargs="*", metavar="KEY", help="registered keys: one after another, a process each")
    run.add_argument("--all", action="store_true", help="all registered datasets, heaviest first")
    run.add_argument(
        "--dataset",
        metavar="NAME",
        help="one dataset: a registered key or name, owner/name on the hub, iNatAg/..., or a folder with a folder "
        "per class",
    )
    run.add_argument(
        "--phases",
        nargs="+",
        type=int,
        choices=(1, 2, 3),
        metavar="N",
        help="1 structure, 2 embeddings, 3 training",
    )
    run.add_argument("--results", metavar="FOLDER", help="in place of $AGML_RESULTS")
    run.add_argument("--config", metavar="FILE", help="settings, in place of $AGML_CONFIG")
    run.add_argument("--force", action="store_true", help="make everything again, also what is up to date")
    run.add_argument("--end-with-parent", action="store_true", help=argparse.SUPPRESS)
    one = run.add_argument_group("with --dataset")
    one.add_argument("--hf-config-name", metavar="NAME")
    one.add_argument("--label-col", metavar="COLUMN")
    one.add_argument("--image-col", metavar="COLUMN")
    one.add_argument("--metadata-cols", nargs="*", metavar="COLUMN", help="no column: no metadata")
    one.add_argument("--compound-label-cols", nargs="+", metavar="COLUMN")
    many = run.add_argument_group("with KEY or --all")
    many.add_argument(
        "--time-limit", type=_hours, metavar="HOURS", help="end the process of a dataset that takes longer"
    )
    run.set_defaults(call=lambda options: _run(options, run))
    prefetch.add_parser(commands)
    slurm.add_parser(commands)
    evaluator.add_parser(commands)
    leaderboard.add_parser(commands)
    compression_command.add_parser(commands)
    agents_command.add_parser(commands)
    return parser


_OF_ONE = ("hf_config_name", "label_col", "image_col", "metadata_cols", "compound_label_cols")


def _run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if bool(options.keys) + options.all + (options.dataset is not None) != 1:
        parser.error("say what to run: KEY ..., --all, or --dataset NAME")
    if options.dataset is not None:
        if options.time_limit is not None:
            parser.error("--time-limit goes with KEY or --all")
        return _run_one(options)
    if given := [name for name in _OF_ONE if getattr(options, name) is not None]:
        parser.error(f"--{given[0].replace('_', '-')} goes with --dataset; of many, the registry says it")
    return _run_many(options)


def _run_one(options: argparse.Namespace) -> int:
    from agml_assets.runner import run_dataset
    from agml_assets.summary_table import describe_result
    from agml_assets.todo import open_dataset

    given = {name: getattr(options, name) for name in ("dataset", "phases", "results", "config", *_OF_ONE)}
    path = run_dataset(**given, force=options.force)
    given["phases"] = tuple(given["phases"]) if given["phases"] else None
    _, bench = open_dataset(**given)
    print(describe_result(bench, path))
    return 0


def _run_many(options: argparse.Namespace) -> int:
    from agml_assets.batch import FAILED, absolute_environment, choose_keys, log_folder, run_batch
    from agml_assets.summary_table import describe_batch
    from agml_assets.todo import open_workspace

    signal.siginterrupt(signal.SIGINT, True)  # Polars lets waiting go on after Ctrl-C
    workspace = open_workspace(options.results, options.config)
    if not workspace.store.is_shared:
        raise UserError(
            "A results root memory:// is gone with its process, and each of several datasets has one of its own. "
            "Run one with --dataset, or name a folder or a bucket."
        )
    keys = choose_keys(workspace.registry, options.keys)
    logs = log_folder(workspace.store)
    outcomes = []
    try:
        for outcome in run_batch(
            workspace,
            keys,
            lambda key: _command_for(key, options),
            environment=absolute_environment(workspace, options.config),
            logs=logs,
            phases=options.phases,
            force=options.force,
            time_limit_s=options.time_limit and options.time_limit * 3600,
        ):
            outcomes.append(outcome)
    finally:
        print(describe_batch(outcomes, len(keys), logs), flush=True)
    if any(outcome.state == "interrupted" for outcome in outcomes):
        raise KeyboardInterrupt
    return int(any(outcome.state in FAILED for outcome in outcomes))


def _command_for(key: str, options: argparse.Namespace) -> list[str]:
    """Return the command that runs one dataset in a process of its own; places are in its environment."""
    # -P: a folder that has a module called like one of ours shall not matter.
    command = [sys.executable, "-P", "-m", "agml_assets.cli", "run", "--dataset", key, "--end-with-parent"]
    if options.phases:
        command += ["--phases", *map(str, options.phases)]
    return [*command, "--force"] if options.force else command


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt as Ctrl-C does, and end in any case: a library may wait for a thread that does not end."""
    threading.Thread(target=_end_in_any_case, daemon=True).start()
    signal.default_int_handler(number, frame)


def _end_in_any_case() -> None:
    time.sleep(_END_S)
    os._exit(_INTERRUPTED)  # every file is whole or not there


def _end_with_parent() -> None:
    """Wait until standard input ends, as it does when the parent dies, and then end this process as well."""
    while os.read(0, 4096):  # not sys.stdin: a thread that reads it stops the interpreter from ending
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _hours(text: str) -> float:
    hours = float(text)
    if not hours > 0:
        raise argparse.ArgumentTypeError("a number of hours above 0")
    return hours


if __name__ == "__main__":
    sys.exit(main())
