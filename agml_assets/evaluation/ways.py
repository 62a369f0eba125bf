"""Every way to have a model answer test examples, by the name that settings, commands and run records use.

Probes are fitted on features; a zero-shot model compares features with its own vectors of the classes' names; and
a fine-tuned one is trained on the images themselves.
"""

from agml_assets.evaluation.probes.table import PROBES

ZERO_SHOT = "zero_shot"
FINE_TUNE = "fine_tune"

ASKED = "asked"
"""Key, in the settings of zero-shot predictions, of the prompts and of the names that they show."""

WAYS = (*PROBES, ZERO_SHOT, FINE_TUNE)

FROZEN = "frozen"
"""Kind of result of every probe: the model stays as it is."""

KINDS = (FROZEN, ZERO_SHOT, FINE_TUNE)
"""Kinds of results; each has a place of its own, so that none takes that of another."""


def kind_of(way: str) -> str:
    """Return the kind of result that a way gives."""
    return way if way in KINDS else FROZEN


def needs_features(way: str) -> bool:
    """Return whether the stored features are what is answered from."""
    return way != FINE_TUNE
