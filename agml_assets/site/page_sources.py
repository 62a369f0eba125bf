"""Where the pages get what they show: files of the leaderboard and of the site, cards of the datasets.

What is not there yet is named, and missed by nobody. The pages themselves are made in `pages`.
"""

import json
import os
from collections.abc import Collection, Mapping
from typing import Any

from upath import UPath

from agml_assets.evaluation.published import read_results
from agml_assets.evaluation.stored import file_of, find_results, model_and_kind
from agml_assets.evaluation.ways import FROZEN
from agml_assets.leaderboard.catalogue import Catalogue
from agml_assets.registry.datasets import DatasetRegistry
from agml_assets.registry.models import load_models
from agml_assets.registry.tasks import load_tasks
from agml_assets.report.artifacts import CARD, RESULT
from agml_assets.settings import expand_path
from agml_assets.site.page_agents import AgentResults, pairs_of, trial_files
from agml_assets.site.page_embeddings import EmbeddingResults, submissions_of
from agml_assets.site.page_models import ModelResults
from agml_assets.site.pages import SiteData
from agml_assets.site.results import site_names
from agml_assets.site.svg import FOLDER as PLOTS
from agml_assets.store import PLATFORM, ArtifactStore

FOLDER = "site/pages"
"""Folder of the pages below `_platform`; it can be copied elsewhere as it is."""

_CARDS = "cards"
_FILES = {
    "board": ("leaderboard/board.json", "not made yet; the job leaderboard makes it"),
    "run_records": ("leaderboard/run_records.json", "not made yet; the job leaderboard makes it"),
    "model_report": ("evaluation/report.json", "not made yet; the job model_report makes it"),
    "submissions": ("compression/leaderboard.json", "not made yet; the job compression_leaderboard makes it"),
    "agent_board": ("agents/leaderboard.json", "not made yet; the job agents makes it"),
    "reports": ("site/results.json", "not made yet; the asset site/results makes it"),
}


def find_cards(registry: DatasetRegistry, store: ArtifactStore) -> dict[str, UPath]:
    """Return the card of each dataset that has one, retired ones too, by key."""
    paths = {entry.key: store.path(entry.key, CARD.file) for entry in registry.entries}
    return {key: path for key, path in paths.items() if store.sidecar(key, CARD.file) and path.exists()}


def card_file(key: str) -> str:
    """Return where the copy of a card lies, relative to the pages."""
    return f"{_CARDS}/{key}.html"


def read_site_data(
    registry: DatasetRegistry, store: ArtifactStore, catalogue: Catalogue, cards: Mapping[str, Any]
) -> SiteData:
    """Return what the pages are made from, however much of it there is.

    Args:
        registry: The datasets; those that are not retired and have no report or no card are missed.
        store: Where the files lie.
        catalogue: The catalogue of datasets.
        cards: Keys of the datasets whose cards are copied to the pages.
    """
    found, missing = {}, {}
    for name, (file, why) in _FILES.items():
        path = store.path(PLATFORM, file)
        if path.exists():
            found[name] = json.loads(path.read_text(encoding="utf-8"))
        else:
            missing[file] = why
    for entry in registry.entries:
        if not entry.retired and store.sidecar(entry.key, RESULT.file) is None:
            missing[entry.key] = "no report yet"
        elif not entry.retired and entry.key not in cards:
            missing[entry.key] = "no card yet"
    names = site_names(registry)
    report, submissions, agents = (
        found.pop(name, None) for name in ("model_report", "submissions", "agent_board")
    )
    return SiteData(
        **found,
        catalogue=catalogue,
        cards={names[key]: card_file(key) for key in cards},
        models=read_models(store, report, names),
        embeddings=read_embeddings(store, submissions),
        agents=read_agents(store, agents),
        missing=missing,
    )


def read_models(store: ArtifactStore, report: Mapping[str, Any] | None, names: Mapping[str, str]) -> ModelResults:
    """Return what there is of models on frozen features, and the results that $AGML_BIOBENCH_RESULTS names.

    Args:
        store: Where scores and run records of the report's evaluations lie.
        report: `evaluation/report.json`, or None.
        names: Name of a dataset on the site by its key.

    Raises:
        UserError: The file of published results is absent or of another shape.
    """
    pairs = [
        (subject, standing["model"])
        for subject, one in ((report or {}).get("subjects") or {}).items()
        for standing in one["standings"]
    ]
    file = os.environ.get("AGML_BIOBENCH_RESULTS")
    return ModelResults(
        report=report,
        runs={pair: (_step(store, *pair, "scores"), _step(store, *pair, "run_record")) for pair in pairs},
        published=read_results(expand_path(file)) if file else None,
        registered=load_models().published(),
        tasks={entry.key: entry for entry in load_tasks().entries},
        names=names,
    )


def read_embeddings(store: ArtifactStore, leaderboard: Mapping[str, Any] | None) -> EmbeddingResults:
    """Return what there is of compressed embeddings.

    Args:
        store: Where the scores of the leaderboard's submissions lie.
        leaderboard: `compression/leaderboard.json`, or None.
    """
    runs = {}
    for key in submissions_of(leaderboard):
        files = (f"compression/{key}/{step}.json" for step in ("summary", "task_scores"))
        summary, scores = (_read(store, PLATFORM, file) for file in files)
        runs[key] = summary, scores
    return EmbeddingResults(leaderboard, runs)


def read_agents(store: ArtifactStore, leaderboard: Mapping[str, Any] | None) -> AgentResults:
    """Return what there is of agents.

    Args:
        store: Where the evaluations of the leaderboard's pairs lie.
        leaderboard: `agents/leaderboard.json`, or None.
    """
    found = {
        (task, agent): _read(store, PLATFORM, f"agents/{task}/{agent}/evaluation.json")
        for task, agent in pairs_of(leaderboard)
    }
    return AgentResults(leaderboard, {pair: one for pair, one in found.items() if one})


def _step(store: ArtifactStore, subject: str, name: str, step: str) -> Mapping[str, Any]:
    """Return what an evaluation has stored; nothing where it is gone since the report was made."""
    model, kind = model_and_kind(name)
    place = name if kind == FROZEN else find_results(store, subject, model, step).get(name, name)
    return _read(store, subject, file_of(place, step))


def _read(store: ArtifactStore, folder: str, file: str) -> Mapping[str, Any]:
    try:
        text = store.path(folder, file).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    found: Mapping[str, Any] = json.loads(text)
    return found


def remove_old_plots(folder: UPath, plots: Collection[str]) -> None:
    """Remove plots from the folder of the pages that are no longer made; `plots` are relative to it."""
    place = folder / PLOTS
    for old in place.glob("*.svg") if place.exists() else ():
        if f"{PLOTS}/{old.name}" not in plots:
            old.unlink()


def remove_old_trials(folder: UPath, agents: AgentResults) -> None:
    """Remove pages of trials from the folder of the pages that are no longer made."""
    made = set(trial_files(agents).values())
    for old in folder.glob("trials_*.html") if folder.exists() else ():
        if old.name not in made:
            old.unlink()


def copy_cards(cards: Mapping[str, UPath], store: ArtifactStore) -> None:
    """Copy cards that have changed into the folder of the pages, and remove those that are no longer there."""
    folder = store.path(PLATFORM, f"{FOLDER}/{_CARDS}")
    for key, path in cards.items():
        copy, text = folder / f"{key}.html", path.read_text(encoding="utf-8")
        if not copy.exists() or copy.read_text(encoding="utf-8") != text:
            store.write_text(copy, text)
    for old in folder.glob("*.html") if folder.exists() else ():
        if old.stem not in cards:
            old.unlink()
