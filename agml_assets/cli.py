"""The `agml-assets` command: each subcommand is a thin call of a job or a function."""

import argparse
import sys
from collections.abc import Sequence

from agml_assets.errors import UserError
from agml_assets.progress import show_log


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 0 done, 1 failed, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    show_log()
    try:
        return int(options.call(options))
    except UserError as error:
        print(f"Error: {error.message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted. The same command goes on where it stopped.", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("agml-assets", description="How good is an image dataset?")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="benchmark one dataset, doing only what is not up to date")
    run.add_argument(
        "--dataset",
        required=True,
        metavar="NAME",
        help="a registered key or name, owner/name on the hub, iNatAg/..., or a folder with a folder per class",
    )
    run.add_argument("--phases", nargs="+", type=int, metavar="N", help="1 structure, 2 embeddings, 3 training")
    run.add_argument("--hf-config-name", metavar="NAME")
    run.add_argument("--label-col", metavar="COLUMN")
    run.add_argument("--image-col", metavar="COLUMN")
    run.add_argument("--metadata-cols", nargs="*", metavar="COLUMN", help="no column: no metadata")
    run.add_argument("--compound-label-cols", nargs="+", metavar="COLUMN")
    run.add_argument("--results", metavar="FOLDER", help="in place of $AGML_RESULTS")
    run.add_argument("--config", metavar="FILE", help="settings, in place of $AGML_CONFIG")
    run.add_argument("--force", action="store_true", help="make everything again, also what is up to date")
    run.set_defaults(call=_run)
    return parser


def _run(options: argparse.Namespace) -> int:
    from agml_assets.runner import open_dataset, run_dataset
    from agml_assets.summary_table import describe_result

    given = {k: v for k, v in vars(options).items() if k != "call"}
    path = run_dataset(**given)
    given.pop("force")
    given["phases"] = tuple(given["phases"]) if given["phases"] else None
    _, bench = open_dataset(**given)
    print(describe_result(bench, path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
