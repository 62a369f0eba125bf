"""One model on one dataset or task: features, predictions, scores, run record, each stored with its lineage.

Plain functions that assets, the command line and `agml_assets.evaluate` share. No Dagster here.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
from blake3 import blake3

from agml_assets.embeddings.encoder import FrozenEncoder
from agml_assets.errors import UserError
from agml_assets.evaluation.features import combine_images, count_missing, encode_images
from agml_assets.evaluation.predictions import fit_and_predict
from agml_assets.evaluation.run_record import Timing, make_run_record
from agml_assets.evaluation.scoring import score_predictions
from agml_assets.evaluation.subjects import Subject
from agml_assets.registry.models import ModelEntry
from agml_assets.store import ArtifactStore, Sidecar

logger = logging.getLogger(__name__)

FILES = {
    "features": "features.npy",
    "predictions": "predictions.parquet",
    "scores": "scores.json",
    "run_record": "run_record.json",
}
"""The artifacts of an evaluation, each made from the one before."""

CODE_VERSIONS = dict.fromkeys(FILES, "1")
"""Raised whenever a step would make other content from the same inputs."""

Tell = Callable[[int, int], None]


@dataclass(frozen=True)
class Evaluation:
    """One model on one subject, and where its artifacts lie.

    Attributes:
        subject: The dataset or task.
        model: The registered model.
        encoder: The frozen model; nothing is loaded before an image has to be.
        store: Artifact store.
        split: Name of the split, for the record.
    """

    subject: Subject
    model: ModelEntry
    encoder: FrozenEncoder
    store: ArtifactStore
    split: str = "published"

    def file(self, step: str) -> str:
        """Return the path of an artifact in the subject's folder."""
        return f"evaluation/{self.model.key}/{FILES[step]}"

    def read(self, step: str) -> Any:
        """Read an artifact.

        Raises:
            UserError: It is not there.
        """
        if self.store.sidecar(self.subject.key, self.file(step)) is None:
            raise UserError(
                f"{self.subject.key!r} with model {self.model.key!r}: evaluation/{step} is not in the store. "
                f"Make it first: agml-assets evaluate {self.subject.key} --model {self.model.key}"
            )
        return self.store.read(self.subject.key, self.file(step))

    def sidecar(self, step: str) -> Sidecar:
        """Return the sidecar of an artifact that is there."""
        found = self.store.sidecar(self.subject.key, self.file(step))
        assert found is not None, step
        return found

    @cached_property
    def _protocol(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self.subject.protocol)))  # as a sidecar gives it back

    def inputs(self, step: str) -> dict[str, str]:
        """Return the digests of all that a step is made from today; {} where its input is not there."""
        if step == "features":
            identity = json.dumps(self.encoder.identity(), sort_keys=True)
            return {**self.subject.inputs, "model": blake3(identity.encode()).hexdigest()[:32]}
        before = list(FILES)[list(FILES).index(step) - 1]
        sidecar = self.store.sidecar(self.subject.key, self.file(before))
        return {f"evaluation/{before}": sidecar.digest} if sidecar else {}

    def settings(self, step: str) -> dict[str, Any]:
        """Return what else changes the content of a step."""
        return {"aggregate": self.subject.protocol.aggregate} if step == "features" else self._protocol

    def is_current(self, step: str) -> bool:
        """Return whether a stored artifact is what today would make."""
        made = self.store.sidecar(self.subject.key, self.file(step))
        return (
            made is not None
            and made.code_version == CODE_VERSIONS[step]
            and made.settings == self.settings(step)
            and made.inputs == self.inputs(step)
            and self.store.failure(self.subject.key, self.file(step)) is None
        )

    def write(self, step: str, value: Any, seconds: float, info: Mapping[str, Any]) -> Sidecar:
        """Store an artifact with its sidecar."""
        facts = {
            "artifact": f"evaluation/{step}",
            "code_version": CODE_VERSIONS[step],
            "inputs": self.inputs(step),
            "settings": self.settings(step),
            "info": dict(info),
            "duration_s": round(seconds, 3),
        }
        return self.store.write(self.subject.key, self.file(step), value, facts)


def make_features(evaluation: Evaluation, tell: Tell | None = None) -> Sidecar:
    """Encode every image that the cache lacks, and store one vector per example, float32 (E, D)."""
    started = time.monotonic()
    subject, store = evaluation.subject, evaluation.store
    folder = store.local_folder(subject.key, f".work/evaluation/{evaluation.model.key}")
    images = folder / "images.npy"
    encoding = time.monotonic()
    use = encode_images(subject, evaluation.encoder, store, images, tell)
    encode_s, encoded = round(time.monotonic() - encoding, 3), use.misses
    before = store.sidecar(subject.key, evaluation.file("features"))
    if before is not None and not encoded:  # nothing was encoded now: what was measured then still holds
        encode_s, encoded = before.info["encode_s"], before.info["encoded_images"]
    vectors = np.load(images, mmap_mode="r", allow_pickle=False)
    features = combine_images(subject, vectors)
    del vectors
    images.unlink()
    info = {
        "encoder": evaluation.encoder.identity(),
        "device": use.device,
        "cache": use.verdict,
        "encoded_images": encoded,
        "encode_s": encode_s if encoded else None,
        "examples": len(features),
        "dimensions": int(features.shape[1]),
    }
    return evaluation.write("features", features, time.monotonic() - started, info)


def make_predictions(evaluation: Evaluation, device: str = "cpu") -> Sidecar:
    """Fit the probe on the stored features and store what it says of every test example."""
    started = time.monotonic()
    fitted = fit_and_predict(evaluation.subject, evaluation.read("features"), device)
    info = {"n_train": fitted.n_train, "fit_s": round(fitted.fit_s, 3), "probe": fitted.settings}
    return evaluation.write("predictions", fitted.predictions, time.monotonic() - started, info)


def make_scores(evaluation: Evaluation) -> Sidecar:
    """Score the stored predictions."""
    started = time.monotonic()
    subject, predictions = evaluation.subject, evaluation.read("predictions")
    made = evaluation.sidecar("predictions").info
    scores = {
        "dataset": subject.key,
        "model": evaluation.model.key,
        "checkpoint": evaluation.model.checkpoint,
        **score_predictions(subject.key, evaluation.model.key, predictions, subject.protocol),
        "n_train": made["n_train"],
        "n_test": len(predictions),
        "classes": len(subject.class_names),
        "split": evaluation.split,
        "probe": made["probe"],
        "notes": list(subject.notes),
    }
    return evaluation.write("scores", scores, time.monotonic() - started, {})


def make_record(evaluation: Evaluation, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Sidecar:
    """Store the evaluation as a run record of the leaderboard's format."""
    started = time.monotonic()
    features, predicted = evaluation.sidecar("features").info, evaluation.sidecar("predictions").info
    timing = Timing(features["encode_s"], features["encoded_images"], predicted["fit_s"], features["device"])
    record = make_run_record(
        evaluation.subject,
        evaluation.model,
        evaluation.read("predictions"),
        evaluation.read("scores"),
        n_train=predicted["n_train"],
        timing=timing,
        finished=now(),
        split=evaluation.split,
    )
    return evaluation.write("run_record", record, time.monotonic() - started, {})


MAKE: Mapping[str, Callable[[Evaluation], Sidecar]] = {
    "features": make_features,
    "predictions": make_predictions,
    "scores": make_scores,
    "run_record": make_record,
}


_TRIED = 8  # images that tell how long all will take


def estimate_seconds(evaluation: Evaluation) -> tuple[int, float]:
    """Return how many images the cache lacks, and about how many seconds encoding them takes here.

    A few images are encoded for it, twice, the second time by the clock.
    """
    missing = count_missing(evaluation.subject, evaluation.encoder, evaluation.store)
    if missing <= _TRIED:
        return missing, 0.0
    encode = evaluation.subject.encode_with(evaluation.encoder)
    places = list(range(_TRIED))
    encode(places)
    started = time.monotonic()
    encode(places)
    return missing, (time.monotonic() - started) * missing / _TRIED
