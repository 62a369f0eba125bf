"""Columns as the pages carry them: short, strict JSON, every text fit to be shown.

Which columns a page has is told in the other modules whose names begin with `page_`.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

from agml_assets.leaderboard.javascript import finite
from agml_assets.report.card_sections import printable

Column = dict[str, Any]
"""`texts`, each once, and `at`: the place of each row's text in it, or -1 for none."""


def shown(text: Any) -> str:
    """Return a text without control characters and overrides of its direction, which a page must not obey."""
    text = str(text)
    return text if text.isprintable() else printable(text)


def texts(values: Iterable[Any]) -> Column:
    """Return a column of texts; null where a value is null."""
    places: dict[str, int] = {}
    at = [-1 if value is None else places.setdefault(shown(value), len(places)) for value in values]
    return {"texts": list(places), "at": at}


def lists(values: Iterable[Iterable[Any]]) -> Column:
    """Return a column of lists of texts: `at` holds the places of each row's texts."""
    places: dict[str, int] = {}
    at = [[places.setdefault(shown(value), len(places)) for value in row] for row in values]
    return {"texts": list(places), "at": at}


def numbers(values: Iterable[Any], decimals: int = 6) -> list[float | None]:
    """Return numbers with at most so many decimals; null for what is no finite number."""
    return [number(value, decimals) for value in values]


def number(value: Any, decimals: int = 6) -> float | None:
    """Return a number with at most so many decimals, whole ones as integers."""
    found = finite(value)
    if found is None:
        return None
    rounded = round(found, decimals)
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded


def web_address(text: Any) -> str | None:
    """Return an address that may become a link: of the web, with a host; null for anything else."""
    if not isinstance(text, str) or not text.isprintable() or any(c.isspace() for c in text):
        return None
    try:
        parts = urlsplit(text)
        return text if parts.scheme in ("http", "https") and parts.hostname else None
    except ValueError:
        return None


def packed(values: Sequence[str]) -> str:
    """Return long texts, compressed (zlib) and in base64, for a page that unpacks them when they are asked for."""
    return base64.b64encode(zlib.compress(json.dumps(list(values)).encode(), 9)).decode()
