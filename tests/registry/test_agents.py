"""The registry of agents and tasks: what comes with the package, and what is refused."""

import re
from pathlib import Path

import pytest

from agml_assets.agents.metrics import METRICS
from agml_assets.agents.tasks.splits import SPLITS
from agml_assets.errors import UserError
from agml_assets.registry.agents import AgentTaskEntry, load_agents, task_folder

DOC = (Path(__file__).parents[2] / "docs/agents_tasks.md").read_text()
MEASURED = {"house-price", "spaceship-titanic"}
"""Tasks whose reference is measured when they are prepared."""

OLD = {
    "cifar10": ("higher", None),
    "imdb": ("higher", 0.5),
    "ogbn-arxiv": ("higher", 0.3134),
    "house-price": ("lower", None),
    "spaceship-titanic": ("higher", None),
    "amp-parkinsons-disease-progression-prediction": ("lower", None),
    "feedback": ("lower", None),
    "fathomnet": ("higher", None),
    "identify-contrails": ("higher", None),
    "CLRS": ("higher", None),
    "babylm": ("lower", None),
    "llama-inference": ("lower", None),
    "vectorization": ("lower", 6.1742),
    "bibtex-generation": ("higher", None),
    "literature-review-tool": ("higher", None),
}
"""Directions of the old benchmark's plots, and those of its constant baselines that are scores of an answer."""


def test_every_task_of_the_old_benchmark_has_a_manifest():
    tasks = {entry.key: entry for entry in load_agents().tasks if entry.folder}
    assert {key: (entry.direction, entry.baseline) for key, entry in tasks.items()} == OLD
    for key, entry in tasks.items():
        assert entry.folder == f"$AGML_AGENT_TASKS/{key}"
        assert "AGML_AGENT_TASKS" in entry.preparation.note
        assert entry.warnings or entry.exposed
        assert entry.source
        assert (entry.metric is None) or entry.metric in METRICS
        assert (entry.metric is None) or METRICS[entry.metric].direction == entry.direction
        assert (entry.metric is None) == (entry.preparation.by is None)
        assert entry.preparation.by is None or entry.preparation.by in SPLITS
        if entry.preparation.kaggle:
            assert (
                f"https://www.kaggle.com/competitions/{entry.preparation.kaggle}/rules" in entry.preparation.note
            )
            assert "KAGGLE_CONFIG_DIR" in entry.preparation.note
    assert {key for key, entry in tasks.items() if not entry.scored} == {
        "llama-inference", "bibtex-generation", "literature-review-tool",
    }  # fmt: skip
    assert {entry.preparation.by for entry in tasks.values()} - {None} == set(SPLITS)


def test_where_answers_can_be_seen_or_scores_made_up_the_manifest_says_so():
    assert {entry.key for entry in load_agents().tasks if entry.exposed} == {
        "cifar10", "CLRS", "babylm", "vectorization",
    }  # fmt: skip


def test_every_scored_task_of_the_old_benchmark_has_a_reference_or_the_docs_say_why_not():
    scored = {entry.key: entry for entry in load_agents().tasks if entry.folder and entry.scored}
    published = {key for key, entry in scored.items() if entry.reference is not None}
    told = dict(re.findall(r"^\| (`.+`) \| (.*) \|$", DOC.partition("| key | reference |")[2], re.M))
    with_one, without = set(), set()
    for keys, said in told.items():
        for key in re.findall("`([^`]+)`", keys):
            is_without = (
                f"| {keys} | {said} |" in DOC.partition("| without a reference | why |")[2].partition("\n\n")[0]
            )
            (without if is_without else with_one).add(key)
            if key in published:
                assert said.startswith(f"{scored[key].reference:g}, ") and "arXiv:" in said
    assert with_one == published | MEASURED
    assert without == set(scored) - with_one
    assert published == {"cifar10", "imdb", "ogbn-arxiv", "CLRS"}


def test_two_tasks_need_nothing_but_the_package():
    offline = {entry.key: (entry.dataset, entry.goal) for entry in load_agents().tasks if entry.dataset}
    assert offline == {"digits": ("digits", "classifier"), "sample": ("sample", "mislabelled")}


def test_every_dataset_has_tasks_without_being_registered():
    entry = load_agents().task("my__beans__mislabelled")
    assert (entry.dataset, entry.goal) == ("my__beans", "mislabelled")
    with pytest.raises(UserError, match="No task 'digit'.*Did you mean 'digits'"):
        load_agents().task("digit")


def test_a_folder_whose_variable_is_not_set_says_where_to_get_it(monkeypatch):
    monkeypatch.delenv("AGML_AGENT_TASKS", raising=False)
    with pytest.raises(UserError, match=r"Task 'CLRS': .*AGML_AGENT_TASKS.*not set.*of a clone of") as error:
        task_folder(load_agents().task("CLRS"))
    assert "github.com/snap-stanford/MLAgentBench" in error.value.message


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "give either `folder`, or `dataset`"),
        ({"folder": "x", "dataset": "y", "goal": "classifier"}, "give either `folder`, or `dataset`"),
        ({"dataset": "y"}, "`dataset` and `goal` go together"),
        ({"folder": "x", "metric": "accuracy"}, "`metric` and `submission` go together"),
        ({"folder": "x", "scoring": "y"}, "Extra inputs"),
        ({"folder": "x", "baseline": float("nan")}, "finite"),
        ({"folder": "x", "limits": {"steps": 0}}, "greater than or equal to 1"),
        ({"folder": "x", "metric": "accuracy", "submission": {"file": "../x.csv"}}, "below the workspace"),
        ({"folder": "x", "metric": "accuracy", "submission": {"file": "x.parquet"}}, "ends in .csv, .json, .npz"),
        ({"folder": "x", "metric": "accuracy", "submission": {"columns": {}}}, "either `columns` or"),
        ({"folder": "x", "metric": "accuracy", "submission": {"separator": ";;"}}, "at most 1 character"),
        ({"folder": "x", "valid_above": 1.0, "valid_below": 1}, "no score is above"),
        ({"folder": "x", "valid_below": 1e10, "baseline": 1e10}, "below 1e\\+10"),
        ({"key": "Tasks", "folder": "x"}, "folder of prepared tasks"),
    ],
)
def test_a_manifest_that_is_not_sound_is_refused(fields, said):
    with pytest.raises(ValueError, match=said):
        AgentTaskEntry.model_validate({"key": "k", **fields})


def test_every_bad_entry_of_a_file_is_named(tmp_path, monkeypatch):
    (tmp_path / "agents.yaml").write_text(
        "agents: [{key: a, kind: react}]\n"
        "tasks: [{key: t, folder: t}, {key: T, folder: x}, {key: b}, {key: c, folder: x, directoin: lower}]\n"
    )
    monkeypatch.setenv("AGML_AGENTS", str(tmp_path / "agents.yaml"))
    with pytest.raises(UserError) as error:
        load_agents()
    for said in ("'a'", "needs `model`", "same key, 't' and 'T'", "'b'", "'c'", "'directoin'"):
        assert said in error.value.message


def test_folders_are_relative_to_the_registry(tmp_path):
    (tmp_path / "agents.yaml").write_text("agents: []\ntasks: [{key: t, folder: tasks/t}]\n")
    entry = load_agents(tmp_path / "agents.yaml").task("t")
    assert task_folder(entry) == tmp_path / "tasks" / "t"
