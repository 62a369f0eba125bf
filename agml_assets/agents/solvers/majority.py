"""The agent that always gives the commonest answer: a score is worth what it is above this one's."""

import csv
import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from agml_assets.agents.recorder import TrialRecorder
from agml_assets.agents.task import AgentTask
from agml_assets.errors import UserError
from agml_assets.registry.agents import Submission

TEMPLATES = ("sample_submission.csv", "sampleSubmission.csv", "sample_submission")
"""Names of a file that shows the form of a submission."""

_LABELS = ("labels", "label", "y", "target")
"""Names of the array of an .npz that holds what is to be found."""


async def play_majority(trial: TrialRecorder) -> None:
    """Write the commonest answer for every example, then submit."""
    declared = require_table(trial.task)
    if not trial.state.steps:
        table = commonest_answers(trial.task, declared)
        await trial.act("write_file", {"file_name": declared.file, "content": table})
    await trial.act("final_answer", {"final_answer": "The commonest answer for every example."})


def require_table(task: AgentTask) -> Submission:
    """Return the declared submission of a task.

    Raises:
        UserError: It declares none, or one that is no CSV.
    """
    declared = task.entry.submission
    if declared is None or Path(declared.file).suffix != ".csv":
        raise UserError(
            f"Agent majority knows nothing to answer on task {task.key!r}: its manifest declares no CSV to "
            "submit. Leave this pair out."
        )
    return declared


def commonest_answers(task: AgentTask, declared: Submission) -> str:
    """Return a submission that gives every example the commonest answer of the public training examples.

    Ids come from the template of the task (`sample_submission.csv`) or from its public examples without answers.
    Of a text, integer or boolean it is the commonest value, of a number the median, of probabilities the shares
    of the classes; where no public example has an answer, the template's first value, or 0.

    Raises:
        UserError: No public file names the examples.
    """
    header, rows = _template(task, declared)
    ids = [row[declared.id_column] for row in rows] if declared.id_column else [""] * len(rows)
    if not ids:
        ids = _ids(task, declared)
    answers: dict[str, Any]
    if declared.probabilities:
        shares = _shares(task)
        names = [name for name in header if name != declared.id_column] or [
            str(place) for place in range(len(shares))
        ]
        even = len(shares) != len(names)
        answers = {name: 1 / len(names) if even else shares[place] for place, name in enumerate(names)}
    else:
        first = rows[0] if rows else {}
        answers = {
            name: _commonest(
                _answers(task, name), kind, first.get(name) or ("False" if kind == "boolean" else "0")
            )
            for name, kind in declared.columns.items()
        }
    text = io.StringIO()
    writer = csv.writer(text, delimiter=declared.separator, lineterminator="\n")
    names = [*([declared.id_column] if declared.id_column else []), *answers]
    writer.writerow(names)
    for one in ids:
        writer.writerow([*([one] if declared.id_column else []), *answers.values()])
    return text.getvalue()


def _public_files(task: AgentTask) -> Iterator[Path]:
    """Yield the files that the agent sees: public data, then starter files."""
    for place in (*task.public.values(), task.env):
        yield from (path for path in sorted(place.rglob("*")) if path.is_file()) if place.is_dir() else (place,)


def _template(task: AgentTask, declared: Submission) -> tuple[list[str], list[dict[str, str]]]:
    for file in _public_files(task):
        if file.name in TEMPLATES:
            with file.open(encoding="utf-8", newline="") as handle:
                reader = csv.DictReader(handle, delimiter=declared.separator)
                rows = list(reader)
            header = list(reader.fieldnames or ())
            if declared.id_column is None or declared.id_column in header:
                return header, rows
    return [], []


def _ids(task: AgentTask, declared: Submission) -> list[str]:
    candidates = [*(one for one in _public_files(task) if "train" not in one.name)]
    for file in candidates:
        if file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as arrays:
                if "ids" in arrays:
                    return [str(one) for one in arrays["ids"]]
        elif file.suffix == ".csv" and declared.id_column:
            with file.open(encoding="utf-8", newline="") as handle:
                reader = csv.DictReader(handle)
                if declared.id_column in (reader.fieldnames or ()):
                    return [row[declared.id_column] for row in reader]
    raise UserError(
        f"Task {task.key!r}: no public file names the examples to answer for. Add a {TEMPLATES[0]} to its "
        f"env folder."
    )


def _answers(task: AgentTask, column: str) -> list[str]:
    """Return what the public training examples hold in a column: of tables by its name, of arrays as labels."""
    for file in _public_files(task):
        if file.suffix == ".csv" and file.name not in TEMPLATES and "test" not in file.name:
            with file.open(encoding="utf-8", newline="") as handle:
                reader = csv.DictReader(handle)
                if column in (reader.fieldnames or ()):
                    return [row[column] for row in reader if row[column]]
    return [str(one) for one in _labels(task)] if column in _LABELS else []


def _labels(task: AgentTask) -> np.ndarray:
    for file in _public_files(task):
        if file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as arrays:
                for name in _LABELS:
                    if name in arrays:
                        return np.asarray(arrays[name])
    return np.array([])


def _shares(task: AgentTask) -> list[float]:
    labels = _labels(task)
    if not len(labels) or not np.issubdtype(labels.dtype, np.integer):
        return []
    counts = np.bincount(labels)
    return [float(one) for one in counts / counts.sum()]


def _commonest(values: list[str], kind: str, otherwise: str) -> str:
    if not values:
        return otherwise
    if kind == "number":
        return repr(float(np.median([float(one) for one in values])))
    counts = Counter(values)
    return min(counts, key=lambda value: (-counts[value], value))
