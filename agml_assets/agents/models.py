"""Names of models, the keys they need, and how a model is opened; what old names became.

Keys come from environment variables alone. How models are asked is in `recorder`.
"""

import importlib.util
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from agml_assets.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage, Model, ModelOutput

RECITED = "mockllm"
"""Provider without a model: answers are given in the argument `outputs`."""

_KEYS: Mapping[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY", "AZUREAI_OPENAI_API_KEY"),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY", "VERTEX_API_KEY"),
    "mistral": ("MISTRAL_API_KEY", "AZUREAI_MISTRAL_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "grok": ("XAI_API_KEY", "GROK_API_KEY"),
    "together": ("TOGETHER_API_KEY",),
    "fireworks": ("FIREWORKS_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
    "perplexity": ("PERPLEXITY_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "sambanova": ("SAMBANOVA_API_KEY",),
}
"""Variables of which one holds the key, by provider: Inspect's documentation of providers."""

_PACKAGES: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *(
                "openai",
                "openai-api",
                "openai-api-completions",
                "vllm",
                "sglang",
                "ollama",
                "openrouter",
                "together",
            ),
            *(
                "fireworks",
                "perplexity",
                "deepseek",
                "sambanova",
                "llama-cpp-python",
                "cloudflare",
                "litellm-proxy",
            ),
        ),
        "openai",
    ),
    "anthropic": "anthropic",
    "google": "google.genai",
    "mistral": "mistralai",
    "groq": "groq",
    "hf": "transformers",
}
"""Module that a provider is reached with."""

_INSTALLED_AS = {"google.genai": "google-genai"}

_PROVIDERS = (
    *_PACKAGES,
    *("grok", "azureai", "bedrock", "sagemaker", "moonshot", "meta", "hf-inference-providers", "transformer_lens"),
    *("nnterp", "vllm-completions", RECITED, "none"),
)

_RETIRED = re.compile(
    r"claude-(v?1|v?2|instant)|gemini-(pro|ultra)(-vision)?$|code-davinci|text-davinci|text-bison"
)
"""Old models that their makers have switched off."""

_OLD_AGENTS = {
    "Agent": "agent `starter` (kind starter), which runs the starter code and submits",
    "SimpleActionAgent": "an agent of kind react",
    "ReasoningActionAgent": "an agent of kind react",
    "ResearchAgent": "an agent of kind research",
    "LangChainAgent": "an agent of kind react: LangChain's executor of 2023 is no longer maintained",
    "AutoGPTAgent": "an agent of kind research: Auto-GPT of 2023 is no longer maintained",
}

OLD_AGENT_KINDS = {
    "Agent": "starter",
    "SimpleActionAgent": "react",
    "ReasoningActionAgent": "react",
    "ResearchAgent": "research",
}
"""Old agent classes that have an equivalent."""

_KEY_FILES = {
    "claude_api_key.txt": "ANTHROPIC_API_KEY",
    "openai_api_key.txt": "OPENAI_API_KEY",
    "crfm_api_key.txt": None,
    "huggingface_api_key.txt": "HF_TOKEN",
    "gemini_api_key.txt": "GOOGLE_API_KEY",
}

_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(_|$)", re.IGNORECASE)
_SHORTEST_SECRET = 8  # characters; shorter values would blot out innocent text
REDACTED = "[redacted]"


def inspect_name(name: str) -> str:
    """Translate a model's old name into Inspect's.

    `gpt-4` becomes `openai/gpt-4`, `claude-…` `anthropic/claude-…`, `gemini-…` `google/gemini-…`,
    `huggingface/org/model` `hf/org/model`. Inspect's names stay.

    Raises:
        UserError: The model or its provider is no more, or nothing is known by that name; what to use is said.
    """
    provider, _, rest = name.partition("/")
    bare = rest or name
    if _RETIRED.match(bare) and provider in ("anthropic", "google", "openai", name):
        maker = "anthropic" if "claude" in bare else "openai" if "davinci" in bare else "google"
        raise UserError(
            f"The model {name!r} was switched off by its maker. Use one that is served today, as {maker}/MODEL; "
            f"{maker}'s documentation lists them."
        )
    if not rest:
        for start, maker in (("gpt-", "openai"), ("claude-", "anthropic"), ("gemini-", "google")):
            if name.startswith(start):
                return f"{maker}/{name}"
        if name == "none":
            return name
        raise UserError(f"A model is named PROVIDER/MODEL, such as openai/gpt-5, not {name!r}.{_near(name)}")
    if provider == "huggingface":
        return f"hf/{rest}"
    if provider not in _PROVIDERS:
        raise UserError(
            f"No provider {provider!r} of models ({name!r}). Other prefixes meant Stanford's CRFM service, which "
            "is closed: use the maker's own provider, or openai-api/NAME/MODEL with NAME_BASE_URL and "
            f"NAME_API_KEY for any service or local server that speaks OpenAI's protocol.{_near(provider)}"
        )
    return name


def kind_of(name: str) -> str:
    """Translate an old agent class into a kind of agent; kinds stay.

    Raises:
        UserError: There is no equivalent, or no such agent; what to use is said.
    """
    if name in OLD_AGENT_KINDS:
        return OLD_AGENT_KINDS[name]
    if name in _OLD_AGENTS:
        raise UserError(f"The agent {name!r} is no more. Use {_OLD_AGENTS[name]}.")
    kinds = ("starter", "scripted", "majority", "react", "research")
    if name in kinds:
        return name
    raise UserError(f"No agent {name!r}.{did_you_mean(name, (*kinds, *_OLD_AGENTS))}")


def refuse_key_files(folder: Path) -> None:
    """Refuse the old benchmark's files with keys, which are not read any more.

    Raises:
        UserError: One lies in the folder; the variable to use is named.
    """
    for name, variable in _KEY_FILES.items():
        if (folder / name).exists():
            instead = f"Set {variable} instead" if variable else "That service is closed"
            raise UserError(
                f"{folder / name}: keys are not read from files. {instead}, and remove the file so that the "
                "key does not leak."
            )


def check_model(name: str, arguments: Mapping[str, Any] | None = None) -> str:
    """Tell before anything runs whether a model can be asked.

    Returns:
        Its name as Inspect has it.

    Raises:
        UserError: A package or a variable is missing, or an argument would carry a key; all is named.
    """
    full = inspect_name(name)
    for argument in arguments or {}:
        if _SECRET.search(argument) and argument not in _GENERATION:
            raise UserError(
                f"Model {name!r}: the argument {argument!r} looks like a key. Keys come from environment "
                "variables only."
            )
    provider, _, rest = full.partition("/")
    package = _PACKAGES.get(provider)
    if package is not None and not _is_installed(package):
        installed_as = _INSTALLED_AS.get(package, package)
        raise UserError(f"Model {name!r} needs the package {installed_as}: pip install {installed_as}")
    if provider.startswith("openai-api"):
        service = rest.partition("/")[0]
        if not rest.partition("/")[2]:
            raise UserError(f"Model {name!r}: name it openai-api/NAME/MODEL; NAME says which variables are read.")
        prefix = service.upper().replace("-", "_")
        missing = [
            variable
            for variable in (f"{prefix}_BASE_URL", f"{prefix}_API_KEY")
            if not os.environ.get(variable)
            and not (variable.endswith("URL") and (arguments or {}).get("base_url"))
        ]
        if missing:
            plural = "s" if len(missing) > 1 else ""
            raise UserError(
                f"Model {name!r} needs the environment variable{plural} {' and '.join(missing)}. A local "
                "server takes any text as its key."
            )
    keys = _KEYS.get(provider, ())
    # A suffix such as openai/azure/… or anthropic/bedrock/… has other credentials; its provider tells of them.
    if keys and rest.count("/") == 0 and not any(os.environ.get(key) for key in keys):
        raise UserError(f"Model {name!r} needs a key in the environment variable {' or '.join(keys)}.")
    return full


def open_model(name: str, arguments: Mapping[str, Any], seed: int) -> "Model":
    """Open a model.

    Args:
        name: Inspect's name.
        arguments: Settings of generation, such as `temperature`, and further arguments of the provider.
        seed: Of generation, where the provider takes one.

    Raises:
        UserError: It cannot be opened.
    """
    from inspect_ai.model import GenerateConfig, get_model

    settings = {key: value for key, value in arguments.items() if key in GenerateConfig.model_fields}
    others = {key: value for key, value in arguments.items() if key not in settings}
    if name.startswith(f"{RECITED}/") and "outputs" in others:
        others["custom_outputs"] = _recite(name, others.pop("outputs"))
    config = GenerateConfig(**{"max_retries": 5, "timeout": 600, "seed": seed, **settings})
    try:
        model = get_model(name, config=config, memoize=False, **others)
    except Exception as error:
        message = re.sub(r"\[/?[a-z# ]+\]", "", str(error)).strip()
        raise UserError(f"Model {name!r} cannot be opened: {redact(message)}") from None
    answer = model.api.generate

    async def generate(*arguments: Any, **options: Any) -> Any:
        return without_surrogates(await answer(*arguments, **options))

    # Here, before Inspect notes them: half a character in an answer, which JSON can hold, fits no file in UTF-8.
    model.api.generate = generate  # type: ignore[method-assign]
    return model


def without_surrogates(value: Any) -> Any:
    """Return a value with all texts in it fit for UTF-8: lone surrogates become question marks."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list | tuple):
        found = [without_surrogates(one) for one in value]
        return found if isinstance(value, list) else tuple(found)
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(one) for key, one in value.items()}
    if isinstance(value, BaseModel):
        return value.model_copy(update={name: without_surrogates(one) for name, one in vars(value).items()})
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: without_surrogates(getattr(value, one.name)) for one in fields(value)})
    return value


def secrets_of_environment() -> tuple[str, ...]:
    """Return the values of all environment variables that are named like keys, longest first."""
    values = {
        value
        for name, value in os.environ.items()
        if _SECRET.search(name) and len(value) >= _SHORTEST_SECRET and not Path(value).exists()
    }
    return tuple(sorted(values, key=lambda value: (-len(value), value)))


def redact(text: str, secrets: Iterable[str] | None = None) -> str:
    """Return a text without the values of keys."""
    for secret in secrets_of_environment() if secrets is None else secrets:
        text = text.replace(secret, REDACTED)
    return text


def redact_json(text: str, secrets: Iterable[str]) -> str:
    """As `redact`, of a JSON document: values are sought as JSON writes them, too."""
    for secret in secrets:
        for written in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], secret):
            text = text.replace(written, REDACTED)
    return text


_GENERATION = frozenset(("max_tokens", "reasoning_tokens", "max_tool_output", "num_choices", "token_limit"))


def _recite(model: str, outputs: Any) -> Any:
    """Return what answers a conversation with the given outputs, in order; the last one is repeated.

    Each is a text, or `{"text", "tool", "arguments"}`. Which one is next is told by the answers in the
    conversation, and where there are none by how often it was asked: a trial that goes on goes on.
    """
    if not isinstance(outputs, list) or not outputs:
        raise UserError(
            f"Model {model!r}: `outputs` is a list of texts and of objects with text, tool, arguments."
        )
    asked = 0

    def answer(messages: "list[ChatMessage]", *_: Any) -> "ModelOutput":
        from inspect_ai.model import ChatMessageAssistant, ModelOutput, ModelUsage
        from inspect_ai.tool import ToolCall

        nonlocal asked
        said = sum(message.role == "assistant" for message in messages)
        place = said or asked
        asked += 1
        one = outputs[min(place, len(outputs) - 1)]
        one = {"text": one} if isinstance(one, str) else one
        calls = (
            [ToolCall(id=f"call_{place}", function=one["tool"], arguments=one.get("arguments", {}))]
            if "tool" in one
            else None
        )
        output = ModelOutput.from_message(
            ChatMessageAssistant(content=one.get("text", ""), tool_calls=calls, model=model, source="generate")
        )
        output.model = model
        read, written = sum(len(message.text) for message in messages), len(output.completion)
        # Tokens of about four characters; without a number Inspect would download a tokenizer.
        output.usage = ModelUsage(
            input_tokens=read // 4, output_tokens=written // 4 + 1, total_tokens=read // 4 + written // 4 + 1
        )
        return output

    return answer


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _near(name: str) -> str:
    return did_you_mean(name, _PROVIDERS)
