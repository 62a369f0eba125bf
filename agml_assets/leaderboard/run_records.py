"""What a run record must hold, and what becomes of each: accepted, with or without warnings, or refused.

A record is one model evaluated once on one dataset, in the format that the AgML site publishes. Records are read
in `record_files` and merged in `staging`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from blake3 import blake3
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from agml_assets.errors import did_you_mean
from agml_assets.leaderboard.catalogue import Catalogue
from agml_assets.leaderboard.javascript import dump_json, finite, trimmed
from agml_assets.leaderboard.metric_names import TASK_METRICS, is_score, listed_metrics, primary_metric
from agml_assets.leaderboard.record_files import RecordFile

RECOMMENDED = ("benchmark_id", "timestamp", "dataset", "num_samples", "device")
"""Fields without which a record is accepted, with a warning."""

_PERCENT_SLACK = 0.5  # percentages of a split are often rounded
_ONE_FILE = re.compile(r"[^*?\x00]*[^*?\x00/]")  # no pattern that may match several, no folder
_HALF = re.compile("[\ud800-\udfff]")  # of a pair that makes one character beyond the first 65,536
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def _whole(value: Any) -> Any:
    """Take 100.0, which tables write for 100, as the whole number that it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text_or_flag(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    raise ValueError("must be 'yes' or 'no'")


Count = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
Measure = Annotated[float, Field(ge=0)]
Percent = Annotated[float, Field(ge=0, le=100)]
YesNo = Annotated[str | bool, BeforeValidator(_text_or_flag)]


class Finetune(BaseModel):
    """How a fine-tuned run was trained; every field is optional, and fields that are not listed are kept.

    Attributes:
        train_samples: Training images.
        val_samples: Validation images.
        epochs: Passes over the training images.
        lr: Learning rate.
        weight_decay: Weight decay.
        split_seed: Seed of the split.
        train_ratio: Share of the images in the training split.
        training_time_seconds: Duration of the training in s.
        optimized: `yes` or `no`, as in the record.
    """

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, allow_inf_nan=False)

    train_samples: Count | None = None
    val_samples: Count | None = None
    epochs: Measure | None = None
    lr: Measure | None = None
    weight_decay: Measure | None = None
    split_seed: float | None = None
    train_ratio: Measure | None = None
    training_time_seconds: Measure | None = None
    optimized: YesNo | None = None


class RunRecord(BaseModel):
    """One model evaluated on one dataset, as published; null means not given, and unknown fields are kept.

    Attributes:
        benchmark_id: Number of the benchmark sweep; recommended.
        timestamp: When it ran, ISO 8601; recommended.
        dataset: `owner/name` on the hub; recommended.
        dataset_config: Configuration that was evaluated, such as `augmented`; null means the raw one.
        split: Split of the data that was evaluated.
        model: Model; required. Runs are grouped by it.
        task: `classification`, `detection` or `segmentation`; required.
        result_type: Such as `zero-shot`; for information, `finetune` decides.
        optimized: `yes` or `no`: whether inference was optimised.
        train_pct: Percentage of the images in the training split.
        test_pct: Percentage that was evaluated.
        val_pct: Percentage in the validation split.
        num_samples: Images that were evaluated; recommended.
        device: Hardware; recommended.
        inference_time_seconds: Duration of inference in s.
        inference_time_seconds_per_image: The same for each image.
        train_time_seconds: Duration of training in s.
        train_time_seconds_per_image: The same for each image.
        metrics: Metric by name; required, at least one a finite number.
        notes: Free text.
        finetune: How the model was trained; its presence makes the run a fine-tuned one.
        predictions: Ours: a Parquet file of the run's predictions in the folder `predictions` beside the records,
            with a row for each of `num_samples` images, columns `true`, `predicted` (null where skipped) and, if
            known, `group` of copies.
    """

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, allow_inf_nan=False)

    benchmark_id: float | None = None
    timestamp: str | None = None
    dataset: str | None = None
    dataset_config: str | None = None
    split: str | None = None
    model: str
    task: str
    result_type: str | None = None
    optimized: YesNo | None = None
    train_pct: Percent | None = None
    test_pct: Percent | None = None
    val_pct: Percent | None = None
    num_samples: Count | None = None
    device: str | None = None
    inference_time_seconds: Measure | None = None
    inference_time_seconds_per_image: Measure | None = None
    train_time_seconds: Measure | None = None
    train_time_seconds_per_image: Measure | None = None
    metrics: dict[str, Any]
    notes: str | None = None
    finetune: Finetune | None = None
    predictions: str | None = None

    @field_validator("model", "task")
    @classmethod
    def _is_not_blank(cls, value: str) -> str:
        if trimmed(value) is None:
            raise ValueError("must not be blank")
        return value

    @field_validator("metrics")
    @classmethod
    def _has_a_number(cls, value: dict[str, Any]) -> dict[str, Any]:
        if not any(name and finite(number) is not None for name, number in value.items()):
            raise ValueError('must hold at least one finite number, such as {"f1": 0.71}')
        return value

    @field_validator("predictions")
    @classmethod
    def _stays_in_its_folder(cls, value: str | None) -> str | None:
        path = PurePosixPath(value or "")
        is_one = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
        if value is not None and not (is_one and _ONE_FILE.fullmatch(value)):
            raise ValueError("must be one file in the folder `predictions`, such as 'clip/run_1.parquet'")
        return value

    @property
    def variant(self) -> Literal["zero-shot", "fine-tuned"]:
        """Fine-tuned where there is a `finetune` object."""
        return "zero-shot" if self.finetune is None else "fine-tuned"

    def numbers(self) -> dict[str, float]:
        """Return the metrics that are finite numbers."""
        return {name: number for name, value in self.metrics.items() if (number := finite(value)) is not None}

    def scores(self) -> dict[str, float]:
        """Return the metrics that are scores and lie between 0 and 1, where all scores lie."""
        return {name: number for name, number in self._scores().items() if 0 <= number <= 1}

    def beyond_scores(self) -> dict[str, float]:
        """Return those that should be scores and do not lie there, such as percentages: they rank nobody."""
        return {name: number for name, number in self._scores().items() if not 0 <= number <= 1}

    def _scores(self) -> dict[str, float]:
        task = trimmed(self.task)
        return {name: number for name, number in self.numbers().items() if is_score(task, name)}

    def time(self) -> datetime | None:
        """Return when it ran, in UTC where no offset is given; None if that is not said in ISO 8601."""
        return parse_time(self.timestamp)


@dataclass(frozen=True)
class RecordWarning:
    """Something that is odd about an accepted record; `name` says which kind."""

    name: str
    message: str


@dataclass(frozen=True)
class AcceptedRecord:
    """A record that counts.

    Attributes:
        dataset: Name of its file, which is the dataset's.
        position: Its place in the file, from 1.
        record: The record.
        raw: The JSON object as it stands in the file.
        warnings: What is odd about it.
    """

    dataset: str
    position: int
    record: RunRecord
    raw: Mapping[str, Any]
    warnings: tuple[RecordWarning, ...] = ()

    @property
    def digest(self) -> str:
        """What tells it from other records wherever it stands: its place changes with the file."""
        return blake3(dump_json(self.raw).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Refusal:
    """A record that does not count, or a whole file where `position` is null.

    Attributes:
        dataset: Name of its file.
        position: Its place in the file, from 1.
        reason: Why.
    """

    dataset: str
    position: int | None
    reason: str

    @property
    def where(self) -> str:
        """File and position in words."""
        return f"{self.dataset}.json" + (f", record {self.position}" if self.position else "")

    def describe(self) -> str:
        """Return where and why in a line."""
        return one_line(f"{self.where}: {self.reason}")


@dataclass(frozen=True)
class RunRecords:
    """All records of a folder: each is either accepted or refused."""

    accepted: tuple[AcceptedRecord, ...] = ()
    refused: tuple[Refusal, ...] = ()

    @property
    def with_warnings(self) -> tuple[AcceptedRecord, ...]:
        """The accepted ones that something is odd about."""
        return tuple(one for one in self.accepted if one.warnings)


def check_files(files: Iterable[RecordFile], catalogue: Catalogue) -> RunRecords:
    """Return what becomes of every record of the files."""
    accepted: list[AcceptedRecord] = []
    refused: list[Refusal] = []
    for file in files:
        if file.problem is not None:
            refused.append(Refusal(file.dataset, None, file.problem))
        elif not isinstance(file.document, list):
            refused.append(Refusal(file.dataset, None, _no_list(file.document)))
        else:
            for position, raw in enumerate(file.document, start=1):
                repeated = file.repeated.get(position, ())
                outcome = check_record(raw, file.dataset, position, catalogue, repeated)
                (accepted if isinstance(outcome, AcceptedRecord) else refused).append(outcome)  # type: ignore[arg-type]
    return RunRecords(tuple(accepted), tuple(refused))


def check_record(
    raw: Any, dataset: str, position: int, catalogue: Catalogue, repeated: Sequence[str] = ()
) -> AcceptedRecord | Refusal:
    """Return a record accepted, with what is odd about it, or refused.

    Args:
        raw: The JSON value.
        dataset: Name of its file.
        position: Its place in the file, from 1.
        catalogue: Knows which datasets there are; an empty one is not asked.
        repeated: Keys that an object in it has twice.
    """
    if not isinstance(raw, dict):
        return Refusal(dataset, position, f"it must be a JSON object, not {_kind(raw)}")
    if not _is_finite(raw):
        return Refusal(dataset, position, "it holds a number beyond 1.8e308, which nothing can read")
    parts = (part for part in (raw, raw.get("metrics"), raw.get("finetune")) if isinstance(part, dict))
    if halves := [name for part in parts for name in part if _HALF.search(name)]:
        return Refusal(dataset, position, f"half of a character is in the key {halves[0]!r}")
    try:
        record = RunRecord.model_validate(raw)
    except ValidationError as error:
        return Refusal(dataset, position, "; ".join(_problem(issue) for issue in error.errors()))
    warnings = list(_warnings(record, dataset, catalogue))
    if repeated:
        warnings.append(
            RecordWarning("repeated_key", f"given twice, of which the last counts: {', '.join(repeated)}")
        )
    return AcceptedRecord(dataset, position, record, raw, tuple(warnings))


def count_records(records: RunRecords) -> dict[str, int]:
    """Return how many records are accepted, how many of them with warnings, and how many are refused."""
    return {
        "accepted": len(records.accepted),
        "with_warnings": len(records.with_warnings),
        "refused": len(records.refused),
    }


def describe_records(records: RunRecords) -> dict[str, Any]:
    """Return every record with what became of it, as JSON values."""
    return {
        "counts": count_records(records),
        "accepted": [
            {
                "dataset": one.dataset,
                "position": one.position,
                "digest": one.digest,
                "warnings": [asdict(warning) for warning in one.warnings],
                "record": one.raw,
            }
            for one in records.accepted
        ],
        "refused": [asdict(one) for one in records.refused],
    }


def one_line(text: str) -> str:
    """Return a text that can do nothing to a terminal: line ends, control characters and the like are spelled."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def describe_beyond(scores: Mapping[str, float]) -> str:
    """Return in words that scores lie outside their range."""
    return f"not between 0 and 1: {', '.join(f'{name} = {number:g}' for name, number in scores.items())}"


def parse_time(timestamp: str | None) -> datetime | None:
    """Return an ISO 8601 time, in UTC where no offset is given; None for anything else."""
    text = trimmed(timestamp)
    if text is None or not _DATE.match(text):
        return None
    try:
        time = datetime.fromisoformat(text)
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    except ValueError:
        return None


def _is_finite(value: Any) -> bool:
    """Return whether all numbers in a JSON value are doubles."""
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return isinstance(value, bool) or not isinstance(value, int | float) or finite(value) is not None


def _no_list(document: Any) -> str:
    if isinstance(document, dict) and isinstance(document.get("leaderboard"), list):
        return "it holds a ready leaderboard and no run records; the site shows it, our board cannot"
    return f"it must hold a JSON array of run records, not {_kind(document)}"


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    kinds: dict[type, str] = {
        dict: "an object",
        list: "an array",
        str: "a text",
        int: "a number",
        float: "a number",
    }
    return kinds.get(type(value), "null")


def _problem(issue: Any) -> str:
    """Return what is wrong with a field, in words."""
    place = ".".join(str(part) for part in issue["loc"] if part not in ("float", "int", "str", "bool"))
    if issue["type"] == "missing":
        return f"{place!r} is required"
    message = issue["msg"].removeprefix("Value error, ").removeprefix("Input ")
    value = issue["input"]
    shown = repr(value) if value is None or isinstance(value, str | int | float | bool) else _kind(value)
    return f"{place!r} {message} (got {shown if len(shown) < 60 else shown[:57] + '...'})"


def _warnings(record: RunRecord, dataset: str, catalogue: Catalogue) -> Iterable[RecordWarning]:
    if catalogue.found and not catalogue.knows(dataset):
        near = catalogue.nearest(dataset)
        hint = did_you_mean(dataset, [near]) if near else ""
        yield RecordWarning("unknown_dataset", f"the catalogue has no dataset {dataset!r}.{hint}")
    if record.dataset is not None and record.dataset.rstrip("/").rpartition("/")[2] != dataset:
        yield RecordWarning("other_dataset", f"it names the dataset {record.dataset!r}, its file {dataset!r}")
    missing = [name for name in RECOMMENDED if getattr(record, name) is None]
    if missing:
        yield RecordWarning("recommended_field_missing", f"not given: {', '.join(missing)}")
    if record.timestamp is not None and record.time() is None:
        yield RecordWarning("timestamp_not_iso", f"{record.timestamp!r} is no ISO 8601 time")
    yield from _variant_warnings(record)
    yield from _metric_warnings(record)
    yield from _count_warnings(record)
    of_finetune = (record.finetune.model_extra or {}) if record.finetune else {}
    if unknown := [*(record.model_extra or {}), *(f"finetune.{name}" for name in of_finetune)]:
        yield RecordWarning("unknown_field", f"kept, but read by nobody: {', '.join(unknown)}")


def _variant_warnings(record: RunRecord) -> Iterable[RecordWarning]:
    said = (trimmed(record.result_type) or "").lower().replace("_", "-").replace(" ", "-")
    says_tuned = said.startswith(("fine-tun", "finetun"))
    if (says_tuned and record.finetune is None) or (said == "zero-shot" and record.finetune is not None):
        yield RecordWarning(
            "result_type_contradicts_finetune",
            f"result_type is {record.result_type!r}, but it counts as {record.variant}, by `finetune`",
        )
    for name, value in (
        ("optimized", record.optimized),
        ("finetune.optimized", getattr(record.finetune, "optimized", None)),
    ):
        if value is not None and (trimmed(str(value)) or "").lower() not in ("yes", "no"):
            yield RecordWarning("optimized_not_yes_or_no", f"{name} is {value!r}, not 'yes' or 'no'")


def _metric_warnings(record: RunRecord) -> Iterable[RecordWarning]:
    task, numbers = record.task, record.numbers()
    if task not in TASK_METRICS:
        yield RecordWarning("unknown_task", f"{task!r} is none of {', '.join(TASK_METRICS)}")
    if not any(name in numbers for name in listed_metrics(task)):
        first = primary_metric(task, record.metrics)
        yield RecordWarning(
            "ranked_by_first_metric", f"it has no metric of its task; the site ranks it by {first!r}"
        )
    if ignored := [name for name, value in record.metrics.items() if finite(value) is None]:
        yield RecordWarning("metric_not_a_number", f"not counted: {', '.join(ignored)}")
    if beyond := record.beyond_scores():
        yield RecordWarning("score_out_of_range", f"{describe_beyond(beyond)}: our board does not rank it by that")


def _count_warnings(record: RunRecord) -> Iterable[RecordWarning]:
    skipped = finite(record.metrics.get("skipped_samples"))
    if skipped is not None and (skipped < 0 or skipped > (record.num_samples or skipped)):
        yield RecordWarning("skipped_out_of_range", f"{skipped:g} of {record.num_samples} samples were skipped")
    percents = [record.train_pct, record.test_pct, record.val_pct]
    total = sum(percent for percent in percents if percent is not None)
    if None not in percents and abs(total - 100) > _PERCENT_SLACK:
        yield RecordWarning("split_not_100_percent", f"train, test and validation percentages sum to {total:g}")
