"""The agent that thinks and acts in turns: one conversation with a model that calls tools.

Inspect has such an agent. This one takes one action at a time and keeps every turn, so that a trial whose process
died goes on where it was.
"""

from agml_assets.agents.recorder import TrialRecorder
from agml_assets.agents.solvers.conversation import (
    MOST_EMPTY_ANSWERS,
    converse,
    describe_task,
    empty_answers,
    last_thought,
)

_SYSTEM = """\
You are a careful machine-learning engineer. You improve a solution step by step: you look at what is there, form
a hypothesis, try it, and judge it by measurements on held-out data that you set aside yourself. Before every
action say in a sentence or two what you think and why you act so. Keep the best submission you have in place at
all times, check its form with validate_submission, and call submit when you cannot improve it further."""

_GO_ON = "Go on by calling a tool, or call submit if you are done."


async def play_react(trial: TrialRecorder) -> None:
    """Think and act until the work is submitted, or the model has nothing more to do."""
    from inspect_ai.model import ChatMessageSystem, ChatMessageUser

    if not trial.messages:
        trial.say(ChatMessageSystem(content=_SYSTEM))
        trial.say(ChatMessageUser(content=describe_task(trial)))
    while True:
        for call in trial.pending_calls():
            await trial.act_on(call, last_thought(trial))
            if trial.state.submitted:
                return
        if empty := empty_answers(trial):
            if empty == MOST_EMPTY_ANSWERS:
                return
            trial.say(ChatMessageUser(content=_GO_ON))
        await converse(trial)
