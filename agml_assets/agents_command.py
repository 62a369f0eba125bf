"""`agml-assets agents`: tasks prepared, agents run on them, their trials weighed, compared and drawn.

Each subcommand is a thin call of a function; no Dagster here.
"""

import argparse
import json
import logging
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from agml_assets.agents.artifacts import FILES
from agml_assets.agents.old_logs import RUN_FILE
from agml_assets.agents.task import AgentTask
from agml_assets.errors import UserError
from agml_assets.registry.agents import AgentEntry, AgentRegistry, AgentTaskEntry, load_agents
from agml_assets.store import dump_json
from agml_assets.todo import open_workspace
from agml_assets.workspace import Workspace

logger = logging.getLogger(__name__)

_OF_DESCRIBED = (
    *("llm_name", "fast_llm_name", "edit_script_llm_name", "agent_type"),
    *("max_steps", "max_time", "work_dir"),
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
        "--python", type=_interpreter, default=Path(sys.executable), metavar="FILE", help="for a task's scripts"
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
    run.add_argument("--task", default="digits", metavar="KEY")
    run.add_argument(
        "--agent", metavar="KEY", help="registered agent; the options of models and limits are its own"
    )
    run.add_argument("--force", action="store_true", help="with --agent: run again what is up to date")
    run.add_argument(
        "--as-it-stands",
        action="store_true",
        help="with --agent: score what an interrupted run has left, and do not go on with it",
    )
    run.add_argument("--seed", type=_positive, default=1, metavar="N", help="without --agent; by default 1")
    run.add_argument("--llm-name", metavar="NAME", help="model by Inspect's name, such as openai/gpt-5")
    run.add_argument(
        "--log-dir", type=Path, metavar="FOLDER", help="of the log tree; by default ./logs without --agent"
    )
    _add_described(run)
    run.add_argument(
        "--resume", type=Path, metavar="FOLDER", help="log folder of an interrupted run: go on with it"
    )
    run.add_argument("--end-with-parent", action="store_true", help=argparse.SUPPRESS)
    _add_places(run)
    run.set_defaults(call=lambda options: _run(options, run))


def _add_described(parser: argparse.ArgumentParser) -> None:
    """Add the options that a run of the old benchmark has."""
    parser.add_argument("--work-dir", type=Path, metavar="FOLDER", help="of workspaces; by default ./workspace")
    parser.add_argument("--device", type=int, metavar="N", help="GPU that scripts see; by default none")
    _add_python(parser)
    parser.add_argument("--max-steps", type=int, metavar="N", help="in place of the task's limit")
    parser.add_argument("--max-time", type=float, metavar="SECONDS", help="in place of the task's limit")
    parser.add_argument("--agent-type", metavar="KIND", help="starter, majority, react or, by default, research")
    parser.add_argument("--fast-llm-name", metavar="NAME", help="for summaries; by default --llm-name")
    parser.add_argument("--edit-script-llm-name", metavar="NAME", help="for edits; by default --llm-name")
    parser.add_argument(
        "--sandbox",
        choices=("bubblewrap", "docker", "none"),
        help="none: no protection; only inside another sandbox",
    )


def _add_run_all(actions: Any) -> None:
    run_all = actions.add_parser(
        "run-all",
        help="models x tasks x seeds, in parallel",
        description="Run models on tasks, some seeds each, into LOG_ROOT/MODEL/TIMESTAMP/TASK/seed_N.",
    )
    run_all.add_argument("--task", nargs="+", required=True, metavar="KEY", dest="tasks")
    run_all.add_argument(
        "--llm-name", nargs="+", metavar="NAME", dest="models", help="none for agents without one"
    )
    run_all.add_argument("--seeds", type=_positive, default=3, metavar="N")
    run_all.add_argument("--jobs", type=_positive, default=1, metavar="N", help="runs at a time")
    run_all.add_argument("--log-root", type=Path, default=Path("logs"), metavar="FOLDER")
    _add_described(run_all)
    _add_places(run_all)
    run_all.set_defaults(call=_run_all)


def _add_evaluate(actions: Any) -> None:
    evaluate = actions.add_parser(
        "evaluate",
        help="weigh the trials below a folder of logs, or compare all that is stored",
        description=(
            "With --log-folder: a record for every trial below it, in the form of MLAgentBench's evaluation, and "
            "what is new. Without: weigh and compare the stored runs of all registered agents."
        ),
    )
    evaluate.add_argument("--log-folder", type=Path, metavar="FOLDER")
    evaluate.add_argument("--task", metavar="KEY", help="with --log-folder")
    evaluate.add_argument("--output-file", type=Path, default=Path("results.json"), metavar="FILE")
    evaluate.add_argument(
        "--rescore", action="store_true", help="without --log-folder: score the stored files again first"
    )
    evaluate.add_argument("--eval-intermediate", action="store_true", help="score the steps of old logs as well")
    _add_python(evaluate)
    _add_places(evaluate)
    evaluate.set_defaults(call=lambda options: _evaluate(options, evaluate))


def _add_plot(actions: Any) -> None:
    plot = actions.add_parser("plot", help="draw success, improvement, time and tokens of the stored comparison")
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
    _echo_table(agents)
    click.echo()
    _echo_table(tasks)
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
    return prepare_task(entry, workspace, python=options.python, downloads=getattr(options, "outpath", None))


def _run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if options.resume is not None:
        return _resume(options)
    workspace = open_workspace(options.results, options.config)
    registry = load_agents()
    task = registry.task(options.task)
    if options.agent is not None:
        if given := [name for name in _OF_DESCRIBED if getattr(options, name) is not None]:
            parser.error(f"--{given[0].replace('_', '-')} does not go with --agent: the registry says it")
        return _run_registered(options, registry, task, workspace)
    if options.as_it_stands or options.force:
        parser.error("--as-it-stands and --force go with --agent")
    agent = _described(options)  # before a dataset is measured: names of models are soon mistyped
    _prepared(task, workspace, options)
    described: dict[str, Any] = {
        "task": task.key,
        "agent": agent.model_dump(mode="json"),
        "seed": options.seed,
        "limits": {"steps": options.max_steps, "seconds": options.max_time},
        "work": str(((options.work_dir or Path("workspace")) / task.key).absolute()),
        "sandbox": options.sandbox,
        "python": str(options.python),
        "device": options.device,
    }
    folder = options.log_dir or Path("logs")
    if (folder / RUN_FILE).exists():
        parser.error(
            f"{folder} holds a run already: go on with it by --resume {folder}, or name another --log-dir"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RUN_FILE).write_text(dump_json(described), encoding="utf-8")
    try:
        return _run_described(folder, described, workspace, resume=False)
    except UserError:
        if not (Path(described["work"]) / "state").exists():  # nothing has begun that could be gone on with
            (folder / RUN_FILE).unlink()
        raise


def _run_registered(
    options: argparse.Namespace, registry: AgentRegistry, task: AgentTaskEntry, workspace: Workspace
) -> int:
    from agml_assets.agents.steps import AgentRun, make_evaluation, make_run

    agent = registry.agent(options.agent)
    _prepared(task, workspace, options)
    run = AgentRun(task, agent, workspace, options.sandbox, options.python, options.device)
    with run.held("agml-assets agents run"):
        if options.force or not run.is_current("run"):
            make_run(run, logger.info, as_it_stands=options.as_it_stands)
        if options.force or not run.is_current("evaluation"):
            make_evaluation(run)
    _tell(run.read("evaluation"))
    if options.log_dir is not None:
        _export(run.trials(), run.local_file("workspaces"), options.log_dir)
    return 0


def _described(options: argparse.Namespace) -> AgentEntry:
    """Return the agent that the options describe."""
    from agml_assets.agents.models import check_model, kind_of, refuse_key_files

    refuse_key_files(Path.cwd())
    kind = kind_of(options.agent_type or "research")
    thinks = kind in ("react", "research")
    if thinks and not options.llm_name:
        raise UserError(
            f"An agent of kind {kind} needs --llm-name, such as openai/gpt-5 or openai-api/local/llama."
        )
    names = (options.llm_name, options.fast_llm_name, options.edit_script_llm_name) if thinks else (None,) * 3
    model, fast, edit = (check_model(name) if name else None for name in names)
    key = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{kind}-{options.llm_name}" if thinks else kind)[:100]
    given = {"key": key, "kind": kind, "model": model, "fast_model": fast, "edit_model": edit, "seeds": 1}
    return AgentEntry.model_validate(given)


def _resume(options: argparse.Namespace) -> int:
    file = options.resume / RUN_FILE
    try:
        described = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UserError(
            f"There is no run to go on with in {options.resume}: {RUN_FILE} is missing or damaged. Name the "
            "--log-dir of a run of `agml-assets agents run`."
        ) from None
    if (options.resume / FILES["run"]).exists():
        raise UserError(f"The run in {options.resume} has come to its end; there is nothing to go on with.")
    return _run_described(options.resume, described, open_workspace(options.results, options.config), resume=True)


def _run_described(folder: Path, described: dict[str, Any], workspace: Workspace, *, resume: bool) -> int:
    from agml_assets.agents.evaluation import evaluate
    from agml_assets.agents.runs import read_trials, run_trials
    from agml_assets.agents.steps import AgentRun, baseline

    entry = load_agents().task(described["task"])
    agent = AgentEntry.model_validate(described["agent"])
    run = AgentRun(entry, agent, workspace, python=Path(described["python"]))
    limits = {name: value for name, value in described["limits"].items() if value is not None}
    done = run_trials(
        run.task,
        agent,
        (described["seed"],),
        Path(described["work"]),
        limits=entry.limits.model_copy(update=limits),
        sandbox=described["sandbox"],
        python=Path(described["python"]),
        gpu=described["device"],
        judge=run.judge,
        on_progress=logger.info,
        resume=resume,
    )
    for name, file in (("workspaces", done.workspaces), ("run", done.eval_file)):
        shutil.copyfile(file, folder / FILES[name])
    trials = read_trials(done.eval_file, done.workspaces)
    found = evaluate(trials, run.task.entry, agent, baseline(run), run.task.reference)
    (folder / FILES["evaluation"]).write_text(dump_json(found), encoding="utf-8")
    _export(trials, done.workspaces, folder)
    _tell(found)
    return int(any(trial.ending == "error" for trial in trials))


def _export(trials: Sequence[Any], workspaces: Path, folder: Path) -> None:
    """Write the old log tree of every trial; of several, each into a folder of its own."""
    from agml_assets.agents.old_logs import export_old_logs

    for trial in trials:
        export_old_logs(trial, workspaces, folder if len(trials) == 1 else folder / f"seed_{trial.seed}")
    click.echo(f"Logs in {folder}")


def _tell(found: dict[str, Any]) -> None:
    """Say how the trials of an agent on a task ended."""
    rows: list[Sequence[str]] = [("seed", "ending", found["metric"], "improvement", "success", "steps", "minutes")]
    for one in found["trials"]:
        rows.append(
            (
                str(one["seed"]),
                one["ending"],
                _number(one["raw"]),
                "" if one["improvement"] is None else f"{one['improvement']:+.1%}",
                {True: "yes", False: "no", None: "cannot be told"}[one["success"]],
                str(one["steps"]),
                f"{one['seconds'] / 60:.1f}",
            )
        )
    _echo_table(rows)
    for one in found["trials"]:
        if one["raw"] is None:
            logger.warning(
                "Seed %d has no score: %s", one["seed"], one["reason"] or one["error"] or "no submission"
            )
    if found["undecidable"]:
        logger.warning("Whether it succeeded cannot be told: %s.", found["undecidable"])


def _run_all(options: argparse.Namespace) -> int:
    """Run everything, each run in a process of its own, so that one that dies leaves the others alone."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    runs = [
        (
            model,
            task,
            seed,
            options.log_root / _slug(model or options.agent_type or "research") / stamp / task / f"seed_{seed}",
        )
        for model in options.models or [None]
        for task in options.tasks
        for seed in range(1, options.seeds + 1)
    ]
    registry, workspace = load_agents(), open_workspace(options.results, options.config)
    for key in dict.fromkeys(options.tasks):  # once, before several runs would each begin to
        _prepared(registry.task(key), workspace, options)
    running: list[subprocess.Popen[bytes]] = []
    with ThreadPoolExecutor(options.jobs, thread_name_prefix="agents") as pool:
        try:
            codes = list(pool.map(lambda run: _run_one(options, running, *run), runs))
        except BaseException:  # interrupted: what has not begun shall not begin
            pool.shutdown(wait=False, cancel_futures=True)
            for process in running:
                process.terminate()
            raise
    rows = [("task", "agent", "log folder", "state")]
    for (model, task, _, folder), code in zip(runs, codes, strict=True):
        rows.append(
            (
                task,
                model or options.agent_type or "research",
                str(folder),
                "done" if code == 0 else f"failed ({code})",
            )
        )
    _echo_table(rows)
    return int(any(codes))


def _run_one(
    options: argparse.Namespace,
    running: "list[subprocess.Popen[bytes]]",
    model: str | None,
    task: str,
    seed: int,
    folder: Path,
) -> int:
    command = [sys.executable, "-P", "-m", "agml_assets.cli", "agents", "run", "--task", task]
    command += ["--log-dir", str(folder), "--work-dir", str(folder / "workspace")]
    given = {"--llm-name": model, "--seed": seed}
    names = ("agent_type", "fast_llm_name", "edit_script_llm_name", "device", "python", "max_steps", "max_time")
    given |= {
        f"--{name.replace('_', '-')}": getattr(options, name) for name in (*names, "sandbox", "results", "config")
    }
    for name, value in given.items():
        if value is not None:
            command += [name, str(value)]
    folder.mkdir(parents=True, exist_ok=True)
    logger.info(
        "Seed %d of %s on %s begins; its log is %s.",
        seed,
        model or options.agent_type or "research",
        task,
        folder / "log",
    )
    with (folder / "log").open("wb") as log:
        # By its standard input it hears when this process ends, however it does.
        process = subprocess.Popen(  # noqa: S603
            [*command, "--end-with-parent"], stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        )
    with process:
        running.append(process)
        return process.wait()


def _evaluate(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from agml_assets.agents.old_logs import read_old_logs, results_text
    from agml_assets.agents.steps import AgentRun, baseline, write_leaderboard

    workspace = open_workspace(options.results, options.config)
    registry = load_agents()
    if options.log_folder is None:
        if options.task is not None:
            parser.error("--task goes with --log-folder; without it all stored runs are compared")
        if options.rescore:
            _rescore(registry, workspace, options.python)
        written = write_leaderboard(workspace, registry)
        _tell_standings(written.document)
        click.echo(f"Compared in {written.path}")
        return 0
    if options.task is None:
        parser.error("--log-folder needs --task")
    entry = registry.task(options.task)
    run = AgentRun(entry, AgentEntry(key="starter", kind="starter"), workspace, python=options.python)
    records = read_old_logs(
        options.log_folder,
        run.task,
        run.judge,
        baseline=baseline(run).value,
        eval_intermediate=options.eval_intermediate,
    )
    options.output_file.parent.mkdir(parents=True, exist_ok=True)
    options.output_file.write_text(results_text(records), encoding="utf-8")
    click.echo(f"{len(records)} trials in {options.output_file}")
    return 0


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
        rows.append(
            (
                cell["task"],
                cell["agent"],
                "cannot be told" if success is None else f"{success['successes']} of {success['n']}",
                "" if gain is None else f"{gain:+.1%}",
                str(cell["n"] - cell["scored"]),
                str(cell["failed"]),
                str(cell["timed_out"]),
            )
        )
    _echo_table(rows)
    for name, reason in document["left_out"].items():
        logger.info("Left out: %s: %s", name, reason)


def _plot(options: argparse.Namespace) -> int:
    from agml_assets.agents.plots import draw_plots
    from agml_assets.agents.steps import write_leaderboard

    written = write_leaderboard(open_workspace(options.results, options.config), load_agents())
    files = draw_plots(written.document, options.output_dir)
    click.echo(f"{len(files)} plots in {options.output_dir}")
    return 0


def _echo_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "model"


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
