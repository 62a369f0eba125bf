"""One submission: its embeddings, what they score on every task, and all of it in a few numbers, each stored.

Plain functions that assets and the command line share. Files are read in `submissions` and `labels`, probes are in
`exact`; how submissions compare is `leaderboard`'s business.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from jaxtyping import Float32

from agml_assets.compression.artifacts import CODE_VERSIONS, FILES
from agml_assets.compression.codecs import compress
from agml_assets.compression.digits import load_digits
from agml_assets.compression.embed import dataset_embeddings, submission_table
from agml_assets.compression.exact.evaluate import ExactSettings, ExactTask, evaluate_exact, to_json
from agml_assets.compression.labels import list_label_files, read_labels
from agml_assets.compression.matching import Matched, match, refuse_unsound
from agml_assets.compression.submissions import (
    Issues,
    Submission,
    clean_id,
    ids_beside,
    read_lines,
    read_submission,
)
from agml_assets.dataset.artifacts import IMAGE_INDEX
from agml_assets.embeddings.artifacts import EMBEDDINGS
from agml_assets.errors import UserError
from agml_assets.locks import exclusive
from agml_assets.registry.submissions import DIGITS, SubmissionEntry
from agml_assets.store import PLATFORM, Sidecar, file_digest
from agml_assets.workspace import Workspace


@dataclass(frozen=True)
class SubmissionRun:
    """A submission, and where its artifacts lie.

    Attributes:
        entry: The registered submission.
        workspace: Registry of datasets, settings and store.
        settings: How tasks are evaluated.
    """

    entry: SubmissionEntry
    workspace: Workspace
    settings: ExactSettings = field(default_factory=ExactSettings)

    def file(self, step: str) -> str:
        """Return the path of an artifact in the platform's folder."""
        return f"compression/{self.entry.key}/{FILES[step]}"

    def sidecar(self, step: str) -> Sidecar | None:
        """Return the sidecar of an artifact, or None where it is not there."""
        return self.workspace.store.sidecar(PLATFORM, self.file(step))

    def read(self, step: str) -> Any:
        """Read an artifact.

        Raises:
            UserError: It is not there.
        """
        if self.sidecar(step) is None:
            raise UserError(
                f"Submission {self.entry.key!r}: compression/{step} is not in the store. Make it first: "
                f"agml-assets compression evaluate {self.entry.key}"
            )
        return self.workspace.store.read(PLATFORM, self.file(step))

    def held(self, holder: str) -> AbstractContextManager[Any]:
        """Hold this submission against other runs; `holder` says who we are, for those who wait."""
        lock = self.workspace.store.local_folder(PLATFORM, "locks") / f"compression.{self.entry.key}.lock"
        return exclusive(lock, f"submission {self.entry.key}", holder)

    @cached_property
    def _source(self) -> dict[str, str]:
        """Digests of what embeddings are read from."""
        entry = self.entry
        excluded = _digests({"exclude": entry.exclude})
        if entry.embeddings == DIGITS:
            return {DIGITS: blake3(load_digits()[1].tobytes()).hexdigest()[:32]} | excluded
        if entry.embeddings is not None:
            bench = self.workspace.dataset(entry.embeddings)
            return {one.key: bench.sidecar(one).digest for one in (IMAGE_INDEX, EMBEDDINGS)} | excluded
        files = {"file": entry.file, "ids": entry.ids}
        if entry.file is not None and entry.ids is None and entry.file.suffix == ".npy":
            files["ids"] = ids_beside(entry.file)
        return _digests(files) | excluded

    @cached_property
    def _labels(self) -> dict[str, str]:
        with self.label_folder() as folder:
            return {file.path.name: file_digest(file.path) for file in list_label_files(folder)}

    def inputs(self, step: str) -> dict[str, str]:
        """Return the digests of all that a step is made from today; {} where its input is not there."""
        if step == "submission":
            return self._source
        before = "submission" if step == "task_scores" else "task_scores"
        sidecar = self.sidecar(before)
        found = {f"compression/{before}": sidecar.digest} if sidecar else {}
        return {**found, **self._labels} if step == "task_scores" else found

    def used(self, step: str) -> dict[str, Any]:
        """Return what else changes the content of a step."""
        if step == "submission":
            entry = self.entry
            return {
                "compress": entry.compress.model_dump(),
                "bytes_per_embedding": entry.bytes_per_embedding,
            }
        if step == "task_scores":
            return {"exact": to_json(asdict(self.settings)), "block_km": self.entry.block_km}
        return {"display_name": self.entry.display_name, "phase": self.entry.phase}

    def is_current(self, step: str) -> bool:
        """Return whether a stored artifact is what today would make."""
        made = self.sidecar(step)
        return (
            made is not None
            and made.code_version == CODE_VERSIONS[step]
            and made.settings == self.used(step)
            and made.inputs == self.inputs(step)
        )

    def write(self, step: str, value: Any, seconds: float, info: Mapping[str, Any]) -> Sidecar:
        """Store an artifact with its sidecar."""
        facts = {
            "artifact": f"compression/{step}",
            "code_version": CODE_VERSIONS[step],
            "inputs": self.inputs(step),
            "settings": self.used(step),
            "info": dict(info),
            "duration_s": round(seconds, 3),
        }
        return self.workspace.store.write(PLATFORM, self.file(step), value, facts)

    @contextmanager
    def label_folder(self) -> Iterator[Path]:
        """Give the folder of label files: the entry's, or one that is made for embeddings that bring their own."""
        if self.entry.tasks is not None:
            yield self.entry.tasks
            return
        if self.entry.embeddings == DIGITS:
            tables = load_digits()[2]
        else:
            assert self.entry.embeddings is not None
            _, _, labels = dataset_embeddings(self.workspace.dataset(self.entry.embeddings))
            tables = {"class__classification": labels}
        with tempfile.TemporaryDirectory(prefix="agml-labels-") as folder:
            for name, table in tables.items():
                table.write_csv(Path(folder) / f"{name}.csv")
            yield Path(folder)

    def read_source(self) -> Submission:
        """Return the embeddings as they come, before compression."""
        entry = self.entry
        if entry.file is not None:
            found = read_submission(entry.file, entry.key, read_lines(entry.ids) if entry.ids else None)
        else:
            assert entry.embeddings is not None
            if entry.embeddings == DIGITS:
                names, vectors, _ = load_digits()
            else:
                names, vectors, _ = dataset_embeddings(self.workspace.dataset(entry.embeddings))
            columns = tuple(str(place) for place in range(vectors.shape[1]))
            found = Submission(entry.key, names, vectors, columns, Issues(), Path(entry.embeddings))
        return found.without(set(map(clean_id, read_lines(entry.exclude)))) if entry.exclude else found


def make_submission(run: SubmissionRun) -> Sidecar:
    """Store the embeddings, compressed where the entry says so: `id`, and a float32 column per dimension."""
    started = time.monotonic()
    source = run.read_source()
    vectors, stored_bytes = source.vectors, 4.0 * source.vectors.shape[1]
    chosen = run.entry.compress
    if chosen.method != "none":
        _require_finite(source)
        made = compress(vectors, chosen.method, chosen.size, chosen.seed)
        vectors, stored_bytes = made.vectors, made.bytes_per_embedding
    info = {
        "embeddings": len(source.ids),
        "dimensions": vectors.shape[1],
        "bytes_per_embedding": run.entry.bytes_per_embedding or stored_bytes,
        "bytes_uncompressed": 4.0 * source.vectors.shape[1],
        "notes": list(source.issues.sentences()),
    }
    return run.write("submission", submission_table(source.ids, vectors), time.monotonic() - started, info)


def make_task_scores(run: SubmissionRun) -> Sidecar:
    """Store what the embeddings score on every task, with intervals, floors, and what was left out.

    Raises:
        UserError: No task at all can be scored; says why of each.
    """
    started = time.monotonic()
    submission = _stored(run)
    matched: dict[str, Matched] = {}
    refused: dict[str, str] = {}
    with run.label_folder() as folder:
        for file in list_label_files(folder):
            found = match(submission, read_labels(file, block_km=run.entry.block_km))
            try:
                matched[file.name] = refuse_unsound(found)
            except UserError as error:
                refused[file.name] = error.message
    if not matched:
        raise UserError(f"Submission {run.entry.key!r}: no task can be scored.\n" + "\n".join(refused.values()))
    tasks = [
        ExactTask(
            name=name,
            kind=one.task.kind,
            ids=one.ids,
            targets=one.targets,
            rows=one.rows,
            groups=one.group,
            class_names=one.task.class_names,
        )
        for name, one in matched.items()
    ]
    result = evaluate_exact(submission.vectors, tasks, run.settings)
    document = {
        "submission": run.entry.key,
        **to_json(result),
        "refused": refused,
        "coverage": {name: one.coverage.as_json() for name, one in matched.items()},
        "notes": {name: [*one.coverage.sentences(), *one.task.sentences()] for name, one in matched.items()},
    }
    return run.write("task_scores", document, time.monotonic() - started, {"tasks": len(result.tasks)})


def make_summary(run: SubmissionRun) -> Sidecar:
    """Store the submission in a few numbers: size, mean of what is kept, score of every task."""
    started = time.monotonic()
    scores = run.read("task_scores")
    made = run.sidecar("submission")
    assert made is not None, "the task scores are made from it"
    tasks = {
        one["task"]: {name: one[name] for name in ("metric", "kept", "reference", "n", "units")}
        | {"score": one["score"]["value"], "interval": one["score"]["interval"]}
        for one in scores["tasks"]
    }
    left_out = {one["task"]: one["reason"] for one in scores["excluded"]} | scores["refused"]
    document = {
        "submission": run.entry.key,
        "display_name": run.entry.display_name,
        "phase": run.entry.phase,
        "embeddings": made.info["embeddings"],
        "dimensions": made.info["dimensions"],
        "bytes_per_embedding": made.info["bytes_per_embedding"],
        "bytes_uncompressed": made.info["bytes_uncompressed"],
        "mean_kept": float(np.mean([one["kept"] for one in tasks.values()])) if tasks else None,
        "tasks": tasks,
        "left_out": left_out,
        "notes": [
            *made.info["notes"],
            *(note for notes in scores["notes"].values() for note in notes),
            *(f"Task {one['task']!r}: {note}" for one in scores["tasks"] for note in one["exclusions"]),
        ],
    }
    return run.write("summary", document, time.monotonic() - started, {})


MAKE: Mapping[str, Callable[[SubmissionRun], Sidecar]] = {
    "submission": make_submission,
    "task_scores": make_task_scores,
    "summary": make_summary,
}


def _stored(run: SubmissionRun) -> Submission:
    """Return the embeddings as `make_submission` stored them."""
    frame = run.read("submission")
    vectors: Float32[np.ndarray, "n d"] = frame.drop("id").to_numpy().astype(np.float32)
    file = Path(str(run.workspace.store.path(PLATFORM, run.file("submission"))))
    return Submission(run.entry.key, tuple(frame["id"]), vectors, tuple(frame.columns[1:]), Issues(), file)


def _require_finite(source: Submission) -> None:
    bad = np.flatnonzero(~np.isfinite(source.vectors).all(axis=1))
    if len(bad):
        raise UserError(
            f"{source.file}: {len(bad)} embeddings have values that are not finite numbers, the first of "
            f"{', '.join(source.ids[row] for row in bad[:5])}. Nothing can be compressed from them: mend the file."
        )


def _digests(files: Mapping[str, Path | None]) -> dict[str, str]:
    return {name: file_digest(path) for name, path in files.items() if path is not None and path.is_file()}
