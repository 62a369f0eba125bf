"""Invented run records, catalogues and reports, and the site made from them, shared by the tests of the pages."""

import json
import random

import polars as pl

from agml_assets.leaderboard.outputs import OUTPUTS, read_source
from agml_assets.site.pages import SiteData
from tests.site import invented_agents, invented_embeddings, invented_models

CROPS = ("tomato", "rice", "maize", "coffee", "grape", "wheat", "apple", "bean")
KINDS = {
    "classification": ("image_classification", ("disease_classification", "variety_classification")),
    "detection": ("object_detection", ("crop_detection", "weed_detection")),
    "segmentation": ("semantic_segmentation", ("crop_segmentation",)),
}
PLATFORMS = ("cuda", "cpu", "NVIDIA A100")
HOSTILE = "</script><script>boom()</script><img src=x onerror=boom()>"
"""A name that would run if anything of it became markup."""

BASE = "2026-08-11T05:16:17+00:00"


def invent_records(datasets=24, models=5, seed=0, tuned=0.3, ties=0.1):
    """Return run records by dataset and catalogue entries: every model on most datasets, some of them twice."""
    rng = random.Random(seed)
    records, catalogue = {}, []
    for number in range(datasets):
        task = rng.choices(list(KINDS), weights=(6, 2, 1))[0]
        catalogue_task, agricultural = KINDS[task]
        name = f"{rng.choice(CROPS)}_{number:04}_{task}"
        catalogue.append(
            {
                "name": name,
                "machine_learning_task": catalogue_task,
                "agricultural_task": rng.choice(agricultural),
                "crop_types": rng.sample(CROPS, rng.randint(1, 3)),
                "num_images": rng.randint(40, 60_000),
                "location": rng.choice(("Kenya", "India", "United States of America")),
                "license": rng.choice(("cc-by-4.0", None)),
                "hf_link": f"https://huggingface.co/datasets/owner/{name}",
            }
        )
        level = rng.random()
        records[name] = [
            _record(rng, f"maker/model-{model}", name, task, level, number < tuned * datasets, ties)
            for model in range(models)
            if model < 2 or rng.random() < 0.8
        ]
    return records, catalogue


def _record(rng, model, dataset, task, level, tuned, ties):
    samples = rng.randint(50, 5_000)
    score = round(rng.uniform(level / 2, (1 + level) / 2), 1 if rng.random() < ties else 6)
    metrics = {
        "classification": {"f1": score, "precision": round(rng.random(), 6), "recall": round(rng.random(), 6)},
        "detection": {"map_50": score, "f1_at_iou50": round(rng.random(), 6)},
        "segmentation": {"miou": score},
    }[task]
    return {
        "benchmark_id": 1,
        "timestamp": BASE,
        "dataset": f"owner/{dataset}",
        "dataset_config": rng.choice((None, None, "augmented")),
        "split": "test",
        "model": model,
        "task": task,
        "optimized": rng.choice(("no", "no", "yes")),
        "num_samples": samples,
        "device": rng.choice(PLATFORMS),
        "inference_time_seconds": round(rng.random() * samples, 3),
        "metrics": {**metrics, "skipped_samples": rng.choice((0, 0, rng.randint(0, samples // 4)))},
        "notes": f"Prompt: a photo of a {rng.choice(CROPS)}. " * 8,
        **({"finetune": {"train_samples": 700, "split_seed": 42}} if tuned and rng.random() < 0.5 else {}),
    }


def parts_of_collections(n, seed=1):
    """Return catalogue entries of the parts of a large collection."""
    rng = random.Random(seed)
    return [
        {
            "name": f"iNatAg/species_{number}",
            "machine_learning_task": "image_classification",
            "agricultural_task": "crop_classification",
            "crop_types": [],
            "num_images": rng.randint(50, 2500),
            "license": "CC BY-NC 4.0",
            "parent_dataset": "iNatAg",
            "documentation": "https://www.inaturalist.org/",
        }
        for number in range(n)
    ]


def report(overall=6.5, interval=(6.1, 6.9), missing=(), low_high=None, **fields):
    """Return a report with these scores."""
    axes = dict.fromkeys(("structural", "difficulty", "diversity", "annotation"), overall)
    axes |= dict.fromkeys(missing)
    low, high = low_high or (overall - 1, overall - 1)
    shape = {"low": interval[0], "high": interval[1]}
    return {
        "dataset": "owner/x",
        "date": "2026-08-13",
        "metrics": {},
        "score": {
            "formula": "agml-2026",
            "overall": overall,
            "axes": axes,
            "unavailable": dict.fromkeys(missing, "label_noise is missing."),
            "calibrated": {"formula": "calibrated-1", "overall": {"low": low, "high": high}, "axes": axes},
            "intervals": {"agml-2026": {"overall": shape}, "calibrated-1": {}},
        },
        **fields,
    }


def site_of(folder, records, catalogue, **others):
    """Return the site's data, with the leaderboard's files made as a run makes them."""
    performance = folder / "performance"
    performance.mkdir(parents=True, exist_ok=True)
    for name, of_dataset in records.items():
        (performance / f"{name}.json").write_text(json.dumps(of_dataset), "utf-8")
    (folder / "hf_datasets.json").write_text(json.dumps(catalogue), "utf-8")
    source = read_source(performance)
    made = {name.rpartition("/")[2]: json.loads(make(source)) for name, make in OUTPUTS.items()}
    files = {"board": made["board.json"], "run_records": made["run_records.json"]}
    return SiteData(**{"catalogue": source.catalogue, **files, **others})


def usual(folder):
    """Return a site with a little of everything: intervals, ties, refused records, warnings, reports, cards."""
    records, catalogue = invent_records()
    first, second, third = list(records)[:3]
    entries = [*catalogue, {"name": "iNatAg"}, *parts_of_collections(130)]
    reports = {
        first: report(),
        second: report(4.0, interval=(3.6, 4.4), missing=("annotation",), low_high=(3.0, 5.0)),
        third: {"metrics": {}},
    }
    answers = [0, 1] * 50 + [1, 0] * 10
    stored = pl.DataFrame({"true": [*[0, 1] * 60, 0, 0, 1], "predicted": [*answers, None, None, None]})
    (folder / "performance" / "predictions").mkdir(parents=True)
    stored.write_parquet(folder / "performance" / "predictions" / "run.parquet")
    exact = {"f1": 100 / 120, "accuracy": 100 / 120, "skipped_samples": 3}
    with_interval = {"task": "classification", "num_samples": 123, "metrics": exact, "predictions": "run.parquet"}
    records[first].append({**records[first][0], "model": "maker/with-interval", **with_interval})
    records[first].append({**records[first][-1], "model": "maker/other-scores", "metrics": {**exact, "f1": 0.9}})
    records[second] += [{"model": "maker/no-task"}, {**records[second][0], "metrics": {"f1": "0.9"}}]
    records[second].append(
        {**records[second][0], "model": "maker/odd", "prompt": "which?", "metrics": {"f1": 78.2}}
    )
    records[third].append({**records[third][0], "model": "maker/loss", "metrics": {"loss": 0.2}})
    records["unknown_set"] = [{**records[first][0], "dataset": "owner/unknown_set"}]
    cards, missing = {first: "cards/first.html"}, {"never_run": "no report yet"}
    # One evaluated dataset has a page and a card; the other is not in the catalogue.
    models = invented_models.results(names={"beans": first, "rice": "rice"})
    others = {"embeddings": invented_embeddings.usual(), "agents": invented_agents.usual()}
    shown = {"reports": reports, "cards": cards, "models": models, **others}
    return site_of(folder, records, entries, **shown, missing=missing)


def hostile(folder):
    """Return a site in which every text tries to be markup, and every address to be a script."""
    records, catalogue = invent_records(datasets=8)
    name, odd = "x" + HOSTILE.replace("/", "|"), "\u202e\u0000\u2028__proto__"
    for record in (record for of_dataset in records.values() for record in of_dataset):
        record["model"] += HOSTILE
        record |= dict.fromkeys(("notes", "device", "split", "dataset_config"), HOSTILE)
    some = next(iter(records.values()))[0]
    records[name] = [{**some, "model": "long_" * 60}, {"model": HOSTILE}]
    records["constructor"] = [{**some, "model": "__proto__", "task": "constructor"}]
    address = {"hf_link": "javascript:boom()", "documentation": "data:text/html,<script>boom()</script>"}
    texts = dict.fromkeys(("license", "location", "agricultural_task"), HOSTILE)
    for entry in catalogue:
        entry |= {**address, **texts, "crop_types": [HOSTILE, odd]}
    catalogue += [
        {"name": name, **address, "machine_learning_task": HOSTILE},
        {"name": "constructor"},
        {"name": odd},
    ]
    unavailable = {"metrics": {}, "score": {"unavailable": {"annotation": HOSTILE}}}
    reports = {name: report(date=HOSTILE), "constructor": unavailable, odd: 3}
    models = invented_models.hostile(HOSTILE)
    others = {"embeddings": invented_embeddings.hostile(HOSTILE), "agents": invented_agents.hostile(HOSTILE)}
    shown = {"reports": reports, "models": models, **others}
    return site_of(folder, records, catalogue, **shown, missing={HOSTILE: HOSTILE})


def large(folder):
    """Return 10,000 run records on 1,000 datasets, 6,200 catalogue entries, 200 models on 100 datasets."""
    rng = random.Random(3)
    records, catalogue = invent_records(datasets=1_000, models=13, ties=0)
    names = list(records)
    for number in range(sum(map(len, records.values())) - 10_000):
        records[names[number % len(names)]].pop()
    entries = [*catalogue, {"name": "iNatAg"}, *parts_of_collections(5_199)]
    reports = {name: report(round(rng.uniform(1, 9), 1)) for name in names[:300]}
    return site_of(
        folder,
        records,
        entries,
        reports=reports,
        models=invented_models.large(),
        embeddings=invented_embeddings.large(),
        agents=invented_agents.large(),
    )


SITES = {
    "usual": usual,
    "hostile": hostile,
    "large": large,
    "empty": lambda folder: SiteData(),
}
"""Sites by name."""
