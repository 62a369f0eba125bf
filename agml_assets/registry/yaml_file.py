"""Registry files read strictly: plain values only, no key given twice, errors that name the file and the line.

What the values mean is each registry's.
"""

from pathlib import Path
from typing import Any

import yaml

from agml_assets.errors import UserError


def read_yaml(file: Path, what: str, named_by: str, needed: str) -> dict[Any, Any]:
    """Return the mapping that a YAML file holds.

    Args:
        file: The file.
        what: How messages begin, such as `The dataset registry <file>`.
        named_by: What named the file, for the message that it does not exist; or an empty text.
        needed: What the mapping must hold, for the message that it is no mapping.

    Raises:
        UserError: The file does not exist, cannot be read, is not YAML, or holds no mapping.
    """
    try:
        # A safe loader: it makes plain values only, never objects.
        document = yaml.load(file.read_text(encoding="utf-8-sig"), Loader=_StrictLoader)  # noqa: S506
    except FileNotFoundError:
        raise UserError(f"{what}{named_by} does not exist.") from None
    except OSError as error:
        raise UserError(f"{what}{named_by} cannot be read: {error.strerror}.") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"{what}{line}, is not valid YAML: {error.problem or error.context}.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Among them: text that is not UTF-8, control characters, dates that do not exist.
        reason = str(error).partition("\n")[0]
        raise UserError(f"{what} is not valid YAML: {reason}.") from None
    if not isinstance(document, dict):
        raise UserError(f"{what} must be a mapping with {needed}.")
    return document


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that is given twice, where plain YAML loading silently keeps the last."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
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
