"""Tasks in the old benchmark's folder format: `env/` for the agent, `scripts/` hidden from it.

The folder is read, never written to: `prepare.py` runs on a copy, and `eval.py` in a sandbox of its own. How
public and private parts of known competitions are split is `splits`.
"""

import json
import math
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

import polars as pl

from agml_assets.agents.sandbox.choose import image_for_scoring
from agml_assets.agents.sandbox.confinement import Confinement, free_user
from agml_assets.agents.sandbox.execute import run_confined
from agml_assets.agents.sandbox.paths import walk
from agml_assets.agents.submission import InvalidSubmission
from agml_assets.agents.task import AgentTask, Verdict
from agml_assets.agents.tasks.splits import SPLITS, Published, Split
from agml_assets.agents.tasks.stage import (
    Made,
    Stage,
    content_digest,
    copy_tree,
    link_or_copy,
    refuse_links_outside,
    state_of,
)
from agml_assets.errors import UserError, did_you_mean
from agml_assets.registry.agents import AgentTaskEntry, Submission, task_folder

PREPARED = "prepared"
"""Marker of the old benchmark in `scripts/`: its `prepare.py` has run."""

ANSWER_FILES = ("answers.csv", "answer.csv")
"""In `scripts/`: answers to a submission that the manifest declares."""

_MOST_FILES = 100_000  # of a workspace that is scored by eval.py
_TYPES = {"number": pl.Float64, "integer": pl.Int64, "text": pl.String}

_ACCOUNT = Path("/opt/kaggle")  # where prepare.py sees the account

_PREPARE = "import os, runpy; os.chdir('scripts'); runpy.run_path('prepare.py', run_name='__main__')"

# What runs in the sandbox. Standard output is set aside before anything of the task is imported, so that what
# it prints goes to standard error and is not taken for the score.
_EVALUATE = """
import importlib.util, json, os, sys
result = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
submission = os.path.abspath("submission")
os.chdir("task/scripts")
sys.path.insert(0, os.getcwd())
spec = importlib.util.spec_from_file_location("eval", os.path.abspath("eval.py"))
module = importlib.util.module_from_spec(spec)
sys.modules["eval"] = module
spec.loader.exec_module(module)
score = float(module.get_score(submission))
result.write(json.dumps({"score": score}))
result.close()
"""


def make_from_folder(entry: AgentTaskEntry, stage: Stage, *, python: Path) -> Made:
    """Make a task from a folder.

    Args:
        entry: A manifest with a folder.
        stage: Where it is made.
        python: Interpreter for `prepare.py`.

    Raises:
        UserError: The folder is not in the format, a file of `env/` leads out of it, `prepare.py` fails, or
            there is nothing to score by.
    """
    source = _require_folder(entry)
    split = _find_split(entry)
    work = stage.folder / "work"
    copy_tree(source / "env", work / "env")
    copy_tree(source / "scripts", work / "scripts")
    if split is None or split.after_prepare:
        run_prepare(entry, work, python)
        refuse_links_outside(work / "env", entry.key)
    patterns = read_patterns(work / "scripts")
    problem = (work / "scripts" / "research_problem.txt").read_text(encoding="utf-8-sig")
    made = Published([])
    if split is not None:
        made = split.make(entry, work / "env", stage)
        problem += f"\n{made.note}\n" if made.note else ""
    elif entry.scored and entry.metric is not None:
        stage.write_answers(_read_answers(entry, work / "scripts"))
    elif entry.scored:
        _keep_scorer(entry, work, stage)
    public = list(made.parts)
    for part in protected_parts(work / "env", patterns):
        if part not in public:
            (stage.public / part).parent.mkdir(parents=True, exist_ok=True)
            (work / "env" / part).rename(stage.public / part)
            public.append(part)
    shutil.rmtree(stage.env)
    (work / "env").rename(stage.env)
    shutil.rmtree(work)
    return Made(
        entry,
        problem,
        tuple(sorted(public)),
        patterns,
        reference=made.reference,
        baseline=made.baseline,
        guess=made.guess,
    )


def folder_identity(entry: AgentTaskEntry, known: Mapping[str, str]) -> dict[str, str]:
    """Return the `content` of a task's folder, a digest of its files, and their `state`, which is quick to tell.

    Args:
        entry: A manifest with a folder.
        known: What was returned another time; its content is taken where the state is the same.

    Raises:
        UserError: The folder is not in the format.
    """
    source = _require_folder(entry)
    parts = (source / "env", source / "scripts", *mounts_of(entry).values())
    state = state_of(parts)
    content = known["content"] if known.get("state") == state else content_digest(parts)
    return {"content": content, "state": state}


def mounts_of(entry: AgentTaskEntry) -> dict[str, Path]:
    """Return the folders that scripts and scorer see at an absolute path, by that path.

    Raises:
        UserError: One is not there, with what the manifest says about it.
    """
    found = {}
    for target, name in entry.preparation.mounts.items():
        folder = task_folder(entry) / name
        if not folder.is_dir():
            raise UserError(f"Task {entry.key!r}: {folder} does not exist. {entry.preparation.note}".strip())
        found[target] = folder.resolve()
    return found


def is_read_only(path: str, patterns: tuple[str, ...]) -> bool:
    """Tell whether a path, relative to the workspace, matches one of the old benchmark's patterns.

    They are matched by `fnmatch` against `./name` at the top and `folder/name` below it; `*` takes slashes too.
    """
    named = path if "/" in path else f"./{path}"
    return any(fnmatchcase(named, pattern) for pattern in patterns)


def read_patterns(scripts: Path) -> tuple[str, ...]:
    """Return the patterns of `read_only_files.txt`, one a line; none where there is no such file."""
    file = scripts / "read_only_files.txt"
    if not file.is_file():
        return ()
    return tuple(line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip())


def protected_parts(env: Path, patterns: tuple[str, ...]) -> list[str]:
    """Return what of a folder is read-only, by relative path: files, or a folder where all its files are.

    Links stay as they are: what they lead to is read-only where that is.
    """

    def below(folder: Path) -> tuple[bool, list[str]]:
        every, parts = True, []
        for item in sorted(folder.iterdir()):
            name = item.relative_to(env).as_posix()
            if item.is_dir() and not item.is_symlink():
                whole, inside = below(item)
                every &= whole
                parts += inside
            elif item.is_symlink() or not is_read_only(name, patterns):
                every = False
            else:
                parts.append(name)
        if every and parts and folder != env:
            return True, [folder.relative_to(env).as_posix()]
        return every and bool(parts), parts

    return below(env)[1] if patterns else []


def run_prepare(entry: AgentTaskEntry, work: Path, python: Path) -> None:
    """Run a task's `prepare.py`, if it has one, on a copy: with network, nothing but the copy writable.

    Raises:
        UserError: It fails, with the end of what it said and what the manifest says about it.
    """
    scripts = work / "scripts"
    if not (scripts / "prepare.py").is_file() or (scripts / PREPARED).is_file():
        return
    with tempfile.TemporaryDirectory(prefix="agml-account-") as place, _given(work, place) as user:
        bound, environment = {}, {}
        if named := os.environ.get("KAGGLE_CONFIG_DIR"):
            account = Path(place) / "kaggle"
            shutil.copytree(named, account)  # the user's own files are for nobody else to read
            _give(account, user)
            bound, environment = {str(_ACCOUNT): account}, {"KAGGLE_CONFIG_DIR": str(_ACCOUNT)}
        confinement = Confinement(
            work, python, entry.limits, bound=bound, network=True, user=user, image=image_for_scoring()
        )
        finished = run_confined(
            [confinement.interpreter, "-c", _PREPARE],
            confinement,
            timeout_s=entry.limits.seconds,
            stdin=b"\n" * 10,  # some wait for a key; accounts and rules are checked by who serves the data
            env=environment,
        )
    if finished.stopped or finished.returncode:
        why = _ending(finished.stopped, finished.returncode, finished.stderr)
        raise UserError(f"Task {entry.key!r}: its prepare.py failed: {why} {entry.preparation.note}".strip())
    (scripts / PREPARED).write_text("success")


@contextmanager
def _given(folder: Path, *others: str) -> Iterator[int]:
    """Let the sandbox's user own a folder, and have it back; yields the user."""
    user = free_user(0)
    if os.geteuid() == 0:
        for other in others:
            Path(other).chmod(0o755)
    _give(folder, user)
    try:
        yield user
    finally:
        _give(folder, os.geteuid())


def _give(folder: Path, user: int) -> None:
    """Change the owner of a folder and all in it, where we may; links themselves, not what they lead to."""
    if os.geteuid() != 0:
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, user, follow_symlinks=False)


def evaluate(task: AgentTask, folder: Path, python: Path) -> Verdict:
    """Return what a task's own `eval.py` says of a workspace.

    It runs without network, on a copy of the workspace's regular files, which it cannot change, nor its own
    folder. What it prints is not its score. But what it imports or unpickles of the workspace can make up any
    number.

    Args:
        task: A task without a declared metric.
        folder: The workspace; links in it are left out, so that none leads to the answers.
        python: Interpreter.
    """
    limits = task.entry.limits
    with tempfile.TemporaryDirectory(prefix="agml-scoring-") as place:
        workspace, copy = Path(place) / "workspace", Path(place) / "submission"
        workspace.mkdir()
        try:
            _copy_regular(folder, copy, limits.disk_mb * 10**6)
        except InvalidSubmission as error:
            return Verdict(None, str(error))
        confinement = Confinement(
            workspace,
            python,
            limits,
            read_only={"submission": copy, "task": task.private},
            writable=False,
            bound=task.mounts,
            user=free_user(0),
            image=image_for_scoring(),
        )
        finished = run_confined(
            [confinement.interpreter, "-c", _EVALUATE],
            confinement,
            timeout_s=limits.seconds_per_command,
        )
    if finished.stopped or finished.returncode:
        return Verdict(None, f"eval.py failed: {_ending(finished.stopped, finished.returncode, finished.stderr)}")
    try:
        score = json.loads(finished.stdout)["score"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return Verdict(None, "eval.py gave no score.")
    if not isinstance(score, int | float) or not math.isfinite(score):
        return Verdict(None, f"eval.py gave {score!r:.40}, which is no finite number.")
    return Verdict(float(score))


def _require_folder(entry: AgentTaskEntry) -> Path:
    source = task_folder(entry)
    for part in ("env", "scripts/research_problem.txt"):
        if not (source / part).exists():
            raise UserError(
                f"Task {entry.key!r}: {source / part} does not exist. A task's folder has `env/`, with what the "
                "agent starts from, and `scripts/research_problem.txt`, with what it is told. "
                + entry.preparation.note
            )
    refuse_links_outside(source / "env", entry.key)
    return source


def _find_split(entry: AgentTaskEntry) -> Split | None:
    name = entry.preparation.by
    if name is None:
        return None
    if name not in SPLITS:
        raise UserError(
            f"Task {entry.key!r}: preparation.by names {name!r}, which is no split.{did_you_mean(name, SPLITS)} "
            f"Splits: {', '.join(SPLITS)}."
        )
    return SPLITS[name]


def _keep_scorer(entry: AgentTaskEntry, work: Path, stage: Stage) -> None:
    """Put `scripts/` and, beside it, all of `env/` among the private files: scorers look for both."""
    if not (work / "scripts" / "eval.py").is_file():
        raise UserError(
            f"Task {entry.key!r}: its folder has no scripts/eval.py. Write one with get_score(folder), or let the "
            "manifest give `metric` and `submission`, or say `scored: false`."
        )
    shutil.copytree(work / "scripts", stage.private / "scripts", symlinks=True)
    shutil.copytree(work / "env", stage.private / "env", symlinks=True, copy_function=link_or_copy)


def _read_answers(entry: AgentTaskEntry, scripts: Path) -> pl.DataFrame:
    """Return the answers of a folder's own, as the manifest declares them.

    Raises:
        UserError: There are none, or not as declared; the file, column and row are named.
    """
    declared = entry.submission
    assert declared is not None
    file = next((scripts / name for name in ANSWER_FILES if (scripts / name).is_file()), None)
    if file is None:
        raise UserError(
            f"Task {entry.key!r}: its manifest gives a metric, and scripts/ holds no {ANSWER_FILES[0]}. Put "
            "the answers there: the columns of a submission, a row for every example."
        )
    try:
        frame = pl.read_csv(file, infer_schema=False, separator=declared.separator)
    except pl.exceptions.PolarsError as error:
        raise UserError(f"Task {entry.key!r}: {file.name} is no CSV: {str(error).partition(chr(10))[0]}") from None
    return type_answers(entry.key, declared, frame, file.name)


def type_answers(task: str, declared: Submission, frame: pl.DataFrame, file: str) -> pl.DataFrame:
    """Return answers that are all text as they are declared; of `probabilities`, the number of the right class.

    Raises:
        UserError: A column is missing, an id stands twice or is, or a value is not as declared.
    """
    columns = dict(declared.columns) or {frame.columns[-1]: "integer"}
    wanted = [*([declared.id_column] if declared.id_column is not None else []), *columns]
    for name in wanted:
        if name not in frame.columns:
            raise UserError(f"Task {task!r}: {file} has no column {name!r}.{did_you_mean(name, frame.columns)}")
    if frame.is_empty():
        raise UserError(f"Task {task!r}: {file} has no rows.")
    if declared.id_column is not None and frame[declared.id_column].is_duplicated().any():
        raise UserError(f"Task {task!r}: {file} names an id twice in its column {declared.id_column!r}.")
    typed = [frame[declared.id_column]] if declared.id_column is not None else []
    for name, kind in columns.items():
        text = frame[name].str.strip_chars()
        if kind == "boolean":
            truths = {"true": True, "1": True, "false": False, "0": False}
            column = text.str.to_lowercase().replace_strict(truths, default=None, return_dtype=pl.Boolean)
        else:
            column = (text.fill_null("") if kind == "text" else text).cast(_TYPES[kind], strict=False)
        if column.null_count():
            row = int(column.is_null().arg_true()[0])
            raise UserError(f"Task {task!r}: {file}, row {row + 1}: {name} {text[row]!r} is no {kind}.")
        typed.append(column)
    return pl.DataFrame(typed)


def _copy_regular(source: Path, target: Path, most_bytes: int) -> None:
    """Copy the regular files of a workspace; links, pipes and devices are left out, none is opened.

    Raises:
        InvalidSubmission: There are too many of them, or they are too large together.
    """
    target.mkdir()
    count = size = 0
    for one in walk(source, open_up=True):
        if one.is_folder:
            (target / one.path).mkdir()
            continue
        try:
            handle = os.open(one.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=one.parent)
        except OSError:  # a link, a socket, or gone
            continue
        with os.fdopen(handle, "rb") as content:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                continue
            count, size = count + 1, size + status.st_size
            if count > _MOST_FILES or size > most_bytes:
                raise InvalidSubmission(
                    [f"The workspace has more than {_MOST_FILES} files or {most_bytes // 10**6} MB."]
                )
            with (target / one.path).open("xb") as copy:
                shutil.copyfileobj(content, copy)


def _ending(stopped: str, returncode: int, stderr: bytes) -> str:
    """Return how a command ended, in words: what stopped it, else the last line that it said."""
    if stopped:
        return f"it was stopped ({stopped})."
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    return f"{lines[-1][:300].rstrip('.')}." if lines else f"it ended with code {returncode}."
