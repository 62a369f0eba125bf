"""From the keys of a dataset or task and of a model to an `Evaluation`, with what registries and settings say."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agml_assets.errors import UserError, did_you_mean
from agml_assets.evaluation.backbones import BackboneEncoder
from agml_assets.evaluation.evaluate import Evaluation
from agml_assets.evaluation.protocol import Protocol
from agml_assets.evaluation.subjects import Subject, dataset_subject, task_subject
from agml_assets.evaluation.tasks.reading import read_task
from agml_assets.evaluation.ways import WAYS
from agml_assets.registry.models import ModelRegistry, load_models
from agml_assets.registry.tasks import TaskEntry, TaskRegistry, load_tasks
from agml_assets.settings import Settings
from agml_assets.workspace import Workspace

_OPTIONS = ("probe", "n_train", "seed", "split")


def open_evaluation(
    workspace: Workspace,
    subject: str,
    model: str,
    *,
    models: ModelRegistry | None = None,
    tasks: TaskRegistry | None = None,
    **overrides: Any,
) -> Evaluation:
    """Return the evaluation of a registered model on a registered dataset or task; nothing heavy is loaded.

    Args:
        workspace: Registry of datasets, settings and store.
        subject: Key of a dataset or task.
        model: Key of a model.
        models: In place of `$AGML_MODELS` or those of the package.
        tasks: In place of `$AGML_TASKS` or those of the package.
        overrides: `probe`, `n_train`, `seed` or `split` in place of what registry and settings say; None is none.

    Raises:
        UserError: A key, an option or its value is unknown, or something that is read is not there.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    require_options(given, workspace.settings)
    entry = (models or load_models()).get(model)
    known_tasks = tasks or load_tasks()
    split = given.pop("split", workspace.settings.evaluation_split)
    found: Subject
    task = known_tasks.find(subject)
    if task is not None:
        split = "published"
        data = read_task(task)
        found = task_subject(
            task,
            data,
            replace(task_protocol(task, workspace.settings), **given),
            workspace.settings.max_image_pixels,
        )
    elif workspace.registry.find(subject) is not None:
        bench = workspace.dataset(subject)
        found = dataset_subject(bench, replace(dataset_protocol(bench.settings), **given), split)
    else:
        raise UserError(
            f"{subject!r} is neither a registered dataset nor a task.{workspace.registry.closest(subject)} "
            f"Tasks are: {', '.join(known_tasks.keys())}."
        )
    return Evaluation(found, entry, BackboneEncoder(entry), workspace.store, split)


def require_options(options: Mapping[str, Any], settings: Settings) -> None:
    """Raise a `UserError` for an option that is not there, or has no such value, as the settings would."""
    for name in options.keys() - set(_OPTIONS):
        raise UserError(
            f"There is no option {name!r}.{did_you_mean(name, _OPTIONS)} Options are: {', '.join(_OPTIONS)}."
        )
    given = {name: value for name, value in options.items() if value is not None}
    if given.get("probe", WAYS[0]) not in WAYS:  # settings know those of datasets alone
        raise UserError(
            f"There is no probe {given['probe']!r}.{did_you_mean(str(given['probe']), WAYS)} There are: "
            f"{', '.join(WAYS)}."
        )
    settings.override(
        {f"evaluation_{name}": value for name, value in given.items() if name != "probe"}, "the options"
    )


def dataset_protocol(settings: Settings) -> Protocol:
    """Return how models are judged on a dataset."""
    return Protocol(
        probe=settings.evaluation_probe,
        metric="macro_f1",
        n_train=settings.evaluation_n_train,
        seed=settings.evaluation_seed,
    )


def task_protocol(task: TaskEntry, settings: Settings) -> Protocol:
    """Return how models are judged on a task: as published, but for n_train and the seed."""
    return Protocol(
        probe=task.probe,
        metric=task.metric,
        aggregate=task.aggregate,
        n_train=settings.evaluation_n_train,
        seed=settings.evaluation_seed,
    )
