"""Invented submissions of embeddings, as the site is given them, shared by the tests of the pages."""

import copy
import random

from agml_assets.site.page_embeddings import EmbeddingResults

CROPS = ("maize", "rice", "winter wheat")
TRUE = [0] * 10 + [1] * 12 + [2] * 8
PREDICTED = [0] * 9 + [1] + [1] * 12 + [1] * 3 + [2] * 5
"""One maize is taken for rice, three of winter wheat are."""
YIELD = [(0.5 * number, 0.5 * number + (-1) ** number * 0.125) for number in range(1_200)]


def usual():
    """Return three phases: a tie and a submission that lacks a task, a submission alone, only ties."""
    board = {
        "phases": {
            "earth": phase(
                [
                    standing("raw-64", 0.9, 256, 64, 1, {"crop": (0.95, 1), "yield": (0.85, 1)}),
                    standing("pca-16", 0.88, 64, 16, 1, {"crop": (0.97, 1), "yield": (0.79, 2)}, 256),
                    standing("codes", 0.125, 2.5, 64, 3, {"crop": (0.4, 3), "yield": (-0.15, 3)}, 256),
                ],
                [("crop", "classification", 30, 30, 1 / 3), ("yield", "regression", 1_200, 600, 0.0)],
                [("codes", "pca-16", -0.755, 0.0002), ("codes", "raw-64", -0.775, 0.0001),
                 ("pca-16", "raw-64", -0.02, 0.31)],
                incomplete={"half": ["yield"]},
                sensitivity=[
                    choice("without crop", ["raw-64", "pca-16", "codes"], 1.0),
                    choice("mean of ranks", ["pca-16", "raw-64", "codes"], 1 / 3, same_best=False),
                ],
            ),
            "single": phase(
                [standing("alone", 0.5, 16, 4, 1, {"species": (0.5, 1), "soil": (0.5, 1)}, interval=False)],
                [("species", "classification", 80, 15, 0.02), ("soil", "regression", 24, 24, 0.0)],
                [],
            ),
            "alike": phase(
                [standing(key, 0.7, 8, 8, 1, {"crop": (0.8, 1)}) for key in ("one", "other", "third")],
                [("crop", "classification", 30, 30, 1 / 3)],
                [("one", "other", 0.0, 1.0), ("one", "third", 0.0, 1.0), ("other", "third", 0.0, 1.0)],
                sensitivity=[choice("kept, median over tasks", ["one", "other", "third"], None)],
            ),
        },
        "left_out": {"never": "not evaluated yet: agml-assets compression evaluate never"},
    }  # fmt: skip
    lacking = {"yield": "All targets are equal: there is nothing to predict."}
    runs = {
        key: (summary(key), scores([crop_task(), yield_task()])) for key in ("raw-64", "pca-16", "codes")
    } | {
        "half": (summary("half", lacking), scores([crop_task()])),
        "alone": (summary("alone"), scores([species_task(), soil_task()])),
        "one": (summary("one"), scores([crop_task()])),
        "other": (summary("other"), scores([crop_task()])),
        "third": ({}, {}),
    }  # fmt: skip
    return EmbeddingResults(board, runs)


def one_of_everything():
    """Return one phase with one submission on one task."""
    found = [standing("alone", 0.9, 256, 64, 1, {"crop": (0.93, 1)})]
    board = {"phases": {"p": phase(found, [("crop", "classification", 30, 30, 1 / 3)], [])}, "left_out": {}}
    return EmbeddingResults(board, {"alone": (summary("alone"), scores([crop_task()]))})


def phase(standings, tasks, pairs, incomplete=None, sensitivity=()):
    """Return a phase of the leaderboard."""
    names = [name for name, *_ in tasks]
    incomplete = incomplete or {}
    return {
        "tasks": [
            {
                "task": name,
                "metric": "r2" if kind == "regression" else "macro_f1",
                "kind": kind,
                "n": n,
                "units": units,
                "reference": reference,
                "missing": [key for key, lacks in incomplete.items() if name in lacks],
            }
            for name, kind, n, units, reference in tasks
        ],
        "weights": dict.fromkeys(names, 1 / len(names)),
        "standings": standings,
        "pairs": [
            {
                "first": first,
                "second": second,
                "difference": difference,
                "error": 0.01,
                "p_value": p / len(pairs),
                "p_holm": p,
                "p_corrected_resampled": None,
            }
            for first, second, difference, p in pairs
        ],
        "incomplete": incomplete,
        "sensitivity": [{**one, "values": [0.0] * len(one["order"])} for one in sensitivity],
    }


def choice(name, order, tau, *, same_best=True):
    """Return the order under another choice."""
    return {"choice": name, "order": order, "tau": tau, "same_best": same_best}


def standing(key, mean, size, dimensions, rank, tasks, uncompressed=None, interval=True):
    """Return a submission's place: means and scores reach 0.02 to both sides; the floor is 0.41 everywhere."""
    return {
        "submission": key,
        "display_name": f"Method {key}",
        "rank": rank,
        "mean": {"value": mean, "interval": around(mean) if interval else None},
        "bytes_per_embedding": size,
        "bytes_uncompressed": uncompressed or size,
        "dimensions": dimensions,
        "embeddings": 1_250,
        "tasks": {
            name: {
                "score": score,
                "interval": around(score) if interval else None,
                "rank": place,
                "floor": 0.41,
                "kept": score,
            }
            for name, (score, place) in tasks.items()
        },
    }


def around(value):
    return {"low": value - 0.02, "high": value + 0.02, "error": 0.01, "freedom": 29}


def summary(key, left_out=None):
    """Return `summary.json`."""
    return {
        "submission": key,
        "display_name": f"Method {key}",
        "embeddings": 1_250,
        "dimensions": 64,
        "bytes_per_embedding": 256.0,
        "bytes_uncompressed": 256.0,
        "left_out": left_out or {},
        "notes": ["3 ids were cut.", "30 of 31 labelled samples with an embedding."],
    }


def scores(tasks):
    """Return `task_scores.json`, of what the site reads."""
    note = "30 of 31 labelled samples with an embedding."
    return {"tasks": tasks, "notes": {task["task"]: [note] for task in tasks}}


def crop_task():
    accuracy = sum(a == b for a, b in zip(TRUE, PREDICTED, strict=True)) / len(TRUE)
    return _task("crop", "classification", 0.86, {"accuracy": accuracy}, TRUE, PREDICTED, CROPS, 30)


def yield_task():
    true, predicted = map(list, zip(*YIELD, strict=True))
    return _task("yield", "regression", 0.85, {}, true, predicted, (), 600) | {
        "exclusions": ["Output 7 is left out."]
    }


def species_task():
    """40 classes; the last two are always taken for the first."""
    true = list(range(40)) * 2
    names = [f"species number {number} of a genus whose name is long" for number in range(40)]
    return _task("species", "classification", 0.5, {}, true, [a if a < 38 else 0 for a in true], names, 15)


def soil_task():
    """Three outputs, of which the second among the labels was left out."""
    rows = [[0.1 * n, 1e6 * n, 1e-6 * n] for n in range(24)]
    others = {"r2[0]": 0.5, "r2[2]": 0.5, "r2[3]": 0.5}
    return _task("soil", "regression", 0.5, others, rows, [[1.1 * v for v in row] for row in rows], (), 24)


def _task(name, kind, score, others, true, predicted, classes, units):
    interval = around(score) if units >= 20 else None
    return {
        "task": name,
        "kind": kind,
        "metric": "r2" if kind == "regression" else "macro_f1",
        "score": {"value": score, "interval": interval},
        "others": {other: {"value": value, "interval": around(value)} for other, value in others.items()},
        "reference": 0.0,
        "kept": score,
        "control": {"score": {"value": -0.01, "interval": None}, "repeats": 1} if units >= 20 else None,
        "n": len(true),
        "units": units,
        "dimensions": 64,
        "true": true,
        "predicted": predicted,
        "class_names": list(classes),
        "exclusions": [],
    }


def hostile(text):
    """Return submissions in which every text is this one, or begins with it."""
    found = usual()
    board = copy.deepcopy(found.leaderboard)
    earth = board["phases"]["earth"]
    for number, one in enumerate(earth["standings"]):
        one["display_name"] = text + "long_" * 30 * number
        one["tasks"] = {text: one["tasks"]["crop"], "yield": one["tasks"]["yield"]}
    earth["tasks"][0] |= {"task": text, "missing": [text]}
    earth["weights"] = {text: 0.5, "yield": 0.5}
    earth["incomplete"] = {"half": [text]}
    earth["sensitivity"][0]["choice"] = f"without {text}"
    board["phases"] = {text: earth, "__proto__": board["phases"]["single"]}
    board["left_out"] = {text: text, "constructor": text}
    names = [text, "__proto__", text + "long_" * 60]
    odd = {**crop_task(), "task": text, "class_names": names, "exclusions": [text]}
    runs = {
        key: (
            {**summary(key, {text: text}), "display_name": text, "notes": [text]},
            {"tasks": [odd, yield_task()], "notes": {text: [text]}},
        )
        for key in ("raw-64", "pca-16", "codes", "half")
    }
    return EmbeddingResults(board, runs)


def large(submissions=36):
    """Return a phase of 36 submissions on four tasks: two of 1,800 numbers, two of 30 classes."""
    rng = random.Random(5)
    names = ("crop", "species", "yield", "height")
    keys = [f"method-{number}" for number in range(submissions)]
    board = phase(
        [
            standing(key, 0.9 - 0.02 * n, 2 ** (2 + n % 9), 64, n + 1, dict.fromkeys(names, (0.9, n + 1)), 1024)
            for n, key in enumerate(keys)
        ],
        [(name, "classification" if n < 2 else "regression", 1_800, 1_800, 0.0) for n, name in enumerate(names)],
        [(a, b, 0.01, 0.2) for n, a in enumerate(keys) for b in keys[n + 1 :]],
    )
    classes = [f"class {number}" for number in range(30)]

    def task(place, name):
        if place < 2:
            true = [rng.randrange(30) for _ in range(1_800)]
            predicted = [a if rng.random() < 0.6 else rng.randrange(30) for a in true]
            return _task(name, "classification", 0.6, {}, true, predicted, classes, 1_800)
        true = [rng.gauss(0, 1) for _ in range(1_800)]
        return _task(name, "regression", 0.6, {}, true, [a + rng.gauss(0, 0.5) for a in true], (), 1_800)

    runs = {key: (summary(key), scores([task(*one) for one in enumerate(names)])) for key in keys}
    return EmbeddingResults({"phases": {"many": board}, "left_out": {}}, runs)
