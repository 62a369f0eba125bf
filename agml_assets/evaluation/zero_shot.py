"""Answers without training: an image is of the class whose name, in a sentence, is nearest to it.

Vectors of images are the stored features; sentences are encoded in `backbones.text_towers`.
"""

import re
import time
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from jaxtyping import Float

from agml_assets.errors import UserError
from agml_assets.evaluation.backbones.text_towers import TextTower
from agml_assets.evaluation.predictions import MAX_CLASSES, Fitted
from agml_assets.evaluation.subjects import Subject
from agml_assets.evaluation.ways import ZERO_SHOT
from agml_assets.registry.models import ModelEntry
from agml_assets.registry.prompts import PLACE

PROMPTS = ("a photo of {}.", "an agricultural photo of {}.")
"""Of AgML's experiments."""


def prompts_of(subject: Subject, model: ModelEntry) -> tuple[str, ...]:
    """Return the prompts of a pair: the dataset's or task's, else the model's, else `PROMPTS`."""
    return subject.prompts or model.prompts or PROMPTS


def shown_names(where: str, declared: Sequence[str], overrides: Mapping[str, str]) -> tuple[str, ...]:
    """Return the name that prompts show for each class: `_` and `-` become blanks, and several blanks one.

    Args:
        where: Dataset or task, for messages.
        declared: Names of all classes.
        overrides: Names to show instead, cleaned in the same way, by declared name.

    Raises:
        UserError: An override names no class, or two classes would show the same name, whatever the case.
    """
    if unknown := [name for name in overrides if name not in declared]:
        raise UserError(
            f"{where!r}: class_name_overrides names {unknown[0]!r}, which is no class. Classes are: "
            f"{', '.join(declared[:20])}{' and others' if len(declared) > 20 else ''}."
        )
    shown = tuple(_cleaned(overrides.get(name, name)) for name in declared)
    first: dict[str, str] = {}
    for name, cleaned in zip(declared, shown, strict=True):
        if not cleaned:
            raise UserError(
                f"{where!r}: the class {name!r} has no name to show. Give it one under class_name_overrides."
            )
        other = first.setdefault(cleaned.lower(), name)
        if other != name:
            raise UserError(
                f"{where!r}: the classes {other!r} and {name!r} would both be shown as {cleaned.lower()!r}. Give "
                "one of them another name under class_name_overrides in the registry entry."
            )
    return shown


def answer_zero_shot(subject: Subject, model: ModelEntry, features: Float[np.ndarray, "e d"]) -> Fitted:
    """Return the class whose name is nearest to each test example, with a probability for every class.

    The vector of a class is the mean over prompts of unit vectors, at unit length again (Radford et al., CLIP,
    2021, section 3.1.4). Probabilities are the softmax of `exp(logit_scale)` times the cosines; a SigLIP's bias,
    the same for every class, falls out of it.

    Args:
        subject: Its examples align to `features`.
        model: A model with a text tower.
        features: The model's projected vector of each example.

    Raises:
        UserError: The model or the subject is not fit for it, features are not finite or have no direction, or
            names of classes collide.
    """
    _require_one_named_class(subject)
    tower = TextTower(model)
    names, prompts = (
        shown_names(subject.key, subject.class_names, subject.class_name_overrides),
        prompts_of(subject, model),
    )
    split = subject.examples["split"].to_numpy()
    test = np.flatnonzero((split == "test") | (split == "all"))
    if not len(test):
        raise UserError(f"{subject.key!r} has no test example. Choose another split, or add images.")
    started = time.monotonic()
    sentences = [prompt.replace(PLACE, name) for prompt in prompts for name in names]
    vectors, scale = tower.encode(sentences)
    classes = _unit(vectors.reshape(len(prompts), len(names), -1).mean(axis=0))
    encoded = time.monotonic()
    images = np.asarray(features[test], np.float32)
    lengths = np.linalg.norm(images, axis=1)
    if not np.isfinite(lengths).all() or not lengths.all():
        raise UserError(
            f"Some examples of {subject.key!r} have features that are not finite, or all 0. Encode them again; if "
            "that does not help, try precision: float32 in the model's entry."
        )
    if images.shape[1] != classes.shape[1]:
        raise UserError(
            f"Model {model.key!r} gives images {images.shape[1]} features and sentences {classes.shape[1]}: its "
            "two towers do not share one space."
        )
    cosines = _unit(images) @ classes.T
    examples = subject.examples[test]
    frame = examples.select("example", true=pl.col("label").cast(pl.Int64)).with_columns(
        predicted=pl.Series(cosines.argmax(axis=1), dtype=pl.Int64), group=examples["group"]
    )
    if len(names) <= MAX_CLASSES:
        logits = scale * cosines.astype(np.float64)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares = (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)
        frame = frame.with_columns(probabilities=pl.Series(shares.tolist(), dtype=pl.List(pl.Float32)))
    settings = {"estimator": "ZeroShot", "prompts": list(prompts), "shown_names": list(names), "scale": scale}
    return Fitted(frame, 0, encoded - started, time.monotonic() - encoded, settings)


def _require_one_named_class(subject: Subject) -> None:
    if subject.examples.schema["label"].is_nested() or subject.protocol.by_subtask or not subject.class_names:
        raise UserError(
            f"{subject.key!r} does not ask for one of several named classes, so {ZERO_SHOT} cannot answer it. "
            "Choose a probe."
        )


def _cleaned(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip()


def _unit(vectors: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
