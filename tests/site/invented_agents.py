"""Invented evaluations of agents with their leaderboard, as the site is given them, for tests of the pages."""

from agml_assets.agents.evaluation import Baseline, evaluate
from agml_assets.agents.leaderboard import build_leaderboard
from agml_assets.agents.trials import Usage
from agml_assets.site.page_agents import AgentResults
from tests.agents.invented_trials import agent, document, step, task, trial

TRACE = [
    step(0, "list_files", "train.py\ndata/", score=None, thought="What is here?", dir_path="."),
    step(1, "execute_script", "accuracy 0.52\n\x1b[32mdone\x1b[0m\tfine", score=0.52, script_name="train.py"),
    step(2, "edit_script", "+ width = 64", score=0.52, thought="A wider net.", instruction="widen\nthe net"),
    step(3, "execute_script", "torch.OutOfMemoryError: CUDA out of memory", score=0.7, script_name="train.py"),
    step(4, "final_answer", "end", score=0.61, final_answer="Done."),
]


BASELINE = Baseline(0.5, "measured", 3, 0.01, "1 of 4 trials gave no score")
CROP = {"display_name": "Crop rows", "reference": 0.8, "warnings": ["Labels are public."], "source": "drawn"}
SOIL = {"of": "soil", "direction": "lower", "reference": 0.25}


def usual():
    """Return three agents on three tasks: failures, a task that decides nothing, an agent that lacks a task."""
    documents = [
        document([0.5, 0.5, 0.5], by="starter", kind="starter", baseline=BASELINE, **CROP),
        _traced(),
        document(["error", 0.9], by="lacking", baseline=BASELINE, **CROP),
        document([0.5, 0.5], by="starter", kind="starter", **SOIL),
        document([0.4, 0.5, "no_submission"], **SOIL),
        document([0.5], of="zero", baseline=0.0),
    ]
    return results(documents, {"soil/gone": "not evaluated yet"})


def _traced():
    failed = {"ending": "error", "submitted": False, "error": "Traceback\nopenai.APIConnectionError: no"}
    trials = [
        trial(0.61, seed=1, steps=TRACE, seconds=300.0),
        trial(None, seed=2, steps=TRACE[:2], **failed),
        trial(0.9, seed=3, ending="time_limit", submitted=False, usage={"openai/gpt": Usage(10, 1, 11)}),
    ]
    return evaluate(trials, task(**CROP), agent("react"), BASELINE)


def results(documents, missing=None):
    """Return evaluations with their leaderboard."""
    found = {(one["task"], one["agent"]): one for one in documents}
    return AgentResults(build_leaderboard(documents, missing), found)


def alone():
    """Return one agent with one trial on one task."""
    return results([document([0.9])])


def hostile(text):
    """Return agents in whose evaluations every text is this one."""
    nasty = [step(0, text, text, thought=text, score=0.6, **{text: text}), step(1, text, "", score=0.5)]
    made = []
    for by in ("one", "two"):
        trials = [
            trial(
                0.6,
                steps=nasty,
                reason=text,
                error=text,
                started_at=text,
                problem=text,
                usage={text: Usage(1, 1, 2)},
            )
        ]
        entry = task(display_name=text + "long_" * 40, warnings=[text], source=text, reference=0.9)
        entry = entry.model_copy(update={"exposed": text})
        made.append(evaluate(trials, entry, agent(by, display_name=text + "long_" * 40), Baseline(0.5, note=text)))
    return results(made, {text: text, "__proto__": "constructor"})


def large(tasks=15, agents=12):
    """Return 12 agents on 15 tasks, 8 trials each, one of them with 50 long steps a trial."""
    made = [
        document([0.5 + 0.02 * ((a * t + s) % 9) for s in range(8)], of=f"task-{t}", by=f"agent-{a}")
        for t in range(tasks)
        for a in range(agents)
    ]
    steps = [
        step(n, observation="line of output\n" * 400, thought="thinking " * 100, score=0.5) for n in range(50)
    ]
    trials = [trial(0.6, seed=seed, steps=steps, task="task-0", agent="agent-0") for seed in range(1, 9)]
    made[0] = evaluate(trials, task("task-0"), agent("agent-0"), Baseline(0.5, "measured", 3, 0.01))
    return results(made)
