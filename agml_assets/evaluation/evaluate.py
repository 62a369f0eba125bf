"""One model on one dataset or task: features, predictions, scores, run record, each stored with its lineage.

Plain functions that assets, the command line and `agml_assets.evaluate` share. No Dagster here.
"""

import json
import logging
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

from agml_assets.device import use_device
from agml_assets.embeddings.encoder import FrozenEncoder
from agml_assets.errors import UserError
from agml_assets.evaluation.features import combine_images, count_missing, encode_images
from agml_assets.evaluation.fine_tuning import answer_fine_tuned
from agml_assets.evaluation.predictions import fit_and_predict, require_finite
from agml_assets.evaluation.run_record import Timing, make_run_record
from agml_assets.evaluation.scoring import score_predictions
from agml_assets.evaluation.stored import FILES, contender, file_of
from agml_assets.evaluation.subjects import Subject
from agml_assets.evaluation.ways import ASKED, FINE_TUNE, FROZEN, ZERO_SHOT, kind_of, needs_features
from agml_assets.evaluation.zero_shot import answer_zero_shot, prompts_of, shown_names
from agml_assets.locks import exclusive
from agml_assets.registry.models import ModelEntry
from agml_assets.store import PLATFORM, ArtifactStore, Sidecar

logger = logging.getLogger(__name__)

CODE_VERSIONS = {"features": "1", "predictions": "2", "scores": "2", "run_record": "3"}
"""Raised whenever a step would make other content from the same inputs."""

_TRAINED = ("linear", "multi_label")  # probes that use a GPU

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
        """Return the path of an artifact in the subject's folder; each kind of result has its own."""
        return file_of(contender(self.model.key, self.kind), step)

    @property
    def kind(self) -> str:
        """The kind of result, one of `ways.KINDS`."""
        return kind_of(self.subject.protocol.probe)

    def read(self, step: str) -> Any:
        """Read an artifact.

        Raises:
            UserError: It is not there.
        """
        if self.store.sidecar(self.subject.key, self.file(step)) is None:
            way = "" if self.kind == FROZEN else f" --probe {self.kind}"
            raise UserError(
                f"{self.subject.key!r} with model {self.model.key!r}: evaluation/{step} is not in the store. "
                f"Make it first: agml-assets evaluate {self.subject.key} --model {self.model.key}{way}"
            )
        return self.store.read(self.subject.key, self.file(step))

    def sidecar(self, step: str) -> Sidecar:
        """Return the sidecar of an artifact that is there."""
        found = self.store.sidecar(self.subject.key, self.file(step))
        assert found is not None, step
        return found

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps of this evaluation in order: those of `FILES`, without features where nothing reads them."""
        return tuple(FILES) if needs_features(self.subject.protocol.probe) else tuple(FILES)[1:]

    @property
    def asks_text(self) -> bool:
        """Whether classes are told apart by their names."""
        return self.subject.protocol.probe == ZERO_SHOT

    @property
    def work_folder(self) -> Path:
        """Local folder of a training that is not finished."""
        return self.store.local_folder(self.subject.key, f".work/evaluation/{self.model.key}/fine_tuning")

    def held(self, holder: str) -> AbstractContextManager[Any]:
        """Hold this pair against other runs; `holder` says who we are, for those who wait."""
        subject, model = self.subject.key, self.model.key
        lock = self.store.local_folder(PLATFORM, "locks") / f"{subject}.{model}.lock"
        return exclusive(lock, f"{model} on {subject}", holder)

    @cached_property
    def _model_digest(self) -> str:
        identity = json.dumps(self.encoder.identity(), sort_keys=True)
        return blake3(identity.encode()).hexdigest()[:32]

    @cached_property
    def _protocol(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self.subject.protocol)))  # as a sidecar gives it back

    def inputs(self, step: str) -> dict[str, str]:
        """Return the digests of all that a step is made from today; {} where its input is not there."""
        if step in ("features", self.steps[0]):
            return {**self.subject.inputs, "model": self._model_digest}
        before = list(FILES)[list(FILES).index(step) - 1]
        sidecar = self.store.sidecar(self.subject.key, self.file(before))
        of_before = {f"evaluation/{before}": sidecar.digest} if sidecar else {}
        # What is asked for sentences as well is not in the features alone.
        return (
            {**of_before, "model": self._model_digest} if step == "predictions" and self.asks_text else of_before
        )

    def settings(self, step: str) -> dict[str, Any]:
        """Return what else changes the content of a step."""
        if step == "features":
            return {"aggregate": self.subject.protocol.aggregate}
        if step == "predictions" and self.asks_text:
            shown = shown_names(self.subject.key, self.subject.class_names, self.subject.class_name_overrides)
            asked = {"prompts": list(prompts_of(self.subject, self.model)), "shown_names": list(shown)}
            return {**self._protocol, ASKED: asked}
        if step == "scores":
            said = {"checkpoint": self.model.checkpoint, "notes": list(self.subject.notes)}
            return {**self._protocol, **said}
        if step == "run_record":
            named = {
                "dataset": self.subject.name,
                "dataset_config": self.subject.config,
                "model": self.model.display_name,
            }
            return {**self._protocol, **named}
        return self._protocol

    def is_current(self, step: str) -> bool:
        """Return whether a stored artifact is what today would make."""
        file = self.file(step)
        made = self.store.sidecar(self.subject.key, file)
        # Vectors and predictions are too large to be read for this; what the answer is made from is not.
        reads = file.endswith(".json") and self.store.is_local
        return (
            made is not None
            and not made.removed
            and (not reads or self.store.is_intact(self.subject.key, file))
            and made.code_version == CODE_VERSIONS[step]
            and made.settings == self.settings(step)
            and made.inputs == self.inputs(step)
            and self.store.failure(self.subject.key, file) is None
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
    """Encode every image that the cache lacks, and store one vector per example, float32 (E, D).

    Raises:
        UserError: Vectors are not finite; nothing is stored then.
    """
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
    require_finite(subject, features)  # else they would count as current, and be in the way of better ones
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


def make_predictions(evaluation: Evaluation, tell: Tell | None = None) -> Sidecar:
    """Store what the probe, the zero-shot or the fine-tuned model says of every test example.

    A probe is fitted on the stored features; zero-shot answers compare them with sentences. A fine-tuned model
    sees the images themselves, and `tell` is told how many of its training it has seen.
    """
    started = time.monotonic()
    way = evaluation.subject.protocol.probe
    if way == FINE_TUNE:
        fitted = answer_fine_tuned(evaluation.subject, evaluation.model, evaluation.work_folder, progress=tell)
    elif way == ZERO_SHOT:
        fitted = answer_zero_shot(evaluation.subject, evaluation.model, evaluation.read("features"))
    else:
        holding = use_device(f"{way} probe on {evaluation.model.key}") if way in _TRAINED else nullcontext("cpu")
        with holding as device:
            fitted = fit_and_predict(evaluation.subject, evaluation.read("features"), device)
    info = {
        "n_train": fitted.n_train,
        "fit_s": round(fitted.fit_s, 3),
        "predict_s": round(fitted.predict_s, 3),
        "probe": fitted.settings,
        "invalid": fitted.n_invalid,
        "training": fitted.training,
        "device": fitted.device,
    }
    made = evaluation.write("predictions", fitted.predictions, time.monotonic() - started, info)
    if way == FINE_TUNE:
        shutil.rmtree(evaluation.work_folder)
    return made


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
        "invalid": made["invalid"],
        "classes": len(subject.class_names),
        "split": evaluation.split,
        "probe": made["probe"],
        "training": made["training"],
        "notes": list(subject.notes),
    }
    return evaluation.write("scores", scores, time.monotonic() - started, {})


def make_record(evaluation: Evaluation, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Sidecar:
    """Store the evaluation as a run record of the leaderboard's format."""
    started = time.monotonic()
    predicted = evaluation.sidecar("predictions").info
    if "features" in evaluation.steps:
        features = evaluation.sidecar("features").info
        timing = Timing(features["encode_s"], features["encoded_images"], predicted["fit_s"], features["device"])
    else:
        answered = evaluation.read("scores")["n_test"]
        timing = Timing(predicted["predict_s"], answered, predicted["fit_s"], predicted["device"])
    record = make_run_record(
        evaluation.subject,
        evaluation.model,
        evaluation.read("predictions"),
        evaluation.read("scores"),
        n_train=predicted["n_train"],
        settings=predicted["probe"],
        training=predicted["training"],
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
