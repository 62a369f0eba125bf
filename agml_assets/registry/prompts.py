"""What entries may say for zero-shot evaluation: sentences for a class's name, and names to show."""

from typing import Annotated

from pydantic import AfterValidator, Field

PLACE = "{}"
"""Stands in a prompt for the name of the class."""


def _each_has_one_place(prompts: tuple[str, ...]) -> tuple[str, ...]:
    for prompt in prompts:
        if prompt.count(PLACE) != 1:
            raise ValueError(f"the prompt {prompt!r} must hold {PLACE} once, where the class's name goes")
    return prompts


def _none_is_blank(names: dict[str, str]) -> dict[str, str]:
    for raw, shown in names.items():
        if not shown.strip():
            raise ValueError(f"the name shown for {raw!r} must not be blank")
    return names


Prompts = Annotated[tuple[str, ...], Field(strict=False), AfterValidator(_each_has_one_place)]
"""Such as `a photo of {}.`; empty means not said."""

ClassNames = Annotated[dict[str, str], AfterValidator(_none_is_blank)]
"""Declared name of a class -> name that prompts show."""
