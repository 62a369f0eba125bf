"""The agent that thinks nothing: it runs the starter code and submits. Its score is the baseline."""

from agml_assets.agents.recorder import TrialRecorder


async def play_starter(trial: TrialRecorder) -> None:
    """Run the starter script, then submit."""
    if not trial.state.steps:
        await trial.act("execute_script", {"script_name": trial.task.entry.starter})
    await trial.act("final_answer", {"final_answer": "The starter code, as it is."})
