"""Invented evaluations of models, as the site is given them, shared by the tests of the pages."""

import copy
import random

import numpy as np

from agml_assets.evaluation.published import Best, Meta, Model, PublishedResults, Result, Task
from agml_assets.evaluation.report import build_report
from agml_assets.evaluation.resamples import Predictions
from agml_assets.evaluation.scores import ACCURACY, MACRO_F1
from agml_assets.evaluation.summary import score_task
from agml_assets.registry.models import SHIPPED as MODELS
from agml_assets.registry.models import load_models
from agml_assets.registry.tasks import SHIPPED as TASKS
from agml_assets.registry.tasks import load_tasks
from agml_assets.site.page_models import ModelResults

TASKS_RUN = ("beluga", "herbarium19", "iwildcam", "plantnet", "imagenet1k", "newt")
N = 400
"""Test examples of each."""


def results(datasets=("beans", "rice"), models=12, published=True, also=(), **others):
    """Return evaluations of the report's own making: the last model lacks a task, the first two are as good.

    The first model also answers by other ways, `also`.
    """
    registry, tasks = load_models(MODELS), load_tasks(TASKS)
    entries = [entry for entry in registry.entries if entry.published_checkpoint][:models]
    rng = np.random.default_rng(4)
    scored = {}
    for place, key in enumerate((*TASKS_RUN, *datasets)):
        true = rng.integers(4, size=N)
        predicted = {}
        for model, entry in enumerate(entries):
            if key == "plantnet" and model == len(entries) - 1:
                continue
            right = rng.random(N) < 0.95 - 0.05 * max(model - 1, 0)
            predicted[entry.key] = np.where(right, true, (true + rng.integers(1, 4, size=N)) % 4)
        for way in also:
            predicted[f"{entries[0].key}/{way}"] = np.where(rng.random(N) < 0.8, true, (true + 1) % 4)
        score = ACCURACY if place > 3 else MACRO_F1
        groups = np.repeat(np.arange(N // 2), 2) if key == "iwildcam" else np.arange(N)
        scored[key] = score_task(Predictions(key, score, true, predicted, groups))
    report = build_report(scored, {}, tasks, registry)
    return ModelResults(
        report=report,
        runs={(key, one["model"]): _run(one) for key, of in report["subjects"].items() for one in of["standings"]},
        published=_published(entries[2:]) if published else None,
        registered=registry.published(),
        tasks={entry.key: entry for entry in tasks.entries},
        **others,
    )


def _run(standing):
    scores = {
        "others": {"accuracy": {"score": standing["score"], "interval": standing["interval"]}},
        "n_train": 900,
        "classes": 4,
        "split": "leak_safe",
        "probe": {"estimator": "RidgeProbe", "alpha": 1.0},
        "notes": ["2 images were left out."],
    }
    record = {
        "device": "cpu",
        "timestamp": "2026-08-13T05:16:17+00:00",
        "inference_time_seconds_per_image": 0.012,
        "train_time_seconds": 1.5,
    }
    return scores, record


def _published(entries):
    rng = random.Random(9)
    models = [
        Model(ckpt=e.published_checkpoint, display="?", family="?", resolution=224, params=10**7, release_ms=None)
        for e in entries
    ]
    models.append(
        Model(ckpt="lab/own", display="Own of a lab", family="Lab", resolution=448, params=3 * 10**9, release_ms=0)
    )
    names = {"beluga": "Beluga", "herbarium19": "Herbarium19", "newt": "NeWT", "imagenet1k": "ImageNet-1K"}
    tasks = [Task(name=name, display=display) for name, display in names.items()]
    found = [
        Result(
            task=task.name,
            model=model.ckpt,
            mean=round(rng.random(), 4),
            bootstrap_mean=0.5,
            ci_low=None,
            ci_high=None,
        )
        for task in tasks
        for model in models
        if (task.name, model.ckpt) != ("beluga", "lab/own")
    ]
    bests = []
    for task in tasks:
        best = max((one for one in found if one.task == task.name), key=lambda one: one.mean).model
        bests.append(Best(task=task.name, best=best, ties=[best]))
    meta = Meta(schema=1, generated=0, git_commit="0" * 40, seed=0, alpha=0.05, n_bootstraps=500)
    return PublishedResults(
        meta=meta, models=models, benchmark_tasks=tasks[:2], prior_work_tasks=tasks[2:], results=found, bests=bests
    )


def hostile(text):
    """Return evaluations in which every text is this one, or begins with it."""
    made = results(models=5)
    report = copy.deepcopy(made.report)
    for number, model in enumerate(report["models"].values()):
        model |= {"display_name": text + "long_" * 30 * number, "family": text, "checkpoint": text}
    for one in report["subjects"].values():
        one |= {"metric": text, "kingdom": text, "modality": text, "display_name": text}
        one["standings"][0]["interval"] = {"kind": "none", "reason": text}
    report["subjects"][text] = copy.deepcopy(report["subjects"]["beans"])
    for mean in report["mean_over_datasets"]:
        mean["tasks"] = [*mean["tasks"], text]
    report["by_kingdom"] = {text: report["mean_over_tasks"]}
    facts = dict.fromkeys(("split", "device"), text)
    run = (
        {**facts, "notes": [text], "probe": {"estimator": text}, "others": {text: {"score": 0.5, "interval": {}}}},
        {**facts, "timestamp": text},
    )
    published = made.published.model_copy(
        update={
            "models": [one.model_copy(update={"display": text, "family": text}) for one in made.published.models]
        }
    )
    return ModelResults(
        report=report, runs=dict.fromkeys(made.runs, run), published=published, names={"beans": text}
    )


def large(models=200, subjects=100):
    """Return evaluations of 200 models on 100 datasets."""
    rng = random.Random(2)
    keys, names = [f"model_{i}" for i in range(models)], [f"dataset_{i}" for i in range(subjects)]

    def standing(model, score):
        interval = {"kind": "sample", "low": score - 0.02, "high": score + 0.02}
        shown = {"model": model, "score": score, "tied": score > 0.9, "interval": interval}
        return {**shown, "behind": 0.1, "p_value": 0.01, "p_holm": 0.02}

    def ranked():
        scores = sorted(((rng.uniform(0.3, 0.95), key) for key in keys), reverse=True)
        return [standing(key, score) for score, key in scores]

    described = {"kind": "dataset", "kingdom": None, "modality": None, "metric": "macro_f1"}
    of = {
        name: {
            **described,
            "display_name": name,
            "test_examples": 900,
            "independent_groups": 900,
            "standings": ranked(),
        }
        for name in names
    }
    means = [{**one, "standing": one, "tasks": names, "missing": []} for one in ranked()]
    facts = {
        key: {
            "display_name": f"Model {key}",
            "family": f"Family {place % 15}",
            "checkpoint": f"owner/{key}",
            "parameters": rng.randint(10**6, 3 * 10**9),
            "resolution": rng.choice((224, 384, 448)),
            "release_date": "2025-01-03",
        }
        for place, key in enumerate(keys)
    }
    report = {"models": facts, "subjects": of, "mean_over_tasks": [], "mean_over_datasets": means}
    runs = {(name, one["model"]): _run(one) for name in names for one in of[name]["standings"]}
    return ModelResults(report=report, runs=runs)
