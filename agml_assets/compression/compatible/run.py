"""One submission evaluated on a folder of labels as NeuCo-Bench does: read, match, probe, score, write, rank."""

import logging
import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64

from agml_assets.compression.compatible.config import Config, LinearParams, SvmParams, check_config, load_config
from agml_assets.compression.compatible.fitted import Samples, fit
from agml_assets.compression.compatible.leaderboard import Leaderboard, summarize_runs
from agml_assets.compression.compatible.plots import draw_curves, draw_folds
from agml_assets.compression.compatible.results import (
    TaskResult,
    make_run_folder,
    require_name,
    require_phase,
    require_task,
    write_probe,
    write_summary,
    write_task,
)
from agml_assets.compression.compatible.scores import METRICS, NEAR_ZERO, score_folds
from agml_assets.compression.compatible.splits import draw_splits
from agml_assets.compression.labels import LabelTask, choose_tasks, list_label_files, read_ids, read_labels
from agml_assets.compression.matching import Coverage, Matched, cover, match
from agml_assets.compression.submissions import (
    Submission,
    clean_id,
    read_lines,
    read_submission,
)
from agml_assets.device import use_device
from agml_assets.errors import UserError

logger = logging.getLogger(__name__)

_BINARY = ({"0"}, {"1"}, {"0", "1"})


@dataclass(frozen=True)
class CompatibleRun:
    """A finished run.

    Attributes:
        folder: Its files.
        summary: What `results_summary.json` holds.
        coverage: How submission and labels fit together, over the tasks evaluated.
        excluded: Tasks that have no score, and why.
        notes: What to know about the run, a sentence each.
        leaderboard: The phase, ranked, where the configuration asks for it.
    """

    folder: Path
    summary: Mapping[str, Any]
    coverage: Coverage
    excluded: Mapping[str, str]
    notes: tuple[str, ...]
    leaderboard: Leaderboard | None


def run_compatible(
    annotation_path: str | Path,
    submission_file: str | Path,
    output_dir: str | Path,
    config: Mapping[str, Any] | str | Path | Config,
    method_name: str | None = None,
    phase: str = "results",
    exclude_file: str | Path | None = None,
    now: datetime | None = None,
) -> CompatibleRun:
    """Evaluate a submission on every task of a folder.

    Everything that can be refused is, before anything is computed: the configuration, names and types of tasks,
    labels, the submission. A task that has no score (no sample matches, labels all equal, too few samples) is left
    out with its reason.

    Args:
        annotation_path: Folder of `<task>__<type>.csv`.
        submission_file: Embeddings, see `read_submission`.
        output_dir: Where the phase's folder shall lie.
        config: The configuration, or the YAML file that holds it.
        method_name: By default the submission's file name without suffix.
        phase: Runs that are ranked together.
        exclude_file: Ids that are left out, a line each.
        now: Time in the folder's name; by default that of the clock.

    Raises:
        UserError: Something is refused, or no task has a score.
    """
    checked = _checked(config)
    method = require_name("The method", method_name or Path(submission_file).stem)
    require_phase(phase)
    # scikit-learn's machines know no GPU.
    device = (
        choose_device(checked.probe_params.device) if isinstance(checked.probe_params, LinearParams) else "cpu"
    )
    files = list_label_files(annotation_path)
    chosen = choose_tasks(files, checked.task_filter)
    for file in chosen:
        require_task(method, file.name)
    tasks = [require_binary(read_labels(file, clean_ids=False)) for file in chosen]
    known = {name for task in tasks for name in task.ids}
    known.update(name for file in files if file not in chosen for name in read_ids(file))
    submission, excluded_ids = _read(submission_file, method, exclude_file)
    coverage = cover(submission, list(dict.fromkeys(name for task in tasks for name in task.ids)))
    notes = [*submission.issues.sentences(), *coverage.sentences(), *_notes_on(checked, excluded_ids)]
    if coverage.non_finite:
        notes.append("Values that are no finite numbers count as 0.")
    if coverage.duplicate or coverage.duplicate_labels:
        notes.append(
            "Ids that stand more than once count every time, so copies may be trained on and tested at once."
        )
    matched = [match(submission, task) for task in tasks]
    reasons = {one.task.name: why for one in matched if (why := no_score(one))}
    for note in [*notes, *(f"Task {name!r} is left out: {why}." for name, why in reasons.items())]:
        logger.info("%s", note)
    if len(reasons) == len(tasks):
        listed = "; ".join(f"{name}: {why}" for name, why in reasons.items())
        raise UserError(f"{submission.file}: no task of {annotation_path} can be scored ({listed}).")
    vectors = prepare_vectors(submission, known, checked)
    folder = make_run_folder(Path(output_dir), phase, method, now or datetime.now())
    results = {}
    holder = f"compression probes of {method}"
    with nullcontext() if device == "cpu" else use_device(holder):  # one process at a time on a GPU
        for one in matched:
            if one.task.name not in reasons:
                results[one.task.name] = _evaluate(one, vectors, checked, folder, device)
    summary = write_summary(
        folder,
        results,
        checked.given,
        excluded_tasks=reasons,
        coverage=coverage.as_json(),
        notes=[*notes, *(f"Task {name!r}: {note}" for name, result in results.items() for note in result.notes)],
    )
    board = _rank(Path(output_dir), phase, now) if checked.update_leaderboard else None
    return CompatibleRun(folder, summary, coverage, reasons, tuple(summary["notes"]), board)


def require_binary(task: LabelTask) -> LabelTask:
    """Return a task that this mode can evaluate.

    Raises:
        UserError: It has several label columns, or classes other than 0 and 1.
    """
    if len(task.outputs) > 1:
        raise UserError(
            f"{task.file}: it has {len(task.outputs)} label columns ({', '.join(task.outputs)}); the compatible "
            "mode takes one. Use the exact mode, or a file for each."
        )
    if task.kind == "classification" and set(task.class_names) not in _BINARY:
        shown = ", ".join(task.class_names[:5]) + (", ..." if len(task.class_names) > 5 else "")
        raise UserError(
            f"{task.file}: its labels are {shown}; a classification in the compatible mode has labels 0 and 1. "
            "Use the exact mode for other classes."
        )
    return task


def no_score(matched: Matched) -> str | None:
    """Return why a task cannot be scored; None where it can.

    R2 needs two test samples, so a regression needs 11 samples at least; a classification needs 2.
    """
    task, n = matched.task, len(matched.rows)
    if not n:
        return (
            f"none of its {matched.coverage.labelled:,} samples ({', '.join(task.ids[:2])}, ...) has an "
            f"embedding; the submission's ids look like {', '.join(matched.submission.ids[:2])}"
        )
    least = 11 if task.kind == "regression" else 2
    if n < least:
        return f"{n} of its samples have an embedding; a {task.kind} needs {least} to be split and scored"
    values = np.unique(labels_of(matched))
    if len(values) == 1:
        return f"all {n:,} samples with an embedding have the label {values[0]:g}"
    return None


def labels_of(matched: Matched) -> Float64[np.ndarray, " m"]:
    """Return the labels as numbers."""
    if matched.task.kind == "regression":
        return matched.targets
    return np.array([float(name) for name in matched.task.class_names])[matched.targets]


def prepare_vectors(submission: Submission, known: set[str], config: Config) -> Float32[np.ndarray, "n d"]:
    """Return the embeddings as probes see them; rows as in the submission, 0 where no file of labels has the id.

    Rows that any file of labels has, padded to `embedding_dim`, values that are no finite numbers set to 0, then
    the mean and standard deviation of all their values together made 0 and 1, padding included.

    Raises:
        UserError: There are more dimensions than `embedding_dim`.
    """
    if config.embedding_dim is not None:
        submission = submission.padded(config.embedding_dim)
    labelled = np.array([name in known for name in submission.ids])
    kept = np.nan_to_num(submission.vectors[labelled], nan=0.0, posinf=0.0, neginf=0.0)
    if config.standardize_embeddings:
        kept = standardize(kept)
    vectors = np.zeros(submission.vectors.shape, np.float32)
    vectors[labelled] = kept
    return vectors


def standardize(vectors: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
    """Return (x - mean) / std with the mean and the population deviation of all values; std 0 counts as 1."""
    mean, std = vectors.mean(dtype=np.float64), vectors.std(dtype=np.float64)
    return ((vectors - mean) / (std or 1.0)).astype(np.float32)


def normalize(labels: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    """Return labels brought to [0, 1] by their least and largest."""
    return (labels - labels.min()) / np.ptp(labels)


def choose_device(name: str) -> str:
    """Return the torch device of a name: `auto` is the GPU where there is one, `gpu` is `cuda`.

    `CUDA_VISIBLE_DEVICES` set to nothing or -1 means the processor, whatever the name.

    Raises:
        UserError: There is no such device.
    """
    import torch

    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return "cpu"
    wanted = name.strip().lower().replace("gpu", "cuda", 1)
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise UserError(f"device {name!r}: it is auto, cpu, gpu, or a torch device such as cuda:0.") from None
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"device {name!r}: probes are trained on cpu or cuda.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"device {name!r}: torch finds {torch.cuda.device_count()} GPUs here. Use auto or cpu.")
    return wanted


def _checked(config: Mapping[str, Any] | str | Path | Config) -> Config:
    if isinstance(config, Config):
        return config
    return load_config(config) if isinstance(config, str | Path) else check_config(config)


def _read(file: str | Path, method: str, exclude_file: str | Path | None) -> tuple[Submission, int]:
    """Return the submission without excluded ids, and how many of its ids these are."""
    submission = read_submission(file, method)
    if exclude_file is None:
        return submission, 0
    excluded = {clean_id(name) for name in read_lines(Path(exclude_file))}
    return submission.without(excluded), len(excluded.intersection(submission.ids))


def _notes_on(config: Config, excluded_ids: int) -> list[str]:
    notes = []
    if excluded_ids:
        notes.append(f"{excluded_ids:,} ids of the submission are excluded by the exclude file.")
    if isinstance(config.probe_params, SvmParams) and config.probe_params.without_effect:
        notes.append(
            "Settings are random draws, so these opt_params have no effect: "
            f"{', '.join(config.probe_params.without_effect)}."
        )
    return notes


def _rank(output_dir: Path, phase: str, now: datetime | None) -> Leaderboard | None:
    try:
        return summarize_runs(output_dir, phase, now)
    except UserError as error:  # the run's own results are written, and right
        logger.warning("No leaderboard: %s", error.message)
        return None


def _evaluate(
    matched: Matched, all_vectors: Float32[np.ndarray, "n d"], config: Config, folder: Path, device: str
) -> TaskResult:
    """Evaluate one task and write its files."""
    task, labels = matched.task, labels_of(matched)
    targets = normalize(labels) if config.normalize_labels else labels
    splits = draw_splits(len(targets), config.k_folds)
    samples = Samples(task.name, task.kind, all_vectors[matched.rows], targets, splits)
    fitted = fit(samples, config, device)
    notes = [*task.sentences(), *_notes_on_splits(samples)]
    if unscored := int(np.isnan(fitted.fold_scores).sum()):
        notes.append(f"{unscored} of {config.k_folds} folds have no score and do not count.")
    result = TaskResult(
        task.name,
        METRICS[task.kind],
        score_folds(fitted.fold_scores),
        fitted.hyperparameters,
        len(targets),
        matched.coverage.as_json(),
        tuple(notes),
    )
    draw_curves(folder, samples.task, fitted)
    if config.enable_plots:
        draw_folds(folder, matched.submission.method, samples, fitted)
    if config.store_probes:
        probe = fitted.store()
        write_probe(folder, task.name, probe.arrays, probe.metadata)
    write_task(folder, result, config.output_fold_results)
    logger.info("Task %r: %s %.4f, Q %.4f.", task.name, result.metric, result.score.mean, result.score.q)
    return result


def _notes_on_splits(samples: Samples) -> list[str]:
    """Say how many splits are such that their score is set by convention."""
    n, test = len(samples.splits.test), samples.targets[samples.splits.test]
    notes = []
    if samples.kind == "regression":
        spread = ((test - test.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        if flat := int((spread <= NEAR_ZERO).sum()):
            notes.append(f"{flat} of {n} test splits have nearly equal labels; their R2 is 0, or 1 without error.")
        return notes
    if empty := int((test.max(axis=1) <= 0).sum()):
        notes.append(f"{empty} of {n} test splits have no sample of class 1; their F1 is 0.")
    if alone := int((np.ptp(samples.targets[samples.splits.train], axis=1) == 0).sum()):
        notes.append(f"{alone} of {n} training splits have samples of one class alone.")
    return notes
