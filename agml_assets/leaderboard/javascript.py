"""Numbers, text and order as JavaScript has them: what byte equality with the site's own files hangs on.

Nothing here knows of records or datasets.
"""

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

_WHITESPACE = "\t\n\v\f\r \xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""What `trim` strips (ECMA-262, WhiteSpace and LineTerminator); Python's `strip` takes others."""

DEEPEST = 100
"""Levels of nesting that are read; what a record holds takes three, and Python's own limit is a crash."""

_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_EXACT = 2**53  # whole numbers beyond are not all different ones
_LONGEST_INTEGER = 400  # digits; beyond the largest double, and short of Python's own limit
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_PREFIXED = {"0x": 16, "0o": 8, "0b": 2}
_ARRAY_INDEX = re.compile(r"0|[1-9]\d{0,9}", re.ASCII)

_BEFORE_DIGITS = "\t\n\v\f\r _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$"
"""ASCII characters that sort before digits, in the root order of the Unicode Common Locale Data Repository."""

_LETTERS_OF_TWO = {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ł": "l"}


def parse_json(text: str) -> Any:
    """Read JSON as strictly as `JSON.parse`: no NaN, no Infinity, no byte order mark.

    Of a key given twice the last value counts, at the first place.

    Raises:
        ValueError: It is not JSON, or nested more than `DEEPEST` levels.
    """
    if text.count("[") + text.count("{") > DEEPEST and _depth(text) > DEEPEST:
        raise ValueError(f"it is nested more than {DEEPEST} levels deep")
    return json.loads(text, parse_constant=_refuse_constant, parse_int=_parse_integer)


def dump_json(value: Any) -> str:
    """Return what `JSON.stringify(value, null, 2)` returns."""
    return _text(value, "\n")


def finite(value: Any) -> float | None:
    """Return a number as a double; None for what is no number, or no finite one. Booleans are no numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def to_number(value: Any) -> float | None:
    """Return a finite number, or that which a text spells; None for anything else."""
    if not isinstance(value, str):
        return finite(value)
    text = value.strip(_WHITESPACE)
    base = _PREFIXED.get(text[:2].lower())
    try:
        if base:
            return finite(int(text[2:], base)) if text.isascii() and text[2:].isalnum() else None
        return finite(float(text)) if _DECIMAL.fullmatch(text) else None
    except ValueError:
        return None


def trimmed(value: Any) -> str | None:
    """Return a text without white space around it; None where nothing is left, or it is no text."""
    return (value.strip(_WHITESPACE) or None) if isinstance(value, str) else None


def truthy(value: Any) -> bool:
    """Return whether JavaScript takes a JSON value as true: empty lists and objects are."""
    return True if isinstance(value, list | Mapping) else bool(value)


def number_text(value: float) -> str:
    """Return a finite number as JavaScript prints it.

    Shortest digits that read back as the same double, with an exponent below 1e-6 and from 1e21 on
    (ECMA-262, Number::toString).
    """
    if isinstance(value, int) and abs(value) <= _EXACT:
        return str(value)
    number = float(value)
    if number == 0:
        return "0"
    if number.is_integer() and abs(number) <= _EXACT:
        return str(int(number))
    shortest = repr(number)
    if "e" not in shortest:
        return shortest.removesuffix(".0")
    mantissa, _, power = shortest.partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    digits = mantissa.removeprefix("-").replace(".", "")
    exponent = int(power)
    if 0 <= exponent < 21:
        return sign + digits.ljust(exponent + 1, "0")
    if -7 < exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    return f"{mantissa.removesuffix('.0')}e{exponent:+d}"


def to_fixed(value: float, digits: int) -> str:
    """Return a number with that many decimals: of its exact binary value, halves away from zero."""
    number = float(value)
    if abs(number) >= 1e21:
        return number_text(number)
    text = str(Decimal(number).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))
    return text if number else text.removeprefix("-")


def own_keys(value: Mapping[str, Any]) -> list[str]:
    """Return the keys of an object in JavaScript's order: array indices ascending, then the rest as given."""
    keys = list(value)
    indices = [k for k in keys if k[:1].isdigit() and _ARRAY_INDEX.fullmatch(k) and int(k) < 2**32 - 1]
    if not indices:
        return keys
    taken = set(indices)
    return sorted(indices, key=int) + [key for key in keys if key not in taken]


def code_units(text: str) -> bytes:
    """Return the key of JavaScript's default order of texts, by UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def collation_key(text: str) -> tuple[tuple[int, ...], tuple[str, ...], tuple[bool, ...]]:
    """Return the key of the order of `localeCompare`: letters, then accents, then lower case before upper.

    Exact for ASCII; accented Latin letters stand by their base letter. Other scripts follow by code point.
    """
    letters: list[int] = []
    accents: list[str] = []
    capitals: list[bool] = []
    for character in unicodedata.normalize("NFD", text):
        if unicodedata.combining(character):
            if accents:
                accents[-1] += character
            continue
        lower = character.lower()
        base = _LETTERS_OF_TWO.get(lower, lower)
        for letter in base:
            letters.append(_weight(letter))
            accents.append(lower if base != lower else "")
            capitals.append(character != lower)
    return tuple(letters), tuple(accents), tuple(capitals)


def _weight(letter: str) -> int:
    place = _BEFORE_DIGITS.find(letter)
    if place >= 0:
        return place
    if letter.isdigit():
        return 0x200000 + int(unicodedata.digit(letter))
    return (0x300000 if letter.isalpha() else 0x100000) + ord(letter)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _depth(text: str) -> int:
    depth = deepest = 0
    for match in _STRUCTURE.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        deepest = max(deepest, depth)
    return deepest


def _parse_integer(text: str) -> float:
    return int(text) if len(text) <= _LONGEST_INTEGER else float(text)


def _text(value: Any, margin: str) -> str:
    """Return the text of a value that stands behind `margin`, a line break and blanks."""
    if isinstance(value, str):
        return _quote(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return "null" if finite(value) is None else number_text(value)
    inner = margin + "  "
    if isinstance(value, dict):
        members = [label + _text(value[key], inner) for key, label in _labels(tuple(value))]
        return f"{{{inner}{f',{inner}'.join(members)}{margin}}}" if members else "{}"
    items = [_text(item, inner) for item in value]
    return f"[{inner}{f',{inner}'.join(items)}{margin}]" if items else "[]"


@lru_cache(maxsize=1024)
def _labels(keys: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the keys in order, each with its text; most objects have the keys of another."""
    return tuple((key, _quote(key) + ": ") for key in own_keys(dict.fromkeys(keys)))


def _quote(text: str) -> str:
    quoted: str = encode_basestring(text)
    if quoted.isascii():
        return quoted
    return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)
