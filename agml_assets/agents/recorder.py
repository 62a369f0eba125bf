"""One trial while it runs: every action and every call of a model goes through here, is counted, kept and limited.

Agents (`solvers`) and tools (`actions`) know nothing but this. How trials are run is in `runs`.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import anyio

from agml_assets.agents.error_kinds import speaks_of
from agml_assets.agents.models import redact
from agml_assets.agents.snapshots import ReadOnly, Snapshot, SnapshotStore, write_whole
from agml_assets.agents.task import AgentTask, Verdict
from agml_assets.agents.trial_state import TrialState
from agml_assets.registry.agents import AgentEntry, Limits

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage, Model, ModelOutput
    from inspect_ai.tool import ToolCall, ToolDef, ToolInfo

Judge = Callable[[AgentTask, Path], Verdict]
"""Scores the submission of a workspace."""

Validate = Callable[[AgentTask, Path], list[str]]
"""Says what is wrong with the form of a submission, and nothing of the answers."""

Role = Literal["main", "fast", "edit"]

_CLOCK_S = 1.0  # how often the time is written down during a step: at most so much is lost when the process dies


class LimitReachedError(Exception):
    """The trial has used up what it may.

    Attributes:
        ending: As in `trials.Trial.ending`.
    """

    def __init__(self, ending: str, message: str) -> None:
        super().__init__(message)
        self.ending = ending


class PromptTooLongError(Exception):
    """What a model was asked does not fit it."""


class ModelUnreachableError(Exception):
    """A model cannot be asked, for no fault of the agent: network, account or service. The trial goes on later."""


@dataclass(frozen=True)
class TrialPlace:
    """Where a trial keeps what is its own.

    Attributes:
        workspace: What the agent works in.
        state: The state file.
        store: Contents of files.
    """

    workspace: Path
    state: Path
    store: SnapshotStore

    @property
    def clock(self) -> Path:
        """The seconds used until a moment ago."""
        return self.state.with_suffix(".clock")


@dataclass
class TrialRecorder:
    """A trial while it runs.

    Attributes:
        task: What is to be done.
        agent: Who does it.
        limits: What may be used up.
        place: Where it keeps what is its own.
        state: What was done so far.
        judge: Scores the workspace.
        validate: Checks the form of the submission.
        python: Interpreter of scripts, as it is called in the sandbox.
        models: By role; empty for agents that think nothing.
        tools: What the agent can do.
        on_progress: Is told the seed and the number of steps.
        unreachable: Why it cannot go on for now; empty where it can.
    """

    task: AgentTask
    agent: AgentEntry
    limits: Limits
    place: TrialPlace
    state: TrialState
    judge: Judge
    validate: Validate
    python: str = "python"
    models: dict[Role, "Model"] = field(default_factory=dict)
    tools: list["ToolDef"] = field(default_factory=list)
    on_progress: Callable[[int, int], None] | None = None
    unreachable: str = ""

    def __post_init__(self) -> None:
        from inspect_ai.model import ChatMessage
        from pydantic import TypeAdapter

        self.read_only = ReadOnly.of(self.task)
        self._sat_down: float | None = None
        self._before = self.state.seconds
        self._adapter: TypeAdapter[list[ChatMessage]] = TypeAdapter(list[ChatMessage])
        self.messages: list[ChatMessage] = self._adapter.validate_python(self.state.messages)
        self._saved_messages = len(self.messages)

    # Time

    def sit_down(self) -> None:
        """Begin to count the time."""
        self._sat_down = time.monotonic()

    def seconds(self) -> float:
        """Return the seconds used, over all sittings."""
        return self._before + (0.0 if self._sat_down is None else time.monotonic() - self._sat_down)

    async def write_clock(self) -> None:
        """Write the time down, again and again, until cancelled."""
        while True:
            self.note_time()
            await anyio.sleep(_CLOCK_S)

    def note_time(self) -> None:
        """Write the time down."""
        write_whole(self.place.clock, f"{self.seconds():.3f}".encode())

    # Conversation

    def say(self, message: "ChatMessage") -> None:
        """Add a message to the conversation."""
        self.messages.append(message)

    def pending_calls(self) -> list["ToolCall"]:
        """Return the calls of tools that the last answer asked for and that have no result yet."""
        for place in range(len(self.messages) - 1, -1, -1):
            message = self.messages[place]
            if message.role == "assistant":
                answered = {one.tool_call_id for one in self.messages[place + 1 :] if one.role == "tool"}
                return [call for call in message.tool_calls or () if call.id not in answered]
            if message.role != "tool":
                break
        return []

    async def ask(
        self,
        role: Role,
        messages: "Sequence[ChatMessage] | str",
        *,
        tools: "Sequence[ToolDef | ToolInfo]" = (),
        history: int | None = None,
        in_tool: bool = False,
    ) -> "ModelOutput":
        """Ask a model.

        Args:
            role: Which one.
            messages: The conversation, or a question.
            tools: That it may call.
            history: `messages` are so many first ones of the trial's conversation.
            in_tool: Whether an action asks; then limits are looked at when it ends.

        Raises:
            LimitReachedError: The tokens are used up.
            PromptTooLongError: The messages do not fit the model, whether Inspect recognises that or not.
            ModelUnreachableError: It cannot be reached, or refuses the account; the time lost does not count.
        """
        from inspect_ai.model import ChatMessageUser, ModelOutput

        model = self.models[role]
        asked: list[ChatMessage] = (
            [ChatMessageUser(content=messages)] if isinstance(messages, str) else list(messages)
        )
        began = time.monotonic()
        try:
            output = await model.generate(asked, tools=list(tools))
        except Exception as error:
            refused = _refusal(error)
            if not in_tool and speaks_of("connection", f"{type(error).__name__}: {refused}"):
                self._before -= time.monotonic() - began
                raise ModelUnreachableError(f"The model {model} cannot be asked: {redact(refused)}") from error
            if not speaks_of("prompt", refused):
                raise
            output = ModelOutput.from_content(model.name, refused, stop_reason="model_length")
        usage = output.usage
        counted = (
            (usage.input_tokens, usage.output_tokens, usage.total_tokens) if usage else _estimated(asked, output)
        )
        name = str(model)
        sums = self.state.usage.setdefault(name, {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0})
        for key, count in zip(sums, counted, strict=True):
            sums[key] += count
        call: dict[str, Any] = {
            "model": name,
            "output": redact(describe_answer(output)),
            "input_tokens": counted[0],
            "output_tokens": counted[1],
            "step": len(self.state.steps),
            "tool": in_tool,
        }
        if usage is None:
            call["estimated"] = True
        call |= {"history": history} if history is not None else {"input": redact(describe_messages(asked))}
        self.state.calls.append(call)
        if not in_tool:
            self.require_tokens()
        if output.stop_reason == "model_length" and not output.message.tool_calls:
            raise PromptTooLongError(f"The prompt is too long for {name}: {output.completion}")
        return output

    def require_tokens(self) -> None:
        """Raise `LimitReachedError` where the tokens are used up."""
        used = sum(one["total_tokens"] for one in self.state.usage.values())
        if self.limits.tokens is not None and used >= self.limits.tokens:
            raise LimitReachedError("token_limit", f"{used:,} of {self.limits.tokens:,} tokens were used.")

    # Actions

    async def act(self, action: str, arguments: dict[str, Any], thought: str = "") -> str:
        """Do something as an agent without a model does; it becomes part of the conversation."""
        from inspect_ai.model import ChatMessageAssistant
        from inspect_ai.tool import ToolCall

        call = ToolCall(id=f"step_{len(self.state.steps)}", function=action, arguments=arguments)
        self.say(ChatMessageAssistant(content=thought, tool_calls=[call]))
        return await self.act_on(call, thought)

    async def act_on(self, call: "ToolCall", thought: str = "") -> str:
        """Do what a call of a tool asks for, and keep it as a step.

        Returns:
            What the agent is told.

        Raises:
            LimitReachedError: It was the last step, or the tokens are used up.
        """
        from inspect_ai.model import ChatMessageAssistant, ChatMessageTool, execute_tools

        asked = ChatMessageAssistant(content="", tool_calls=[call])
        try:
            # Tools cut their observations themselves, visibly.
            done = await execute_tools([asked], list(self.tools), max_output=0)
            reply = done.messages[0]
            assert isinstance(reply, ChatMessageTool)
        except anyio.get_cancelled_exc_class():
            # An action that something else interrupts is none: the trial goes on before it.
            if self.seconds() >= self.limits.seconds:
                with anyio.CancelScope(shield=True):
                    await self._note_step(call, thought, "The action was ended: the time of the trial is used up.")
            raise
        told = reply.error.message if reply.error else reply.text
        if reply.error and reply.error.type == "parsing":
            told = f"{told}\n{self._usage_of(call.function)}"
        observation = redact(told)
        reply = reply.model_copy(update={"content": observation})
        if reply.error:
            reply.error.message = observation
        self.say(reply)
        await self._note_step(call, thought, observation)
        if not self.state.submitted:
            self.require_tokens()
            if len(self.state.steps) >= self.limits.steps:
                raise LimitReachedError("step_limit", f"All {self.limits.steps} steps were used.")
        return observation

    def _usage_of(self, action: str) -> str:
        """Return how an action is called, for an agent that called it wrongly."""
        tool = next((one for one in self.tools if one.name == action), None)
        if tool is None:
            return f"The actions are: {', '.join(one.name for one in self.tools)}."
        arguments = {name: one.description for name, one in tool.parameters.properties.items()}
        return f"The arguments of {action} are a JSON object: {json_line(arguments)}"

    def submit(self) -> None:
        """Note that the agent has given its answer."""
        self.state.submitted = True

    def save(self) -> None:
        """Write the state down."""
        # Messages that were written before do not change.
        new = self.messages[self._saved_messages :]
        self.state.messages += self._adapter.dump_python(new, mode="json", exclude_none=True)
        self._saved_messages = len(self.messages)
        self.state.seconds = self.seconds()
        self.state.save(self.place.state)

    # Workspace

    def snapshot(self) -> tuple[Snapshot, str]:
        """Keep the workspace as it is; return the snapshot and its digest."""
        declared = self.task.entry.submission
        wanted = {declared.file: declared.max_mb * 10**6} if declared else {}
        taken = self.place.store.take(self.place.workspace, self.read_only, wanted)
        return taken, self.place.store.keep_snapshot(taken)

    def judged(self) -> Verdict:
        """Score the workspace as it is."""
        if not self.task.entry.scored:
            return Verdict(None, "Nothing scores this task.")
        return self.judge(self.task, self.place.workspace)

    async def _note_step(self, call: "ToolCall", thought: str, observation: str) -> None:
        taken, digest = await anyio.to_thread.run_sync(self.snapshot)
        step = {
            "index": len(self.state.steps),
            "action": call.function,
            "arguments": call.arguments,
            "observation": observation,
            "timestamp": time.time(),
            "thought": redact(thought),
            "snapshot": digest,
            "score": await anyio.to_thread.run_sync(self._score_step, taken),
        }
        self.state.steps.append(step)
        self.save()
        if self.on_progress is not None:
            self.on_progress(self.state.seed, len(self.state.steps))

    def _score_step(self, taken: Snapshot) -> float | None:
        """Score the submission where that is cheap and where it is another one than after the step before."""
        declared = self.task.entry.submission
        if declared is None or self.task.entry.metric is None or not self.task.entry.scored:
            return None
        now = taken.files.get(declared.file)
        if now is None:
            return None
        if self.state.steps:
            last = self.state.steps[-1]
            if self.place.store.read_snapshot(last["snapshot"]).files.get(declared.file) == now:
                score: float | None = last["score"]
                return score
        return self.judged().score


def describe_answer(output: "ModelOutput") -> str:
    """Return what a model answered as text, calls of tools included."""
    message = output.message
    calls = [f"{call.function}({json_line(call.arguments)})" for call in message.tool_calls or ()]
    return "\n".join(part for part in (thought_of(message), *calls) if part)


def thought_of(message: "ChatMessage") -> str:
    """Return a message's words; of a model that only reasoned before it acted, its reasoning."""
    if message.text.strip() or isinstance(message.content, str):
        return message.text
    blocks = [block for block in message.content if block.type == "reasoning"]
    return "\n".join(
        text for block in blocks if (text := block.summary or ("" if block.redacted else block.reasoning))
    )


def _refusal(error: Exception) -> str:
    """Return what a provider said; the message of Inspect's error repeats the whole question."""
    said = getattr(error, "provider_message", None)
    return str(error) if said is None else str(said)


def _estimated(asked: "Sequence[ChatMessage]", output: "ModelOutput") -> tuple[int, int, int]:
    """Return about how many tokens were taken and given, where a server does not tell: one for four characters."""
    taken, given = len(describe_messages(asked)) // 4, len(describe_answer(output)) // 4
    return taken, given, taken + given


def describe_messages(messages: "Sequence[ChatMessage]") -> str:
    """Return a conversation as text."""
    parts = []
    for message in messages:
        lines = [f"[{message.role}]", message.text]
        if message.role == "assistant":
            lines += [f"{call.function}({json_line(call.arguments)})" for call in message.tool_calls or ()]
        parts.append("\n".join(line for line in lines if line))
    return "\n\n".join(parts)


def json_line(value: Any) -> str:
    """Return a JSON value as one line."""
    return json.dumps(value, ensure_ascii=False, default=str)
