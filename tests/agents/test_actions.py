"""Actions: what scripts leave behind, code in answers, questions that fit."""

import anyio
import pytest

from agml_assets.agents.actions.old import code_of
from agml_assets.agents.asking import ask_fitting
from agml_assets.agents.recorder import PromptTooLongError
from agml_assets.agents.runs import read_trials, run_trials
from agml_assets.agents.scoring import judge
from agml_assets.registry.agents import Limits
from tests.agents.tiny_task import DONE, PYTHON, make_task, scripted, write

FENCE = "```"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (f"{FENCE}python\nx = 1\n{FENCE}", "x = 1\n"),
        (f"So:\n{FENCE}Python\r\nx = 1\n{FENCE}\r\nThat is it.", "x = 1\n"),
        (f"{FENCE}\nx = 1\n{FENCE}", "x = 1\n"),
        (f"{FENCE}bash\npip list\n{FENCE}\nand\n{FENCE}python\nx = 1\n{FENCE}", "x = 1\n"),
        (f'{FENCE}python\ns = "{FENCE}"\nx = 1\n{FENCE}', f's = "{FENCE}"\nx = 1\n'),
        (
            f'{FENCE}python\n"""Use:\n    {FENCE}\n    f()\n    {FENCE}\n"""\nx = 1\n{FENCE}',
            f'"""Use:\n    {FENCE}\n    f()\n    {FENCE}\n"""\nx = 1\n',
        ),
        (f"{FENCE}python\nx = 1\ny =", None),
        ("x = 1", None),
    ],
    ids=["whole", "with words", "bare", "not the shell's", "fence in a line", "docstring", "cut off", "none"],
)
def test_code_is_taken_from_the_block_of_python(answer, code):
    assert code_of(answer) == code


class _Narrow:
    """A trial whose models take so many characters."""

    def __init__(self, most: int) -> None:
        self.most, self.asked = most, []

    async def ask(self, role, question, **how):
        self.asked.append(len(question))
        if len(question) > self.most:
            raise PromptTooLongError("too long")
        return question


def test_questions_are_halved_until_they_fit():
    trial = _Narrow(3000)
    assert anyio.run(lambda: ask_fitting(trial, "fast", lambda longest: "x" * longest, 10_000)) == "x" * 2500
    assert trial.asked == [10_000, 5000, 2500]


def test_questions_that_never_fit_are_given_up():
    trial = _Narrow(100)
    with pytest.raises(PromptTooLongError):
        anyio.run(lambda: ask_fitting(trial, "fast", lambda longest: "x" * longest, 2000))
    assert trial.asked == [2000, 1000, 500]


def test_what_became_of_a_script_that_failed_is_told(tmp_path):
    hungry = "print('I begin')\nimport os, time\nos.fork()\nkept = b'x' * (200 << 20)\ntime.sleep(20)\n"
    agent = scripted(
        tmp_path,
        write("import sys\nprint('not so well')\nsys.exit(3)\n", "failing.py"),
        ("execute_script", {"script_name": "failing.py"}),
        write("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "broken.py"),
        ("execute_script", {"script_name": "broken.py"}),
        write(hungry, "hungry.py"),
        ("execute_script", {"script_name": "hungry.py"}),
        ("execute_script", {"script_name": "train.py"}),
        ("inspect_script_lines", {"script_name": "train.py", "start_line_number": 0, "end_line_number": 100}),
        ("inspect_script_lines", {"script_name": "train.py", "start_line_number": 7, "end_line_number": 9}),
        DONE,
    )
    limits = Limits(steps=20, seconds=60, seconds_per_command=20, memory_mb=300)
    task = make_task(tmp_path / "task")
    done = run_trials(task, agent, (1,), tmp_path / "run", judge=judge, python=PYTHON, limits=limits)
    (trial,) = read_trials(done.eval_file, done.workspaces)
    failed, broken, killed, well, shown, beyond = (
        step.observation for step in trial.steps if step.action not in ("write_file", "final_answer")
    )
    assert failed.endswith("not so well\n[exit status 3]")
    assert broken.endswith("[exit status 139: a segmentation fault]")
    assert "I begin" in killed
    assert killed.endswith("Stopped: its processes used more than 300 MB of memory.\n[exit status -9]")
    assert "exit status" not in well
    assert "the file ends at line 2" in shown
    assert "has lines 1 to 2" in beyond
