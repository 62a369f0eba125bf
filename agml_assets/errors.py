"""Errors whose reader is the user, not the programmer.

A `UserError` says what is wrong, where, and what to do. Command-line programs show the message
alone, without a stack trace.
"""

import difflib
from collections.abc import Iterable

import click


class UserError(click.ClickException):
    """A mistake in a registry, a setting, a dataset or a command; the message says how to mend it."""


def nearest(text: str, known: Iterable[str], n: int = 3) -> list[str]:
    """Return up to `n` of the `known` names that look most like `text`, best first."""
    by_lower = {name.lower(): name for name in known}
    return [by_lower[hit] for hit in difflib.get_close_matches(text.lower(), list(by_lower), n=n, cutoff=0.5)]


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """Return `" Did you mean 'x' or 'y'?"` for the nearest known names, or an empty string."""
    names = nearest(text, known)
    return f" Did you mean {' or '.join(repr(name) for name in names)}?" if names else ""
