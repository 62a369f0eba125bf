"""The sample as a source: leaves that the project draws itself, with planted faults."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import PIL
from blake3 import blake3

from agml_assets.dataset import leaves, sample
from agml_assets.dataset.sources.base import Example, SourceInfo
from agml_assets.store import file_digest


def sample_fingerprint() -> str:
    """Return the identity of the drawing code and its libraries, which is all that the sample depends on."""
    code = [file_digest(Path(str(module.__file__))) for module in (leaves, sample)]
    return blake3("\n".join([*code, PIL.__version__, np.__version__]).encode()).hexdigest()[:32]


class SampleSource:
    """The sample, drawn as it is read; nothing is written."""

    def info(self) -> SourceInfo:
        """Return the facts about the sample."""
        return SourceInfo(
            class_names=sample.CLASS_NAMES,
            metadata_columns={},
            native_splits=(),
            num_rows=sample.NUM_IMAGES,
            fingerprint=sample_fingerprint(),
            resolved={"source": "sample", "name": "sample"},
        )

    def examples(self, start: int = 0) -> Iterator[Example]:
        """Draw the images from `start` on."""
        for row, image in enumerate(sample.sample_images(start), start=start):
            yield Example(row, image.data, image.file, image.label, None)
