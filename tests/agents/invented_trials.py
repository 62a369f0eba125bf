"""Invented trials, agents and tasks, shared by the tests of what is computed from trials."""

import zipfile

from blake3 import blake3

from agml_assets.agents.evaluation import Baseline, evaluate
from agml_assets.agents.trials import Step, Trial, Usage
from agml_assets.registry.agents import AgentEntry, AgentTaskEntry

STARTED = "2026-01-02T03:04:05+00:00"
START = 1767323045.0
"""`STARTED`, in seconds since the epoch."""


def step(index, action="execute_script", observation="ok", *, score=None, files=None, thought="", **arguments):
    """Return a step a minute after the one before."""
    return Step(
        index,
        action,
        arguments or {"script_name": "train.py"},
        observation,
        START + 60 * (index + 1),
        thought,
        files or {},
        score,
    )


def trial(score=None, *, seed=1, ending="submitted", task="crop", agent="react", digest="d1", steps=(), **others):
    """Return a trial that took 120 s and 1,100 tokens."""
    given = {
        "reason": "" if score is not None else "no submission.csv",
        "submitted": ending == "submitted",
        "seconds": 120.0,
        "usage": {"openai/gpt": Usage(1_000, 100, 1_100)},
        "started_at": STARTED,
        "problem": "Improve train.py.",
        "tools": {"execute_script": "Runs a script.", "final_answer": "Ends."},
    }
    return Trial(
        task=task, agent=agent, seed=seed, task_digest=digest, ending=ending, score=score, steps=tuple(steps),
        **{**given, **others},
    )  # fmt: skip


def task(key="crop", **others):
    """Return the manifest of a task of a registered dataset."""
    return AgentTaskEntry.model_validate({"key": key, "dataset": "sample", "goal": "classifier", **others})


def agent(key="react", kind="react", **others):
    """Return an agent."""
    model = {"model": "openai/gpt"} if kind in ("react", "research") else {}
    names = {"display_name": "ReAct with a model"} if key == "react" else {}
    return AgentEntry.model_validate({"key": key, "kind": kind, **names, **model, **others})


def document(scores, *, of="crop", by="react", kind="react", baseline=0.5, reference=None, digest="d1", **others):
    """Return the evaluation of trials with these scores; a text in place of one is how a trial without ended."""
    trials = [
        trial(None, seed=seed, ending=score, task=of, agent=by, digest=digest, submitted=False)
        if isinstance(score, str)
        else trial(score, seed=seed, task=of, agent=by, digest=digest)
        for seed, score in enumerate(scores, start=1)
    ]
    measured = baseline if isinstance(baseline, Baseline) else Baseline(baseline, "measured", 3, 0.01)
    return evaluate(trials, task(of, **others), agent(by, kind), measured, reference)


def workspaces(path, *contents):
    """Write an archive of file contents; return the digest of each."""
    digests = [blake3(one).hexdigest() for one in contents]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for digest, one in zip(digests, contents, strict=True):
            archive.writestr(f"blobs/{digest}", one)
    return digests
