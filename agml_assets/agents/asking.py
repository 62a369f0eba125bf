"""Questions to models that are shortened until they fit."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agml_assets.agents.recorder import PromptTooLongError, Role, TrialRecorder

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage, ModelOutput
    from inspect_ai.tool import ToolDef, ToolInfo

SHORTEST = 500
"""Characters that a part of a question has at least; it tells nothing when it is shorter."""


async def ask_fitting(
    trial: TrialRecorder,
    role: Role,
    question: "Callable[[int], str | Sequence[ChatMessage]]",
    longest: int,
    *,
    tools: "Sequence[ToolDef | ToolInfo]" = (),
    in_tool: bool = False,
) -> "ModelOutput":
    """Ask a model; where the question does not fit, ask again with parts half as long.

    Args:
        trial: Who asks.
        role: Which model.
        question: Makes the question, each of its parts of at most so many characters.
        longest: Characters of a part at first.
        tools: That it may call.
        in_tool: Whether an action asks.

    Raises:
        PromptTooLongError: It does not fit, however short its parts.
    """
    while True:
        try:
            return await trial.ask(role, question(longest), tools=tools, in_tool=in_tool)
        except PromptTooLongError:
            longest //= 2
            if longest < SHORTEST:
                raise
