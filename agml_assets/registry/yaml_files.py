"""What every registry file shares: safe and strict YAML, the form of keys, and complaints that name what is wrong.

What an entry may say is in the module of each registry.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import yaml
from pydantic import ValidationError

from agml_assets.errors import UserError
from agml_assets.settings import expand_path, unknown_key


class Keyed(Protocol):
    """An entry of a registry."""

    @property
    def key(self) -> str:
        """Its partition and folder name."""


_Entry = TypeVar("_Entry", bound=Keyed)
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


class StrictLoader(yaml.SafeLoader):
    """Refuses a key that is given twice, where plain YAML loading silently keeps the last."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a mapping, and look at its keys before the last of equal ones would win."""
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if (key.tag, key.value) in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark
                    )
                seen.add((key.tag, key.value))
        return node


def find_file(path: Path | str | None, variable: str, shipped: Path) -> tuple[Path, str]:
    """Return a registry's file: `path`, else that in the environment, else the shipped one; absolute.

    Args:
        path: Where the caller says it is.
        variable: Name of the environment variable.
        shipped: The file that comes with the package.

    Returns:
        The file, and where its path comes from, for the messages of `read_yaml`.
    """
    if path:
        return expand_path(str(path)).absolute(), ""
    if from_environment := os.environ.get(variable):
        return expand_path(from_environment).absolute(), f", named by ${variable},"
    return shipped.absolute(), ""


def absolute_path(value: Path | None) -> Path | None:
    """Return a path of an entry with its variables expanded, absolute; raise `ValueError` where one is not set."""
    try:
        return expand_path(str(value)).absolute() if value else None
    except UserError as error:
        raise ValueError(error.message) from None


def read_yaml(file: Path, what: str, section: str, named_by: str = "") -> dict[Any, Any]:
    """Return the mapping that a registry file holds.

    Args:
        file: The file.
        what: The registry, for messages, such as `dataset registry`.
        section: The key of its list of entries, for messages.
        named_by: Where its path comes from, for messages, such as `, named by $AGML_REGISTRY,`.

    Raises:
        UserError: There is no such file, or it is no mapping in YAML.
    """
    try:
        # A safe loader: it makes plain values only, never objects.
        document = yaml.load(file.read_text(encoding="utf-8-sig"), Loader=StrictLoader)  # noqa: S506
    except FileNotFoundError:
        raise UserError(f"The {what} {file}{named_by} does not exist.") from None
    except OSError as error:
        raise UserError(f"The {what} {file}{named_by} cannot be read: {error.strerror}.") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"The {what} {file}{line}, is not valid YAML: {error.problem or error.context}.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Among them: text that is not UTF-8, control characters, dates that do not exist.
        reason = str(error).partition("\n")[0]
        raise UserError(f"The {what} {file} is not valid YAML: {reason}.") from None
    if not isinstance(document, dict):
        raise UserError(f"The {what} {file} must be a mapping with a list `{section}`.")
    return document


def read_entries(
    document: dict[Any, Any],
    section: str,
    read_entry: Callable[[Any, str, list[str]], _Entry | None],
    problems: list[str],
) -> list[_Entry]:
    """Return the valid entries of a registry whose document is a list `section` and nothing else.

    Args:
        document: As `read_yaml` returns it.
        section: Key of the list, and what its entries are called in messages.
        read_entry: Takes an item, where it stands and `problems`; returns the entry, or None having said why not.
        problems: Takes a sentence for everything that is wrong.
    """
    problems += [unknown_key(key, (section,)) for key in document if key != section]
    items = document.get(section)
    if not isinstance(items, list | None) or section not in document:
        problems.append(f"`{section}` must be a list of entries, each with a `key`")
    found = [
        read_entry(item, f"entry {position}", problems)
        for position, item in enumerate(items if isinstance(items, list) else [], start=1)
    ]
    entries = [entry for entry in found if entry is not None]
    problems += key_collisions(entries, section)
    return entries


def key_collisions(entries: Iterable[Keyed], what: str) -> list[str]:
    """Return a sentence for every entry with the key of one before it; case does not count."""
    seen: dict[str, Keyed] = {}
    problems = []
    for entry in entries:
        other = seen.setdefault(entry.key.lower(), entry)
        if other is not entry:
            problems.append(f"two {what} have the same key, {other.key!r} and {entry.key!r} (case does not count)")
    return problems


def is_key(text: str) -> bool:
    """Tell whether a text can be a key: a partition, a folder and a part of an address."""
    return _KEY.fullmatch(text) is not None


def require_key(text: str) -> str:
    """Return a key; raise `ValueError`, which says how to mend it, where it cannot be one."""
    if not is_key(text):
        raise ValueError(
            f"{text!r} cannot be a key; set `key` to 1 to 100 letters, digits, `_` or `-` (ASCII), "
            "beginning with a letter or digit"
        )
    return text


def complaints(error: ValidationError, known: Collection[str]) -> list[tuple[str, str]]:
    """Return the field and a sentence for every issue that pydantic found; `known` are the fields there are."""
    messages = []
    for issue in error.errors():
        field = str(issue["loc"][0]) if issue["loc"] else ""
        message = issue["msg"].removeprefix("Value error, ")
        if issue["type"] == "string_type":
            message = "must be text; put the value in quotes"
        elif issue["type"] == "extra_forbidden":
            message = unknown_key(field, known)
        messages.append((field, f"`{field}`: {message}" if field else message))
    return messages
