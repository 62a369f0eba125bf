"""How good is an image dataset? One Dagster asset graph that answers with numbers.

The package is split into rooms, one per stage, in the order in which data flows. Importing
it loads neither Dagster nor torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from upath import UPath


def run(dataset: str, **options: Any) -> "UPath":
    """Benchmark one dataset and return the path of its `result.json`; options as in `runner.run_dataset`."""
    from agml_assets.runner import run_dataset

    return run_dataset(dataset, **options)


def evaluate(task: str, model: str, **options: Any) -> dict[str, Any]:
    """Evaluate a model on a task or dataset and return its scores; see `evaluator.evaluate_model`."""
    from agml_assets.evaluator import evaluate_model

    return evaluate_model(task, model, **options)
