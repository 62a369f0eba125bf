"""Stored predictions of a run: they give its scores an interval, once they are seen to be those of the run."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Int
from upath import UPath

from agml_assets.leaderboard.javascript import trimmed
from agml_assets.leaderboard.run_records import RunRecord
from agml_assets.quality.intervals import (
    Resamples,
    class_counts,
    macro_f1,
    macro_f1_interval,
    no_interval,
    proportion_interval,
)

MACRO_F1 = ("f1",)
ACCURACY = ("accuracy", "top1_accuracy")
_ROUNDED = 1e-3  # scores are published with three decimals or more
_GIVEN = "the model and the images that it answered"


def prediction_intervals(record: RunRecord, folders: Sequence[UPath]) -> dict[str, dict[str, Any]]:
    """Return the interval of each score of a classification run that its predictions determine.

    Args:
        record: The run; without stored predictions it has no interval.
        folders: Where predictions lie; the first that has the file counts.

    Returns:
        An interval by metric, in the shape of `quality.intervals`; one of kind `none` with a reason where the file
        cannot be read, or is of other images or another score than the record.
    """
    metrics = [name for name in (*MACRO_F1, *ACCURACY) if name in record.numbers()]
    if record.predictions is None or trimmed(record.task) != "classification" or not metrics:
        return {}
    try:
        frame = _read(record.predictions, folders)
        if contradiction := _contradiction(record, frame):
            return {name: no_interval(contradiction) for name in metrics}
        true, predicted, groups = _answers(frame)
    except (OSError, pl.exceptions.PolarsError, ValueError) as error:
        reason = f"The predictions in {record.predictions} cannot be read: {str(error).splitlines()[0]}"
        return {name: no_interval(reason) for name in metrics}
    return {name: _interval(name, record.numbers()[name], true, predicted, groups) for name in metrics}


def _read(name: str, folders: Sequence[UPath]) -> pl.DataFrame:
    """Return the file: one row an image, `predicted` null where it was skipped."""
    path = next((place for folder in folders if (place := folder / name).is_file()), None)
    if path is None:
        raise FileNotFoundError(f"there is no such file in {' or '.join(map(str, folders))}")
    frame = pl.read_parquet(io.BytesIO(path.read_bytes()))
    if missing := {"true", "predicted"} - set(frame.columns):
        raise ValueError(f"no column {', '.join(sorted(missing))}")
    kinds = {name: kind for name in ("true", "predicted") if (kind := _kind(frame.schema[name])) is not None}
    if len(set(kinds.values())) > 1:
        types = " and ".join(f"`{name}` is {frame.schema[name]}" for name in kinds)
        raise ValueError(f"{types}: classes must be of one type to be compared")
    return frame


def _kind(dtype: pl.DataType) -> str | None:
    """Return what values of a type can be compared with; None for a column of nulls."""
    if dtype == pl.Null:
        return None
    if dtype.is_integer():
        return "whole number"
    return "text" if dtype in (pl.String, pl.Categorical, pl.Enum) else str(dtype)


def _contradiction(record: RunRecord, frame: pl.DataFrame) -> str | None:
    """Return why a file is not of all images of a run: rows that are repeated or left out narrow the interval."""
    if record.num_samples is None:
        return "The record does not say num_samples: whether the predictions are of all its images is not known."
    if len(frame) != record.num_samples:
        return f"The stored predictions are of {len(frame)} images, the record of {record.num_samples}."
    skipped = len(frame) - len(frame.drop_nulls(["true", "predicted"]))
    stated = record.numbers().get("skipped_samples", 0)
    if skipped != stated:
        return f"The stored predictions skip {skipped} images, the record says {stated:g}."
    return None


def _answers(frame: pl.DataFrame) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Return true and predicted classes as numbers, and the group of copies, of the images that were answered."""
    frame = frame.drop_nulls(["true", "predicted"])
    if frame.is_empty():
        raise ValueError("it has no row with a prediction")
    classes = pl.concat([frame["true"].cast(pl.String), frame["predicted"].cast(pl.String)]).rank("dense")
    codes = classes.to_numpy().astype(np.int64)
    groups = np.arange(len(frame))
    if "group" in frame.columns:
        named = frame["group"].is_not_null().to_numpy()
        # An image without a group stands alone: its own number, behind those of all groups.
        groups = np.where(named, frame["group"].rank("dense").fill_null(0).to_numpy(), len(frame) + 1 + groups)
    return codes[: len(frame)], codes[len(frame) :], groups.astype(np.int64)


def _interval(
    name: str,
    published: float,
    true: Int[np.ndarray, " n"],
    predicted: Int[np.ndarray, " n"],
    groups: Int[np.ndarray, " n"],
) -> dict[str, Any]:
    hits = true == predicted
    counts = np.asarray(class_counts(true, predicted).sum(axis=0), np.float64)
    found = float(macro_f1(counts[None])[0]) if name in MACRO_F1 else float(hits.mean())
    if abs(found - published) > _ROUNDED:
        return no_interval(f"The stored predictions give {found:.4f}, the record says {published:.4f}.")
    resamples, rows = Resamples(groups), np.arange(len(true))
    if name in MACRO_F1:
        return macro_f1_interval(resamples, rows, true, predicted, _GIVEN)
    return proportion_interval(resamples, rows, hits.astype(np.float64), _GIVEN)
