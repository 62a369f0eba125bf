"""`agml-assets agents`: tasks prepared, agents run on them, their trials weighed, compared and drawn.

Each subcommand is a thin call of a function; no Dagster here.
"""

import argparse
import logging
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from agml_assets.agents.task import AgentTask
from agml_assets.agents_by_options import (
    add_dropped,
    echo_table,
    export,
    resume_run,
    run_all,
    run_by_options,
    tell,
)
from agml_assets.errors import UserError
from agml_assets.registry.agents import AgentEntry, AgentRegistry, AgentTaskEntry, load_agents
from agml_assets.store import dump_json
from agml_assets.todo import open_workspace
from agml_assets.workspace import Workspace

logger = logging.getLogger(__name__)

_OF_DESCRIBED = (
    *("llm_name", "fast_llm_name", "edit_script_llm_name", "agent_type", "script"),
    *("max_steps", "max_time", "max_tokens", "work_dir", "seed"),
)


def add_parser(commands: Any) -> None:
    """Add `agents` to the subcommands of the command line."""
    parser = commands.add_parser("agents", help="measure ML agents on ML tasks")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    _add_list(actions)
    _add_prepare(actions)
    _add_run(actions)
    _add_run_all(actions)
    _add_evaluate(actions)
    _add_plot(actions)


def _add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", metavar="FOLDER", help="in place of $AGML_RESULTS")
    parser.add_argument("--config", metavar="FILE", help="settings, in place of $AGML_CONFIG")


def _add_python(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--python", type=_interpreter, metavar="FILE", help="for a task's scripts and scorer; by default this one"
    )


def _add_list(actions: Any) -> None:
    listing = actions.add_parser("list", help="registered tasks and agents, and what is stored of them")
    _add_places(listing)
    listing.set_defaults(call=_list)


def _add_prepare(actions: Any) -> None:
    prepare = actions.add_parser("prepare", help="bring the data of a task to this machine")
    prepare.add_argument(
        "task", metavar="TASK", help="registered task, or DATASET__classifier, DATASET__mislabelled"
    )
    prepare.add_argument("--outpath", metavar="FOLDER", type=Path, help="where downloaded images are kept")
    _add_python(prepare)
    _add_places(prepare)
    prepare.set_defaults(call=_prepare)


def _add_run(actions: Any) -> None:
    run = actions.add_parser(
        "run",
        help="run one agent on one task",
        description=(
            "Run a registered agent (--agent), whose trials, evaluation and lineage are stored as by the job "
            "`agents`; or one that is described by options named as in MLAgentBench, into --log-dir."
        ),
    )
    run.add_argument("--task", metavar="KEY", help="by default digits")
    run.add_argument(
        "--agent", metavar="KEY", help="registered agent; the options of models and limits are its own"
    )
    run.add_argument("--force", action="store_true", help="with --agent: run again what is up to date")
    run.add_argument(
        "--as-it-stands",
        action="store_true",
        help="with --agent: score what an interrupted run has left, and do not go on with it",
    )
    run.add_argument("--seed", type=_positive, metavar="N", help="without --agent; by default 1")
    run.add_argument("--llm-name", metavar="NAME", help="model by Inspect's name, such as openai/gpt-5")
    run.add_argument(
        "--log-dir", type=Path, metavar="FOLDER", help="of the log tree; by default ./logs without --agent"
    )
    _add_described(run)
    run.add_argument(
        "--resume", type=Path, metavar="FOLDER", help="log folder of an interrupted run: go on with it"
    )
    add_dropped(run)
    run.add_argument("--end-with-parent", action="store_true", help=argparse.SUPPRESS)
    _add_places(run)
    run.set_defaults(call=lambda options: _run(options, run))


def _add_described(parser: argparse.ArgumentParser) -> None:
    """Add the options that a run of the old benchmark has."""
    parser.add_argument("--work-dir", type=Path, metavar="FOLDER", help="of workspaces; by default ./workspace")
    parser.add_argument("--device", type=int, metavar="N", help="GPU that scripts see; by default none")
    _add_python(parser)
    parser.add_argument("--max-steps", type=_positive, metavar="N", help="in place of the task's limit")
    parser.add_argument("--max-time", type=_seconds, metavar="SECONDS", help="in place of the task's limit")
    parser.add_argument(
        "--max-tokens", type=_positive, metavar="N", help="of all models, read and written; in place of the task's"
    )
    parser.add_argument(
        "--agent-type", metavar="KIND", help="starter, majority, scripted, react or, by default, research"
    )
    parser.add_argument(
        "--script",
        metavar="NAME_OR_FILE",
        help="of kind scripted; by default improve, which comes with the package",
    )
    parser.add_argument("--fast-llm-name", metavar="NAME", help="for summaries; by default --llm-name")
    parser.add_argument("--edit-script-llm-name", metavar="NAME", help="for edits; by default --llm-name")
    parser.add_argument(
        "--sandbox",
        choices=("bubblewrap", "docker", "none"),
        help="none: no protection; only inside another sandbox",
    )


def _add_run_all(actions: Any) -> None:
    many = actions.add_parser(
        "run-all",
        help="models x tasks x seeds, in parallel",
        description="Run models on tasks, some seeds each, into LOG_ROOT/MODEL/TIMESTAMP/TASK/seed_N.",
    )
    many.add_argument("--task", nargs="+", metavar="KEY", dest="tasks")
    many.add_argument("--llm-name", nargs="+", metavar="NAME", dest="models", help="none for agents without one")
    many.add_argument("--seeds", type=_positive, metavar="N", help="by default 3")
    many.add_argument("--jobs", type=_positive, metavar="N", help="runs at a time; by default 1")
    many.add_argument("--log-root", type=Path, metavar="FOLDER", help="by default ./logs")
    many.add_argument(
        "--resume",
        type=Path,
        metavar="PLACE",
        help="LOG_ROOT, or its file run_all.TIMESTAMP.json: go on with what is unfinished, begin the rest",
    )
    add_dropped(many)
    _add_described(many)
    _add_places(many)
    many.set_defaults(call=lambda options: run_all(options, _prepared))


def _add_evaluate(actions: Any) -> None:
    evaluate = actions.add_parser(
        "evaluate",
        help="compare all that is stored, or all runs below a folder; or weigh old logs",
        description=(
            "Weigh and compare the stored runs of all registered agents. With --log-root: compare all runs below "
            "it in the same way, as of `run-all`. With --log-folder: a record for every trial below it, in the "
            "form of MLAgentBench's evaluation, and what is new."
        ),
    )
    where = evaluate.add_mutually_exclusive_group()
    _add_log_root(where)
    where.add_argument("--log-folder", type=Path, metavar="FOLDER", help="of logs in the old form, of one task")
    evaluate.add_argument("--task", metavar="KEY", help="with --log-folder")
    evaluate.add_argument(
        "--output-file",
        type=Path,
        metavar="FILE",
        help="with --log-root or --log-folder; by default results.json",
    )
    evaluate.add_argument("--rescore", action="store_true", help="of stored runs: score their files again first")
    evaluate.add_argument(
        "--eval-intermediate", action="store_true", help="with --log-folder: score the steps as well"
    )
    _add_python(evaluate)
    _add_places(evaluate)
    evaluate.set_defaults(call=lambda options: _evaluate(options, evaluate))


def _add_log_root(parser: Any) -> None:
    parser.add_argument(
        "--log-root", type=Path, metavar="FOLDER", help="compare all runs of `run` and `run-all` below it"
    )


def _add_plot(actions: Any) -> None:
    plot = actions.add_parser(
        "plot",
        help="draw success, improvement, time and tokens",
        description="Draw the comparison of stored runs or, with --log-root, of all runs below a folder.",
    )
    _add_log_root(plot)
    plot.add_argument("--output-dir", type=Path, default=Path("plots"), metavar="FOLDER")
    _add_places(plot)
    plot.set_defaults(call=_plot)


def _list(options: argparse.Namespace) -> int:
    from agml_assets.agents.steps import AgentRun

    registry, workspace = load_agents(), open_workspace(options.results, options.config)
    agents = [("agent", "kind", "model"), *((one.key, one.kind, one.model or "none") for one in registry.agents)]
    tasks = [("task", "prepared", "run by")]
    for task in registry.tasks:
        runs = [AgentRun(task, agent, workspace) for agent in registry.agents]
        names = [run.agent.key for run in runs if run.sidecar("run")]
        tasks.append((task.key, "yes" if _is_prepared(task, workspace) else "no", ", ".join(names) or "none"))
    echo_table(agents)
    click.echo()
    echo_table(tasks)
    return 0


def _is_prepared(task: AgentTaskEntry, workspace: Workspace) -> bool:
    from agml_assets.agents.tasks.prepare import open_task

    try:
        open_task(task, workspace)
    except UserError:
        return False
    return True


def _prepare(options: argparse.Namespace) -> int:
    workspace = open_workspace(options.results, options.config)
    entry = load_agents().task(options.task)
    task = _prepared(entry, workspace, options)
    click.echo(f"Task {task.key!r} is ready: {task.env.parent}")
    return 0


def _prepared(entry: AgentTaskEntry, workspace: Workspace, options: argparse.Namespace) -> AgentTask:
    """Prepare a task, and before that what the store lacks of the dataset it is made from."""
    from agml_assets.agents.tasks.prepare import prepare_task
    from agml_assets.registry.agents import DIGITS

    if entry.dataset is not None and entry.dataset != DIGITS:
        from agml_assets.runner import run_dataset

        run_dataset(entry.dataset, phases=(1, 2), results=options.results, config=options.config)
    python = options.python or Path(sys.executable)
    return prepare_task(entry, workspace, python=python, downloads=getattr(options, "outpath", None))


def _run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if options.agent is None and (options.as_it_stands or options.force):
        parser.error("--as-it-stands and --force go with --agent")
    if options.agent is not None:
        given = [name for name in (*_OF_DESCRIBED, "resume") if getattr(options, name) is not None]
        if "resume" in given:
            parser.error("--resume does not go with --agent, whose runs go on by the same command")
        if given:
            parser.error(f"--{given[0].replace('_', '-')} does not go with --agent: the registry says it")
        return _run_registered(options)
    return run_by_options(options, _prepared) if options.resume is None else resume_run(options)


def _run_registered(options: argparse.Namespace) -> int:
    from agml_assets.agents.steps import AgentRun, make_evaluation, make_run

    workspace, registry = open_workspace(options.results, options.config), load_agents()
    task = registry.task(options.task or "digits")
    agent = registry.agent(options.agent)
    _prepared(task, workspace, options)
    run = AgentRun(task, agent, workspace, options.sandbox, options.python or Path(sys.executable), options.device)
    with run.held("agml-assets agents run"):
        if options.force or not run.is_current("run"):
            make_run(run, logger.info, as_it_stands=options.as_it_stands)
        if options.force or not run.is_current("evaluation"):
            make_evaluation(run)
    tell(run.read("evaluation"))
    if options.log_dir is not None:
        export(run.trials(), run.local_file("workspaces"), options.log_dir)
    return 0


def _evaluate(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    for name in ("task", "eval_intermediate"):
        if getattr(options, name) and options.log_folder is None:
            parser.error(f"--{name.replace('_', '-')} goes with --log-folder")
    if options.log_folder is not None and options.task is None:
        parser.error("--log-folder needs --task")
    of_logs = options.log_root is not None or options.log_folder is not None
    if options.python is not None and options.log_folder is None and not options.rescore:
        parser.error("--python goes with --rescore or --log-folder: nothing is scored otherwise")
    if options.rescore and of_logs:
        parser.error("--rescore goes with stored runs, not with logs")
    if options.output_file is not None and not of_logs:
        parser.error("--output-file goes with --log-root or --log-folder; the stored comparison has its own place")
    workspace, registry = open_workspace(options.results, options.config), load_agents()
    output = options.output_file or Path("results.json")
    if options.log_folder is not None:
        return _evaluate_old_logs(options, registry, workspace, output)
    if options.log_root is not None:
        document = _compared_below(options.log_root, registry, workspace)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(dump_json(document), encoding="utf-8")
        where: Any = output
    else:
        if options.rescore:
            _rescore(registry, workspace, options.python or Path(sys.executable))
        document, where = _compared_stored(registry, workspace)
    _tell_standings(document)
    click.echo(f"Compared in {where}")
    return 0


def _evaluate_old_logs(
    options: argparse.Namespace, registry: AgentRegistry, workspace: Workspace, output: Path
) -> int:
    from agml_assets.agents.old_logs import read_old_logs, results_text
    from agml_assets.agents.steps import AgentRun, baseline

    starter, python = AgentEntry(key="starter", kind="starter"), options.python or Path(sys.executable)
    run = AgentRun(registry.task(options.task), starter, workspace, python=python)
    records = read_old_logs(
        options.log_folder,
        run.task,
        run.judge,
        baseline=baseline(run).value,
        eval_intermediate=options.eval_intermediate,
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(results_text(records), encoding="utf-8")
    click.echo(f"{len(records)} trials in {output}")
    return 0


def _compared_below(root: Path, registry: AgentRegistry, workspace: Workspace) -> dict[str, Any]:
    """Compare all runs of options below a folder; refuse where there is nothing to compare."""
    from agml_assets.agents.evaluation import Baseline
    from agml_assets.agents.log_roots import compare_below
    from agml_assets.agents.steps import stored_baseline

    def baseline_in_store(task: AgentTaskEntry, digest: str) -> Baseline:
        return stored_baseline(task, digest, workspace)

    document = compare_below(root, registry.task, baseline_in_store)
    if not document["cells"]:
        _tell_left_out(document)
        raise UserError(
            f"None of the {len(document['left_out'])} runs below {root} can be compared. Go on with all that "
            "`run-all` has left unfinished: agml-assets agents run-all --resume LOG_ROOT"
        )
    return document


def _compared_stored(registry: AgentRegistry, workspace: Workspace) -> tuple[dict[str, Any], Any]:
    """Compare all stored runs and return the comparison and its file; refuse where there is none to compare."""
    from agml_assets.agents.steps import write_leaderboard

    written = write_leaderboard(workspace, registry)
    if not written.document["cells"]:
        _tell_left_out(written.document)
        raise UserError(
            f"No stored run can be compared in {workspace.store.root}. Begin with the starter code, the baseline "
            "of all others: agml-assets agents run --task digits --agent starter. Runs of `run-all` are "
            "compared by --log-root FOLDER."
        )
    return written.document, written.path


def _rescore(registry: AgentRegistry, workspace: Workspace, python: Path) -> None:
    from agml_assets.agents.steps import AgentRun, rescore_run

    for task in registry.tasks:
        for agent in registry.agents:
            run = AgentRun(task, agent, workspace, python=python)
            if run.sidecar("run") is not None and run.is_current("run"):
                with run.held("agml-assets agents evaluate"):
                    rescore_run(run)


def _tell_standings(document: dict[str, Any]) -> None:
    rows: list[Sequence[str]] = [("task", "agent", "success", "improvement", "no score", "failed", "timed out")]
    for cell in document["cells"]:
        success, gain = cell["success"], cell["improvement"]["mean"]
        repeats = f" ({cell['n']} alike)" if success is not None and success["n"] < cell["n"] else ""
        rows.append(
            (
                cell["task"],
                cell["agent"],
                "cannot be told" if success is None else f"{success['successes']} of {success['n']}{repeats}",
                "" if gain is None else f"{gain:+.1%}",
                str(cell["n"] - cell["scored"]),
                str(cell["failed"]),
                str(cell["timed_out"]),
            )
        )
    echo_table(rows)
    _tell_left_out(document)


def _tell_left_out(document: dict[str, Any]) -> None:
    left_out = document["left_out"]
    for name, reason in left_out.items():
        logger.info("Left out: %s: %s", name, reason)
    if left_out:
        click.echo(f"Left out: {len(left_out)}")


def _plot(options: argparse.Namespace) -> int:
    from agml_assets.agents.plots import draw_plots

    registry, workspace = load_agents(), open_workspace(options.results, options.config)
    if options.log_root is not None:
        document = _compared_below(options.log_root, registry, workspace)
    else:
        document, _ = _compared_stored(registry, workspace)
    files = draw_plots(document, options.output_dir)
    click.echo(f"{len(files)} plots in {options.output_dir}")
    return 0


def _interpreter(text: str) -> Path:
    found = shutil.which(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"there is no program {text}")
    # Not the name's own path: that of a version manager is a script, which the sandbox does not have.
    ask = [found, "-I", "-c", "import sys; print(sys.executable)"]
    asked = subprocess.run(ask, capture_output=True, text=True, check=False)  # noqa: S603
    if asked.returncode or not asked.stdout.strip():
        raise argparse.ArgumentTypeError(f"{text} is no Python interpreter")
    return Path(asked.stdout.strip())


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("a number above 0")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError("a number of seconds above 0")
    return number
