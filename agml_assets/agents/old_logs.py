"""The log tree of MLAgentBench: written from a trial on request, and read back by the rules of its evaluation.

Nothing here imports, runs or unpickles what a tree holds; scores come from the `judge` that is given.
"""

import errno
import json
import logging
import math
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from blake3 import blake3

from agml_assets.agents.error_kinds import FAILED, old_flags
from agml_assets.agents.evaluation import Yardstick, chosen_steps, evaluate_trial
from agml_assets.agents.snapshots import Snapshot
from agml_assets.agents.solvers.research import SECTIONS, section_of
from agml_assets.agents.task import AgentTask, Verdict
from agml_assets.agents.trials import Ending, Step, Trial, Usage
from agml_assets.disk import describe_bytes, named_when_full
from agml_assets.errors import UserError

RUN_FILE = "run.json"
"""What `agml-assets agents run` was asked for, beside the log tree: `--resume` goes on from it."""

LEFT_OUT = "left_out.json"
"""In `env_log/`, an addition to the old tree: bytes of each file that was too large for the last snapshot."""

FINAL_ANSWER = "Final Answer"

PRIMITIVE = (
    *("List Files", "Read File", "Write File", "Append File", "Copy File"),
    *("Undo Edit Script", "Execute Script", "Python REPL", FINAL_ANSWER),
)
"""Old actions that call no model."""

OLD_NAMES = {
    **{name.lower().replace(" ", "_"): name for name in PRIMITIVE},
    **{
        name.lower().replace(" ", "_"): name
        for name in ("Understand File", "Inspect Script Lines", "Reflection", "Retrieval from Research Log")
    },
    "append_summary_to_research_log": "Append Summary to Research Log",
    "edit_script": "Edit Script (AI)",
    "edit_script_ai": "Edit Script (AI)",
    "edit_script_segment": "Edit Script Segment (AI)",
    "edit_script_segment_ai": "Edit Script Segment (AI)",
    "submit": FINAL_ANSWER,
}
"""Old names of tools; all others keep theirs."""

_PROMPT, _TOKENS = (
    "===================prompt=====================",
    "===================tokens=====================",
)
_RESPONSE = re.compile(r"={19}(.*) response \((.*)\)={21}\n?")
_COUNT = re.compile(r"Number of (prompt|sampled) tokens: (\d{1,12})\s*")
_START = "================================Start============================="
_TIMED_OUT, _KILLED = "Timed out!", "The run ended with its process."
_DIGEST = re.compile(r"[0-9a-f]{64}")
_CHUNK = 1 << 20

Judge = Callable[[AgentTask, Path], Verdict]
"""What a folder that holds a submission is worth."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Exported:
    """An exported log tree.

    Attributes:
        folder: Its root.
        left_out: Files of the workspace that are not in it, and why; by `<step>/<path>`.
    """

    folder: Path
    left_out: Mapping[str, str] = field(default_factory=dict)


def export_old_logs(trial: Trial, workspaces_zip: Path, folder: Path) -> Exported:
    """Write the log tree that MLAgentBench would have left of a trial.

    Tools bear their old names (`OLD_NAMES`). Names of files come from the agent: none is written outside its
    snapshot's folder, and all are plain files. In logs of calls, `=` is broken where a text would pass for a
    banner.

    Args:
        trial: The trial.
        workspaces_zip: The contents of its files, `blobs/<BLAKE3>`.
        folder: A folder without a log tree, or one to be made. A `log` that is there stays: what the run printed.

    Raises:
        UserError: The folder holds a log tree, the archive cannot be read, or the disk is too small or full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any((folder / name).exists() for name in ("agent_log", "env_log")):
        raise UserError(f"{folder} holds a log tree already: name a new folder for the logs of one trial.")
    for name in ("agent_log", "env_log/tool_logs", "env_log/traces"):
        (folder / name).mkdir(parents=True)
    steps = _old_steps(trial)
    infos = _action_infos(trial, steps)
    with named_when_full(folder, f"the log tree of {trial.task}/{trial.agent}"):
        if not (folder / "log").exists():
            _write(folder / "log", _printed(trial, steps))
        _write(folder / "agent_log" / "main_log", _main_log(trial, steps, infos))
        _write_agent_states(trial, steps, infos, folder / "agent_log")
        _write_calls(trial, folder)
        trace = {
            "steps": [_step_values(step) for step in steps],
            "low_level_steps": [
                _step_values(step)
                for step in steps
                if step.action in PRIMITIVE
                and step.action != FINAL_ANSWER
                and not step.observation.startswith("EnvError")
            ],
            "action_infos": infos,
            "task_description": trial.problem,
        }
        _write(folder / "env_log" / "trace.json", json.dumps(trace, indent=4))
        _write(folder / "env_log" / "overall_time.txt", str(trial.seconds))
        if said := _error_of(trial):
            _write(folder / "env_log" / "error.txt", said)
        left_out = _write_snapshots(trial, workspaces_zip, folder / "env_log" / "traces")
        if trial.left_out:
            _write(folder / "env_log" / LEFT_OUT, json.dumps(dict(trial.left_out), indent=4))
    return Exported(folder, left_out)


def read_old_logs(
    log_folder: Path,
    task: AgentTask,
    judge: Judge,
    *,
    baseline: float | None = None,
    eval_intermediate: bool = False,
) -> list[dict[str, Any]]:
    """Return a record (`evaluation.evaluate_trial`) of every run below a folder, in the order of their paths.

    The old fields are those of MLAgentBench's evaluation on the same folder, with two differences: a run without
    `log` or `main_log` is read all the same, and a `trace.json` in a workspace's snapshot is no run.

    Args:
        log_folder: A folder that holds runs, at any depth.
        task: The task that all of them worked on.
        judge: Gives the score of `step_final_files`, and of other snapshots.
        baseline: Score of the starter code; None means the manifest's.
        eval_intermediate: Whether snapshots of steps are scored as well.

    Raises:
        UserError: The folder does not exist, or the judge cannot work here.
    """
    if not log_folder.is_dir():
        raise UserError(f"{log_folder} is no folder: name the one that holds the logs.")
    reference = task.entry.reference if task.reference is None else task.reference
    held = Yardstick(task.entry.direction, task.entry.baseline if baseline is None else baseline, reference)
    records: list[dict[str, Any]] = []
    for trace in _traces(log_folder):
        if _task_of(trace) not in (None, task.key):
            _logger.info("%s is of another task and is left out.", trace)
            continue
        trial = _read_trial(trace, task, len(records) + 1)
        if trial is not None:
            records.append(_old_record(trace, trial, task, judge, held, eval_intermediate))
    return records


def results_text(records: Iterable[Mapping[str, Any]]) -> str:
    """Return records as MLAgentBench's evaluation writes them: a JSON object by their paths, indented by four."""
    return json.dumps({record["path"]: record for record in records}, indent=4, allow_nan=False) + "\n"


# --- Writing


def _old_steps(trial: Trial) -> list[Step]:
    """Return the steps with old names; what was submitted otherwise than by a step gets a final one."""
    steps = [Step(**{**vars(step), "action": OLD_NAMES.get(step.action, step.action)}) for step in trial.steps]
    if trial.submitted and all(step.action != FINAL_ANSWER for step in steps):
        last = steps[-1] if steps else None
        end = Step(
            last.index + 1 if last else 0, FINAL_ANSWER, {"final_answer": ""}, "end", last.timestamp if last else 0
        )
        steps.append(end)
    return steps


def _step_values(step: Step) -> dict[str, Any]:
    return {
        "action": {"name": step.action, "args": dict(step.arguments)},
        "observation": step.observation,
        "timestamp": step.timestamp,
    }


def _action_infos(trial: Trial, steps: Iterable[Step]) -> dict[str, Any]:
    described = {OLD_NAMES.get(name, name): (name, text) for name, text in trial.tools.items()}
    infos = {}
    steps = list(steps)
    for name in dict.fromkeys([*described, *(step.action for step in steps)]):
        tool, text = described.get(name, (name, ""))
        arguments = dict.fromkeys(key for step in steps if step.action == name for key in step.arguments)
        infos[name] = {
            "name": name,
            "description": text,
            "usage": dict.fromkeys(arguments, ""),
            "return_value": "",
            "function": "<lambda>" if name == FINAL_ANSWER else tool,
            "is_primitive": name in PRIMITIVE,
        }
    return infos


def _sections(step: Step) -> dict[str, str]:
    acted = {"Action": step.action, "Action Input": json.dumps(dict(step.arguments))}
    said = {one.title: section_of(step.thought, one.title) for one in SECTIONS.values()}
    thought = {title: text for title, text in said.items() if text} or {"Thought": step.thought}
    return {**thought, **acted} if step.thought else acted


def _said(step: Step) -> str:
    return "\n".join(f"{name}: {text}" for name, text in _sections(step).items())


def _printed(trial: Trial, steps: Iterable[Step]) -> str:
    parts = [trial.problem, *(f"Step {step.index}: {step.action}\n{step.observation}" for step in steps)]
    return "\n\n".join([*parts, *([trial.error] if trial.error else [])]) + "\n"


def _main_log(trial: Trial, steps: Iterable[Step], infos: Mapping[str, Any]) -> str:
    head = f"Enabled Tools in Prompt:{list(infos)}\n{_START}\n{trial.problem}\n"
    return head + "".join(
        f"Step {step.index}:\n{_said(step)}\nObservation:\n\n```\n{step.observation}\n```\n\n" for step in steps
    )


def _write_agent_states(trial: Trial, steps: list[Step], infos: Mapping[str, Any], folder: Path) -> None:
    """Write the state of the agent after each step; one without a model has none."""
    if not trial.calls:
        return
    tools = "".join(f"- {name}:\n    {info['description']}\n\n" for name, info in infos.items())
    state: dict[str, Any] = {
        "args": {"task": trial.task, "agent_type": trial.agent, "llm_name": str(trial.calls[0]["model"])},
        "valid_format_entires": ["Thought", "Action", "Action Input"],
        "log_dir": "agent_log",
        "action_infos": infos,
        "all_tool_names": list(infos),
        "prompt_tool_names": list(infos),
        "tools_prompt": tools,
        "initial_prompt": trial.problem,
        "history_steps": [],
    }
    for step in steps:
        told = {"step_idx": step.index + 1, "action": _sections(step), "observation": step.observation}
        state["history_steps"].append(told)
        _write(folder / f"agent_{step.index}_{step.index}.json", json.dumps(state, indent=4))


def _write_calls(trial: Trial, folder: Path) -> None:
    texts: dict[Path, list[str]] = {}
    for call in trial.calls:
        step = int(call["step"])
        of_tool = folder / "env_log" / "tool_logs" / f"step_{step}_tool_log.log"
        file = of_tool if call.get("tool") else folder / "agent_log" / f"step_{step}_log.log"
        texts.setdefault(file, []).append(_call(call))
    for file, parts in texts.items():
        _write(file, "".join(parts))


def _call(call: Mapping[str, Any]) -> str:
    model = str(call["model"]).replace("\n", " ")
    return (
        f"\n{_PROMPT}\n{_without_banners(call['input'])}"
        f"\n==================={model} response ({call.get('max_tokens', '-')})=====================\n"
        f"{_without_banners(call['output'])}\n{_TOKENS}\n"
        f"Number of prompt tokens: {call['input_tokens']}\nNumber of sampled tokens: {call['output_tokens']}\n\n\n"
    )


def _without_banners(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, indent=4, default=str)
    return text.replace("=" * 19, "=" * 18 + " =")


def _write_snapshots(trial: Trial, workspaces_zip: Path, folder: Path) -> dict[str, str]:
    snapshots = {f"step_{step.index}_files": step.files for step in trial.steps}
    snapshots["step_final_files"] = trial.final_files
    try:
        with zipfile.ZipFile(workspaces_zip) as archive:
            blobs = {info.filename.removeprefix("blobs/"): info for info in archive.infolist()}
            _require_room(
                folder, (blobs[d].file_size for s in snapshots.values() for d in s.values() if d in blobs)
            )
            left_out = {}
            for name, files in snapshots.items():
                (folder / name).mkdir()
                for path, digest in sorted(files.items()):
                    why = _write_blob(archive, blobs.get(digest), digest, folder / name, path)
                    if why:
                        left_out[f"{name}/{path}"] = why
            return left_out
    except (FileNotFoundError, zipfile.BadZipFile, NotImplementedError) as error:
        raise UserError(
            f"The workspaces of {trial.task}/{trial.agent} cannot be read from {workspaces_zip}: {error}. Run "
            "it again, or copy the archive back from where it was made."
        ) from None


def _require_room(folder: Path, sizes: Iterable[int]) -> None:
    needed, free = sum(sizes), shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"The snapshots take {describe_bytes(needed)}, and {folder} has {describe_bytes(free)} free: every "
            "step has a full copy of the workspace in the old log tree. Name a folder on a larger disk."
        )


def _write_blob(
    archive: zipfile.ZipFile, blob: zipfile.ZipInfo | None, digest: str, folder: Path, path: str
) -> str:
    """Write one file of a snapshot; return why it was not, or nothing."""
    parts = _inside(path)
    if parts is None:
        return "its name would lead out of the folder"
    if blob is None or not _DIGEST.fullmatch(digest):
        return "its content is not in the archive"
    place = folder.joinpath(*parts)
    hashed = blake3()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        # Nothing but this function writes here, so no link can stand in the way.
        with place.open("xb") as out, archive.open(blob) as source:
            while chunk := source.read(_CHUNK):
                hashed.update(chunk)
                out.write(chunk)
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        return "another file of the snapshot stands in its place"
    except (OSError, UnicodeEncodeError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ):
            raise
        return "this file system refuses its name"
    if hashed.hexdigest() != digest:
        place.unlink()
        return "its content in the archive is another"
    return ""


def _inside(path: str) -> tuple[str, ...] | None:
    """Return the parts of a relative path that stays where it is; None for any other."""
    pure = PurePosixPath(path)
    if not pure.parts or pure.is_absolute() or ".." in pure.parts or "\0" in path:
        return None
    return pure.parts


def _write(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8", errors="backslashreplace", newline="\n") as out:
        out.write(text)


def _error_of(trial: Trial) -> str:
    """Return what `error.txt` says: nothing of a trial that ended by itself or at a limit of steps or tokens."""
    if trial.ending == "time_limit":
        return f"{_TIMED_OUT}\n{trial.error}".strip()
    if trial.ending == "killed":
        return f"{_KILLED}\n{trial.error}".strip()
    return trial.error or ("The run failed." if trial.ending in FAILED else "")


# --- Reading


def _task_of(trace: Path) -> str | None:
    """Return the task that is named beside a log tree of ours; None of an old one, which names none."""
    try:
        return str(json.loads((trace.parents[1] / RUN_FILE).read_bytes())["task"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _traces(log_folder: Path) -> Iterator[Path]:
    """Return the `trace.json` of every run; none of those that agents left in their workspaces."""
    for place, folders, files in os.walk(log_folder):
        is_run = "trace.json" in files or Path(place).name == "env_log"
        folders[:] = sorted(name for name in folders if not (is_run and name in ("traces", "tool_logs")))
        if "trace.json" in files:
            yield Path(place) / "trace.json"


def _read_trial(trace: Path, task: AgentTask, seed: int) -> Trial | None:
    try:
        document = json.loads(trace.read_text(encoding="utf-8", errors="replace"))
        steps = tuple(_read_step(place, one) for place, one in enumerate(document["steps"]))
        problem = str(document.get("task_description", ""))
        tools = {name: str(info.get("description", "")) for name, info in document.get("action_infos", {}).items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _logger.warning("%s is left out: it cannot be read as a trace (%s)", trace, error)
        return None
    error_text = _text(trace.with_name("error.txt"))
    seconds = _seconds(trace)
    submitted = any(step.action == FINAL_ANSWER for step in steps)
    return Trial(
        task=task.key,
        agent=trace.parent.parent.name,
        seed=seed,
        task_digest=task.digest,
        ending=_ending(error_text, seconds, submitted=submitted),
        score=None,
        reason="",
        submitted=submitted,
        steps=steps,
        seconds=seconds or 0.0,
        usage=_read_usage(trace.parent),
        error=error_text or "",
        problem=problem,
        tools=tools,
    )


def _read_step(place: int, values: Mapping[str, Any]) -> Step:
    action, arguments = values["action"]["name"], values["action"]["args"]
    return Step(
        index=place,
        action=str(action),
        arguments=arguments if isinstance(arguments, Mapping) else {"input": arguments},
        observation=str(values["observation"]),
        timestamp=float(values["timestamp"]),
    )


def _ending(error: str | None, seconds: float | None, *, submitted: bool) -> Ending:
    if error is not None:
        if _TIMED_OUT in error:
            return "time_limit"
        return "killed" if error.startswith(_KILLED) else "error"
    if seconds is None:
        return "killed"
    return "submitted" if submitted else "no_submission"


def _seconds(trace: Path) -> float | None:
    text = _text(trace.with_name("overall_time.txt"))
    if text is None:
        return None
    try:
        return max(0.0, float(text)) if float(text) < float("inf") else 0.0
    except ValueError:
        return 0.0


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, IsADirectoryError):
        return None


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as handle:
            yield from handle
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return


def _read_usage(env_log: Path) -> dict[str, Usage]:
    """Return the tokens that the logs of calls state, by model."""
    tokens: dict[str, dict[str, int]] = {}
    agent_log = env_log.parent / "agent_log"
    for file in sorted([*agent_log.glob("*.log*"), *(env_log / "tool_logs").glob("*.log*")]):
        model, counting = "", False
        for line in _lines(file):
            if found := _RESPONSE.fullmatch(line):
                model, counting = found[1], False
            elif line.rstrip("\n") == _TOKENS:
                counting = True
            elif counting and (found := _COUNT.fullmatch(line)):
                of_model = tokens.setdefault(model, {"prompt": 0, "sampled": 0})
                of_model[found[1]] += int(found[2])
    return {
        model: Usage(one["prompt"], one["sampled"], one["prompt"] + one["sampled"])
        for model, one in tokens.items()
    }


def _old_record(
    trace: Path, trial: Trial, task: AgentTask, judge: Judge, held: Yardstick, eval_intermediate: bool
) -> dict[str, Any]:
    env_log = trace.parent
    chosen = chosen_steps(len(trial.steps)) if eval_intermediate else []
    scores: list[float] = []
    steps = list(trial.steps)
    for place in chosen:
        snapshot = env_log / "traces" / f"step_{place}_files"
        if snapshot.is_dir():
            score = _judged(judge, task, snapshot).score
            scores.append(score if score is not None and math.isfinite(score) else 0.0)
            steps[place] = Step(**{**vars(steps[place]), "score": score})
    final = env_log / "traces" / "step_final_files"
    verdict = _judged(judge, task, final) if final.is_dir() else Verdict(None, "there is no final snapshot")
    lacking = Snapshot(left_out=_left_out(env_log)).lacking(task)
    if verdict.score is None and lacking:
        verdict = Verdict(None, f"It cannot be scored from its logs: {lacking}.")
    judged = Trial(
        **{**vars(trial), "steps": tuple(steps), "score": verdict.score, "reason": verdict.reason},
    )
    record = evaluate_trial(judged, held, str(trace))
    run = env_log.parent
    failed = (env_log / "error.txt").exists() or not (env_log / "overall_time.txt").exists()
    return {
        **record,
        "score": [*scores, *([] if record["raw"] is None else [record["raw"]])],
        "score_steps": chosen,
        "error": trial.error,
        "extra": old_flags(_lines(run / "log"), _lines(run / "agent_log" / "main_log"), failed=failed),
    }


def _left_out(env_log: Path) -> dict[str, int]:
    try:
        found = json.loads((env_log / LEFT_OUT).read_bytes())
        return {str(path): int(size) for path, size in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _judged(judge: Judge, task: AgentTask, folder: Path) -> Verdict:
    """Return what a snapshot is worth; what goes wrong with one is its reason, as the old evaluation goes on."""
    try:
        return judge(task, folder)
    except UserError:
        raise
    except Exception as error:  # whatever a scorer trips over in files that an agent made
        return Verdict(None, f"{type(error).__name__}: {error}")
