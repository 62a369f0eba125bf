"""Names of models and agents, old and new, and the keys they need."""

import pytest

from agml_assets.agents.models import (
    REDACTED,
    check_model,
    inspect_name,
    kind_of,
    redact,
    redact_json,
    refuse_key_files,
    secrets_of_environment,
)
from agml_assets.errors import UserError


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("gpt-4", "openai/gpt-4"),
        ("claude-3-opus-20240229", "anthropic/claude-3-opus-20240229"),
        ("gemini-2.5-pro", "google/gemini-2.5-pro"),
        ("huggingface/codellama/CodeLlama-7b-hf", "hf/codellama/CodeLlama-7b-hf"),
        ("openai/gpt-5", "openai/gpt-5"),
        ("openai-api/local/llama", "openai-api/local/llama"),
    ],
)
def test_old_names_of_models_become_todays(old, new):
    assert inspect_name(old) == new


@pytest.mark.parametrize(
    "name",
    [
        "claude-v1",
        "claude-instant-v1",
        "claude-2.1",
        "gemini-pro",
        "openai/text-davinci-003",
        "anthropic/claude-v1-s4-fixes",
    ],
)
def test_models_that_are_no_more_are_refused_with_what_to_use(name):
    with pytest.raises(UserError, match="switched off by its maker.*/MODEL"):
        inspect_name(name)


def test_crfm_names_are_refused_with_what_to_use():
    with pytest.raises(UserError, match="CRFM.*openai-api/NAME/MODEL"):
        inspect_name("stanfordnlp/alpaca")


def test_a_provider_that_is_spelt_wrong_is_told():
    with pytest.raises(UserError, match="Did you mean 'anthropic'"):
        inspect_name("antropic/claude-sonnet-4-5")


@pytest.mark.parametrize(
    ("old", "kind"),
    [
        ("Agent", "starter"),
        ("ReasoningActionAgent", "react"),
        ("ResearchAgent", "research"),
        ("majority", "majority"),
    ],
)
def test_old_agents_become_kinds(old, kind):
    assert kind_of(old) == kind


@pytest.mark.parametrize("name", ["AutoGPTAgent", "LangChainAgent"])
def test_agents_that_are_no_more_are_refused_with_what_to_use(name):
    with pytest.raises(UserError, match="no more. Use an agent of kind"):
        kind_of(name)


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("openai/gpt-5", "OPENAI_API_KEY"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("google/gemini-2.5-pro", "GOOGLE_API_KEY"),
        ("openai-api/my-server/llama", "MY_SERVER_BASE_URL and MY_SERVER_API_KEY"),
    ],
)
def test_a_missing_key_is_told_by_its_variable(model, variable, monkeypatch):
    for name in ("OPENAI", "ANTHROPIC", "GOOGLE", "GEMINI", "VERTEX", "AZUREAI_OPENAI"):
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    with pytest.raises(UserError, match=variable):
        check_model(model)


def test_a_missing_package_is_told(monkeypatch):
    monkeypatch.setattr("agml_assets.agents.models._is_installed", lambda module: False)
    with pytest.raises(UserError, match="pip install google-genai"):
        check_model("google/gemini-2.5-pro")


def test_a_model_with_its_key_passes(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-something-long")
    assert check_model("gpt-5", {"temperature": 0.2, "max_tokens": 100}) == "openai/gpt-5"


def test_keys_in_arguments_are_refused():
    with pytest.raises(UserError, match="'api_key' looks like a key"):
        check_model("mockllm/model", {"api_key": "sk-1"})


def test_the_old_key_files_are_refused_with_the_variable_to_set(tmp_path):
    refuse_key_files(tmp_path)
    (tmp_path / "claude_api_key.txt").write_text("sk")
    with pytest.raises(UserError, match="Set ANTHROPIC_API_KEY instead"):
        refuse_key_files(tmp_path)


def test_values_of_keys_are_blotted_out_as_text_and_as_json(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", 'sk-"quoted"-123')
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghij")
    monkeypatch.setenv("PATH_TO_KEYBOARD", "not a secret at all")
    secrets = secrets_of_environment()
    assert (
        redact('a sk-"quoted"-123 b hf_abcdefghij not a secret at all')
        == f"a {REDACTED} b {REDACTED} not a secret at all"
    )
    assert "quoted" not in redact_json('{"x": "sk-\\"quoted\\"-123"}', secrets)
