"""The agents: each is a function that plays one trial through its recorder until it has submitted or given up."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from agml_assets.agents.actions.modern import modern_tools
from agml_assets.agents.actions.old import old_tools
from agml_assets.agents.recorder import TrialRecorder
from agml_assets.agents.solvers.majority import play_majority
from agml_assets.agents.solvers.react import play_react
from agml_assets.agents.solvers.research import play_research
from agml_assets.agents.solvers.scripted import play_script
from agml_assets.agents.solvers.starter import play_starter
from agml_assets.registry.agents import AgentKind

if TYPE_CHECKING:
    from inspect_ai.tool import ToolDef

SOLVERS: Mapping[AgentKind, Callable[[TrialRecorder], Awaitable[None]]] = {
    "starter": play_starter,
    "scripted": play_script,
    "majority": play_majority,
    "react": play_react,
    "research": play_research,
}


def tools_of(trial: TrialRecorder) -> "list[ToolDef]":
    """Return the tools of a trial's agent: the modern ones for ReAct, the old benchmark's for all others.

    A script may use both.
    """
    if trial.agent.kind == "react":
        return modern_tools(trial)
    old = old_tools(trial)
    if trial.agent.kind != "scripted":
        return old
    names = {one.name for one in old}
    return [*old, *(one for one in modern_tools(trial) if one.name not in names)]
