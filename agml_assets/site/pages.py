"""The site that people browse: HTML files that open from disk, each with its data and its scripts inside.

Nothing is asked of a server or the network. What the pages show is shaped in the modules `page_*`, how they look
and what can be done in them is in `templates/`; here they are put together.
"""

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from agml_assets.evaluation.ways import FROZEN
from agml_assets.leaderboard.catalogue import Catalogue
from agml_assets.site.page_agents import (
    AgentResults,
    agents_data,
    missing_agents,
    trial_count,
    trial_files,
    trials_data,
)
from agml_assets.site.page_catalogue import catalogue_data
from agml_assets.site.page_columns import shown
from agml_assets.site.page_comparison import compared_entries, comparison_data
from agml_assets.site.page_embeddings import (
    EmbeddingResults,
    embeddings_data,
    missing_submissions,
    submissions_data,
)
from agml_assets.site.page_left_out import left_out_data
from agml_assets.site.page_models import HOW, OWN, ModelResults, models_data, runs_data
from agml_assets.site.page_runs import details_of_board, runs_of_board

PAGES = {
    "index": "Leaderboard",
    "compare": "Compare models",
    "models": "Models",
    "model": "Model",
    "embeddings": "Embeddings",
    "submission": "Submission",
    "agents": "Agents",
    "datasets": "Datasets",
    "dataset": "Dataset",
    "left_out": "Left out",
}
"""Title by name of each page; `<name>.html` is its file. Trials of an agent on a task have a page of their own."""

_IN_NAVIGATION = ("index", "compare", "models", "embeddings", "agents", "datasets", "left_out")
_SECTION_OF = {"dataset": "datasets", "model": "models", "submission": "embeddings", "trials": "agents"}


@dataclass(frozen=True)
class SiteData:
    """What the site is made from; anything may be absent, and is then named on the pages.

    Attributes:
        board: `board.json` of the leaderboard.
        run_records: `run_records.json` of the leaderboard.
        reports: Report by name, as in `results.json` of the site.
        catalogue: The catalogue of datasets.
        cards: Address of the card by name of the dataset, relative to the pages.
        models: Models, each way of answering by itself.
        embeddings: Compressed embeddings.
        agents: Agents on tasks.
        missing: Reason by dataset or file that could not be shown.
    """

    board: Mapping[str, Any] | None = None
    run_records: Mapping[str, Any] | None = None
    reports: Mapping[str, Any] = field(default_factory=dict)
    catalogue: Catalogue = field(default_factory=Catalogue)
    cards: Mapping[str, str] = field(default_factory=dict)
    models: ModelResults = field(default_factory=ModelResults)
    embeddings: EmbeddingResults = field(default_factory=EmbeddingResults)
    agents: AgentResults = field(default_factory=AgentResults)
    missing: Mapping[str, str] = field(default_factory=dict)


def build_pages(data: SiteData) -> dict[str, str]:
    """Return the text of every file of the site by its name; the same data give the same pages, byte for byte.

    Everything that comes from records, reports or the catalogue is escaped, and the pages forbid themselves any
    script but their own and any request.
    """
    board = data.board or {}
    runs = runs_of_board(board)
    count = Counter(run["dataset"] for run in board.get("runs") or ())
    catalogue = catalogue_data(data.catalogue.entries, data.reports, data.cards, count)
    agricultural = {name: facts.get("agricultural_task") for name, facts in (board.get("datasets") or {}).items()}
    missing = {**data.missing, **missing_submissions(data.embeddings), **missing_agents(data.agents)}
    left_out = left_out_data(data.board, data.run_records, missing)
    models = models_data(data.models, catalogue["name"], data.cards)
    embeddings = embeddings_data(data.embeddings)
    agents = agents_data(data.agents)
    contents: dict[str, dict[str, Any]] = {
        "index": {"runs": runs},
        "compare": comparison_data(compared_entries(data.run_records, data.catalogue), agricultural),
        "models": models,
        "model": {**models, "runs": runs_data(data.models, models)},
        "embeddings": embeddings,
        "submission": submissions_data(data.embeddings),
        "agents": agents,
        "datasets": {"catalogue": catalogue},
        "dataset": {
            "catalogue": catalogue,
            "runs": {**runs, **details_of_board(board, data.run_records)},
            "refused": left_out["refused"],
        },
        "left_out": left_out,
    }
    numbers = {
        **_headline(data, runs, len(missing), others=len(catalogue["name"]) - len(data.catalogue.entries)),
        **_models_headline(models),
        **_embeddings_headline(embeddings),
        "agents": len(agents["agents"]["key"]),
        "agent_tasks": len(agents["tasks"]["key"]),
        "agent_trials": trial_count(data.agents),
        "agents_left_out": len(agents["left_out"]["why"]["at"]),
    }
    pages = {f"{name}.html": _render(name, PAGES[name], content, numbers) for name, content in contents.items()}
    for pair, file in trial_files(data.agents).items():
        content = trials_data(data.agents.evaluations[pair])
        pages[file] = _render("trials", f"{content['agent_name']}, {content['task_name']}", content, numbers)
    return pages


def _headline(data: SiteData, runs: Mapping[str, Any], missing: int, others: int) -> dict[str, Any]:
    """Return the numbers that the pages state in words, and the files that are missing."""
    counts = (data.run_records or {}).get("counts") or {}
    refused, doubted = counts.get("refused", 0), counts.get("with_warnings", 0)
    unranked = len((data.board or {}).get("unranked") or ())
    statistics = data.catalogue.statistics()
    return {
        "runs": len(runs["samples"]),
        "models": len(runs["model"]["texts"]),
        "run_datasets": len(runs["dataset"]["texts"]),
        "intervals": sum(any(len(score) > 5 for score in scores) for scores in runs["scores"]),
        "records": counts.get("accepted", 0) + refused,
        "refused": refused,
        "doubted": doubted,
        "unranked": unranked,
        "doubts": refused + doubted + unranked + missing,
        "datasets": statistics.datasets,
        "images": statistics.images,
        "others": others,
        "entries": len(data.catalogue.entries),
        "reports": len(data.reports),
        "cards": len(data.cards),
        "missing": missing,
        "has_board": data.board is not None,
        "has_records": data.run_records is not None,
    }


def _models_headline(models: Mapping[str, Any]) -> dict[str, Any]:
    columns = (models["models"][name] for name in ("source", "how", "own"))
    rows = list(
        zip(*([one["texts"][at] if at >= 0 else None for at in one["at"]] for one in columns), strict=True)
    )
    own = [(how, model) for source, how, model in rows if source == OWN]
    return {
        "frozen_own": len({model for _, model in own}),
        "frozen_published": len(rows) - len(own),
        "frozen_others": sum(how != HOW[FROZEN] for how, _ in own),
        "frozen_subjects": len(models["subjects"]["key"]),
        "frozen_scores": sum(map(len, models["scores"])),
    }


def _embeddings_headline(embeddings: Mapping[str, Any]) -> dict[str, Any]:
    phases = embeddings["phases"]
    return {
        "embeddings": sum(len(phase["submissions"]["key"]) for phase in phases),
        "embedding_phases": len(phases),
        "embeddings_left_out": len(embeddings["left_out"]["why"]["at"]),
    }


def _render(name: str, title: str, content: Mapping[str, Any], numbers: Mapping[str, Any]) -> str:
    scripts = [_template("site.js"), _template(f"{name}.js")]
    current = _SECTION_OF.get(name, name)
    navigation = [(f"{page}.html", PAGES[page], page == current) for page in _IN_NAVIGATION]
    return (
        _environment()
        .get_template(f"{name}.html")
        .render(
            title=title,
            navigation=navigation,
            n=numbers,
            policy=_policy(scripts),
            style=Markup(_styles()),  # noqa: S704 - our own files
            data=htmlsafe_json_dumps(content, separators=(",", ":"), allow_nan=False),
            scripts=[Markup(script) for script in scripts],  # noqa: S704 - our own files
        )
    )


def _policy(scripts: Iterable[str]) -> str:
    hashes = " ".join(f"'sha256-{b64encode(sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src {hashes}; base-uri 'none'; form-action 'none'"
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("agml_assets.site"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: shown(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["count"] = lambda number: f"{number:,.0f}"
    environment.filters["plural"] = _plural
    return environment


def _plural(number: float, one: str, many: str = "") -> str:
    return f"{number:,.0f} {one if number == 1 else many or one + 's'}"


@cache
def _template(name: str) -> str:
    return (files("agml_assets.site") / "templates" / name).read_text("utf-8")


@cache
def _styles() -> str:
    """Return the looks of the dataset card, whose colours, tables and bars these are, and what is added."""
    card = (files("agml_assets.report") / "templates" / "card.css").read_text("utf-8")
    return card + _template("site.css")
