"""What went wrong in a trial, by the words of its errors and observations and by how it ended.

Two classifications: the flags of the old benchmark, by its own rules, and kinds that know today's messages as
well.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from agml_assets.agents.trials import Trial

KINDS = ("oom", "connection", "json", "prompt", "time")
"""Out of memory; network, quota or rate of a model; malformed JSON; a prompt that is too long; out of time."""

FAILED = ("error", "killed")
"""Endings of a trial that did not end by itself or at a limit."""

# Plain texts: an observation can have megabytes.
_SAID = {
    "oom": (
        *("CUDA out of memory", "OutOfMemoryError", " MemoryError", "\nMemoryError", "Cannot allocate memory"),
        *("out of memory", "Out of memory", "memory limit", "Memory limit"),
        "MB of memory.",  # of our own sandbox
    ),
    "connection": (
        *("Connection aborted", "ConnectionError", "ConnectionResetError", "ConnectionRefusedError"),
        *("ConnectionAbortedError", "Connection reset by peer", "Connection refused", "Network is unreachable"),
        *("Max retries exceeded", "name resolution", "exceeded your current quota", "RateLimitError"),
        *(" rate limit", "Rate limit", "APIConnectionError", "Connection error", "InternalServerError"),
        *("AuthenticationError", "PermissionDeniedError", "Error code: 401", "Error code: 403", "Error code: 50"),
    ),
    "json": (
        *("JSONDecodeError", "ActionInputParsingError", "invalid JSON", "Invalid JSON", "not valid JSON"),
        *("needs to be a valid json", "Error parsing the following tool call arguments"),
        "validation errors parsing tool input arguments",
    ),
    "prompt": (
        *("too long input for the tool", "TooLongPrompt", "context_length_exceeded", "maximum context length"),
        *("rompt is too long", "context window", "exceed context limit"),  # Anthropic
        *("available context size", "exceed_context_size"),  # llama.cpp
        *(
            "maximum model length",
            "the model's context length",
            "exceeds the context length",
        ),  # vLLM, SGLang, Ollama
        *("Input is too long", "input token count", "maximum prompt length"),  # Bedrock, Google, xAI
        *("reduce the length of the messages", "`inputs` must have less than"),  # Groq, TGI
    ),
    "time": (
        *("imed out", "TimeoutError", "TimeoutExpired", "time limit", "Time limit"),
        "the command took longer than",  # of our own sandbox
    ),
}

# Of MLAgentBench's evaluation, which looks for them in the output and the main log of a run.
OLD_OOM, OLD_CONNECTION = "CUDA out of memory", "Connection aborted"
OLD_QUOTA = (
    "You exceeded your current quota, please check your plan and billing details.",
    "Error: 'text-similarity-ada-001'",
    "Error: 'text-embedding-ada-001'",
)
OLD_JSON, OLD_MOST_JSON = "JSONDecodeError", 2
OLD_PROMPT = "EnvError: too long input for the tool"


@dataclass(frozen=True)
class Seen:
    """One kind of error in a trial.

    Attributes:
        ended: Whether the trial ended by it.
        steps: How many observations speak of it.
    """

    ended: bool
    steps: int


def classify(trial: Trial) -> dict[str, Seen]:
    """Return what is seen of every kind of error; a trial can show several, and most end by none."""
    found = {}
    for kind in KINDS:
        ended = speaks_of(kind, trial.error) or (kind == "time" and trial.ending == "time_limit")
        found[kind] = Seen(ended, sum(speaks_of(kind, step.observation) for step in trial.steps))
    return found


def speaks_of(kind: str, text: str) -> bool:
    """Return whether a message tells of an error of a kind."""
    text = f"\n{text}"
    return any(one in text for one in _SAID[kind])


def old_flags(output: Iterable[str], main_log: Iterable[str], *, failed: bool) -> dict[str, bool]:
    """Return the five flags of the old benchmark's evaluation, each looked for where it looks.

    Args:
        output: What the run printed, in parts that cut none of the messages.
        main_log: What its agent was told and answered, likewise.
        failed: Whether it ended with an error, or without the time that it took.
    """
    oom = connection = prompt = False
    json_errors = 0
    for text in output:
        oom = oom or OLD_OOM in text
        connection = connection or OLD_CONNECTION in text
    for text in main_log:
        oom = oom or OLD_OOM in text
        connection = connection or any(message in text for message in OLD_QUOTA)
        json_errors += text.count(OLD_JSON)
        prompt = prompt or OLD_PROMPT in text
    return {
        "oom_error": oom,
        "connection_error": connection,
        "error": failed,
        "json_error": json_errors > OLD_MOST_JSON,
        "long_prompt_error": prompt,
    }


def flags_of(trial: Trial) -> dict[str, bool]:
    """Return the old flags of a trial, from its observations and its error."""
    observations = [step.observation for step in trial.steps]
    failed = bool(trial.error) or trial.ending in FAILED
    return old_flags((*observations, trial.error), observations, failed=failed)
