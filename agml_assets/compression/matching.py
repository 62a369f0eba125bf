"""Which rows of a submission belong to which labels, and a report of everything that does not match.

Nothing is dropped in silence: `Coverage` counts it, `refuse_unsound` refuses what no score may be made from.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64

from agml_assets.compression.labels import LabelTask
from agml_assets.compression.submissions import Submission, counted
from agml_assets.errors import UserError

_SHOWN = 5


@dataclass(frozen=True)
class Ids:
    """Some ids.

    Attributes:
        count: How many.
        first: The first five, in the order of the file that has them.
    """

    count: int
    first: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.count > 0

    def __str__(self) -> str:
        return ", ".join(self.first) + (" ..." if self.count > len(self.first) else "")


@dataclass(frozen=True)
class Coverage:
    """How a submission and labels fit together; every count is of different ids.

    Attributes:
        labelled: Ids that have a label.
        matched: Of these, ids that the submission has.
        missing: Of these, ids that it lacks.
        extra: Ids of the submission that have no label.
        duplicate: Ids that stand more than once in the submission and have a label.
        duplicate_labels: Ids that stand more than once among the labels.
        non_finite: Ids with a label and a value that is NaN, infinite, missing or no number.
        non_finite_values: How many such values.
    """

    labelled: int
    matched: int
    missing: Ids
    extra: Ids
    duplicate: Ids
    duplicate_labels: Ids
    non_finite: Ids
    non_finite_values: int

    def sentences(self) -> tuple[str, ...]:
        """Return the report, a sentence each; the first always says how many match."""
        found = [f"{self.matched:,} of {counted(self.labelled, 'labelled sample')} with an embedding."]
        for ids, what, where in (
            (self.missing, "labelled sample", "without an embedding"),
            (self.extra, "embedding", "without a label, ignored"),
            (self.duplicate, "id", "more than once in the submission"),
            (self.duplicate_labels, "id", "more than once among the labels"),
        ):
            if ids:
                found.append(f"{counted(ids.count, what)} {where}: {ids}.")
        if self.non_finite:
            found.append(
                f"{counted(self.non_finite_values, 'value')} of {counted(self.non_finite.count, 'embedding')} "
                f"not a finite number: {self.non_finite}."
            )
        return tuple(found)

    def as_json(self) -> dict[str, Any]:
        """Return JSON values: the attributes, `Ids` as objects of `count` and `first`."""
        return {
            name: {"count": value["count"], "first": list(value["first"])} if isinstance(value, dict) else value
            for name, value in asdict(self).items()
        }


@dataclass(frozen=True)
class Matched:
    """A task's samples that have an embedding, in the order of the labels.

    Attributes:
        submission: Where the embeddings are.
        task: Where the labels are.
        rows: Row of the submission of each sample.
        label_rows: Row of the task of each sample.
        coverage: How the two fit together.
    """

    submission: Submission
    task: LabelTask
    rows: Int64[np.ndarray, " m"]
    label_rows: Int64[np.ndarray, " m"]
    coverage: Coverage

    @cached_property
    def vectors(self) -> Float32[np.ndarray, "m d"]:
        """The embedding of each sample."""
        return self.submission.vectors[self.rows]

    @cached_property
    def targets(self) -> np.ndarray:
        """The label of each sample, as `LabelTask.targets`."""
        return self.task.targets[self.label_rows]

    @cached_property
    def group(self) -> Int64[np.ndarray, " m"] | None:
        """The group of each sample, or None."""
        return None if self.task.group is None else self.task.group[self.label_rows]

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The id of each sample."""
        return tuple(self.task.ids[row] for row in self.label_rows)


def match(submission: Submission, task: LabelTask) -> Matched:
    """Join a task's labels with a submission's embeddings on their ids.

    Samples come in the order of the labels; an id that stands several times gives every pair of its rows, in the
    order of the submission, as an inner join of tables does.
    """
    places: dict[str, list[int]] = {}
    for row, name in enumerate(submission.ids):
        places.setdefault(name, []).append(row)
    pairs = [(row, label_row) for label_row, name in enumerate(task.ids) for row in places.get(name, ())]
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Matched(submission, task, table[:, 0], table[:, 1], cover(submission, task.ids))


def cover(submission: Submission, labelled: Sequence[str]) -> Coverage:
    """Return how a submission and labelled samples fit together.

    Args:
        submission: The embeddings.
        labelled: Id of each label; of several tasks, the ids of all, each once.
    """
    wanted, given = dict.fromkeys(labelled), dict.fromkeys(submission.ids)
    odd = np.count_nonzero(~np.isfinite(submission.vectors), axis=1)
    rows = [row for row in np.flatnonzero(odd) if submission.ids[row] in wanted]
    return Coverage(
        labelled=len(wanted),
        matched=sum(name in given for name in wanted),
        missing=_ids(name for name in wanted if name not in given),
        extra=_ids(name for name in given if name not in wanted),
        duplicate=_ids(name for name in _repeated(submission.ids) if name in wanted),
        duplicate_labels=_ids(_repeated(labelled)),
        non_finite=_ids(dict.fromkeys(submission.ids[row] for row in rows)),
        non_finite_values=int(odd[rows].sum()),
    )


def refuse_unsound(matched: Matched) -> Matched:
    """Return the same where a score may be made from it; missing and extra samples are only counted.

    Raises:
        UserError: No sample matches, ids stand more than once on either side (copies would be trained on and
            tested at once), or embeddings have values that are no finite numbers.
    """
    found, task, file = matched.coverage, matched.task, matched.submission.file
    problems = []
    if not found.matched:
        problems.append(
            f"none of its {found.labelled:,} samples ({', '.join(task.ids[:_SHOWN])}) has an embedding; the ids "
            f"of the submission look like {', '.join(matched.submission.ids[:_SHOWN])}. Use the same ids in both"
        )
    if found.duplicate:
        problems.append(
            f"{counted(found.duplicate.count, 'id')} more than once in the submission ({found.duplicate}). Keep "
            "one row each"
        )
    if found.duplicate_labels:
        problems.append(
            f"{counted(found.duplicate_labels.count, 'id')} more than once in {task.file} "
            f"({found.duplicate_labels}). Keep one row each"
        )
    if found.non_finite:
        problems.append(
            f"{counted(found.non_finite_values, 'value')} of {counted(found.non_finite.count, 'embedding')} "
            f"missing or not a finite number ({found.non_finite}). Write a finite number for each"
        )
    if problems:
        raise UserError(f"{file}, task {task.name!r}: {'; '.join(problems)}.")
    return matched


def _repeated(names: Sequence[str]) -> Collection[str]:
    return [name for name, n in Counter(names).items() if n > 1]


def _ids(names: Iterable[str]) -> Ids:
    listed = list(names)
    return Ids(len(listed), tuple(listed[:_SHOWN]))
