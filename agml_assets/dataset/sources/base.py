"""What every source gives: facts about the whole, and a stream of examples that are not decoded yet."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""What sources call their splits, in lower case -> what they are called here."""


@dataclass(frozen=True)
class Example:
    """One image of a source.

    Attributes:
        source_row: Position in the source, from 0.
        image: Encoded bytes, or a local path; None where the source has no image.
        file: Name for people; None if there is none.
        label: Index into `SourceInfo.class_names`; None when unlabelled.
        native_split: `train`, `val`, `test`, another name of the source's own, or None.
        metadata: Value of each metadata column.
    """

    source_row: int
    image: bytes | Path | None
    file: str | None
    label: int | None
    native_split: str | None
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceInfo:
    """Facts about a source.

    Attributes:
        class_names: Declared classes in label order, those without images included.
        metadata_columns: Names of the values of each metadata column that declares them, else None.
        native_splits: The source's own splits; empty when there is only one.
        num_rows: Images in the source.
        fingerprint: Cheap identity of the content; another one means that unfinished work is void.
        resolved: What was read, JSON values: revision, config, columns, label mapping.
    """

    class_names: tuple[str, ...]
    metadata_columns: Mapping[str, tuple[str, ...] | None]
    native_splits: tuple[str, ...]
    num_rows: int
    fingerprint: str
    resolved: Mapping[str, Any]


class Source(Protocol):
    """Images with labels, in a stable order, read without decoding."""

    def info(self) -> SourceInfo:
        """Return the facts about the source."""
        ...

    def examples(self, start: int = 0) -> Iterator[Example]:
        """Stream the examples from `source_row` = `start` on, in order."""
        ...
