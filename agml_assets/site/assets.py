"""The files of AgML's site and the pages that people browse, from whatever is finished; without partitions."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg
from blake3 import blake3
from upath import UPath

from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXEL_HASHES
from agml_assets.embeddings.artifacts import UMAP_3D, UMAP_PROJECTION
from agml_assets.errors import UserError
from agml_assets.leaderboard.catalogue import load_catalogue
from agml_assets.leaderboard.record_files import performance_folder
from agml_assets.lineage import Artifact
from agml_assets.locks import exclusive
from agml_assets.recording import OWNERS, asset_key, table
from agml_assets.report.artifacts import CARD, RESULT
from agml_assets.site import embedding_plots, page_agents
from agml_assets.site.page_sources import (
    FOLDER,
    copy_cards,
    find_cards,
    read_site_data,
    remove_old_plots,
    remove_old_trials,
)
from agml_assets.site.pages import build_pages
from agml_assets.site.plots import draw_plots
from agml_assets.site.results import build_site_results, dump_results
from agml_assets.site.shared_images import find_shared_images
from agml_assets.site.umap import dump_points, find_projections
from agml_assets.store import PLATFORM
from agml_assets.workspace import Workspace

_LEADERBOARD = ("board", "run_records")
_RESULTS, _UMAP, _SHARED = "site/results.json", "site/umap", "site/shared_images.parquet"


def build_assets() -> Sequence[dg.AssetsDefinition]:
    """Return the assets of this room."""

    @_site_asset(
        "results", "The reports of all finished datasets in one file, as AgML's site reads them.", "json", [RESULT]
    )
    def results(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
        """Merge the reports into those of the last time; datasets that are not registered stay."""
        path = workspace.store.path(PLATFORM, _RESULTS)
        with _alone(workspace, context, "results"):
            existing = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            found = build_site_results(workspace.registry, workspace.store, existing)
            text = dump_results(found.results)
            workspace.store.write_text(path, text)
        return _written(
            path,
            text,
            {"datasets_count": float(len(found.results))},
            dict.fromkeys(found.missing, "no report yet"),
        )

    @_site_asset(
        "umap",
        "The UMAP points of all finished datasets, two files each, as AgML's site reads them.",
        "json",
        [UMAP_PROJECTION, UMAP_3D],
    )
    def umap(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
        """Write the points of each dataset compactly, under the name that the site asks for."""
        found = find_projections(workspace.registry, workspace.store)
        folder = workspace.store.path(PLATFORM, _UMAP)
        digests = []
        with _alone(workspace, context, "umap"):
            for name, (key, artifact) in found.files.items():
                text = dump_points(workspace.store.read(key, artifact.file))
                workspace.store.write_text(folder / name, text)
                digests.append(f"{name} {_digest(text)}")
        missing = dict.fromkeys(found.missing, "no projection yet")
        return _written(folder, "\n".join(digests), {"files_count": float(len(found.files))}, missing)

    @_site_asset(
        "shared_images",
        "Images that occur in more than one dataset, by their pixels.",
        "parquet",
        [IMAGE_INDEX, PIXEL_HASHES],
    )
    def shared_images(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.MaterializeResult:
        """Compare the pixel hashes of all datasets that have been read."""
        with _alone(workspace, context, "shared_images"):
            found = find_shared_images(workspace)
            facts = {"artifact": "site/shared_images", "code_version": "1", "inputs": {}, "settings": {}}
            sidecar = workspace.store.write(PLATFORM, _SHARED, found.images, facts)
        columns = tuple(name.replace("_", " ") for name in found.pairs.columns)
        return _written(
            workspace.store.path(PLATFORM, _SHARED),
            sidecar.digest,
            {
                "shared_images_count": float(found.images.height),
                "pairs": table(columns, found.pairs.iter_rows()),
            },
            found.missing,
        )

    @_site_asset(
        "pages",
        "The site that people browse: leaderboard, comparison of models, models, embeddings, agents, datasets.",
        "html",
        [CARD],
        [
            dg.AssetKey(["site", "results"]),
            *(dg.AssetKey(["leaderboard", name]) for name in _LEADERBOARD),
            dg.AssetKey(["evaluation", "report"]),
            dg.AssetKey(["compression", "leaderboard"]),
            dg.AssetKey(["agents", "leaderboard"]),
        ],
    )
    def pages(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
        """Write the pages from whatever there is, and copy the cards beside them."""
        store, registry = workspace.store, workspace.registry
        folder = store.path(PLATFORM, FOLDER)
        with _alone(workspace, context, "pages"):
            cards = find_cards(registry, store)
            catalogue = load_catalogue(performance_folder().parent)
            data = read_site_data(registry, store, catalogue, cards)
            copy_cards(cards, store)
            plots = draw_plots(data.models.report)
            plots |= embedding_plots.draw_plots(data.embeddings.leaderboard, data.embeddings.runs)
            plots |= page_agents.draw_plots(data.agents.leaderboard)
            made = {**build_pages(data), **plots}
            for name, text in made.items():
                store.write_text(folder / name, text)
            remove_old_plots(folder, plots)
            remove_old_trials(folder, data.agents)
        facts = {
            "cards_count": float(len(cards)),
            "plots_count": float(len(plots)),
            "size_mb": round(sum(len(text.encode()) for text in made.values()) / 1e6, 3),
            "index": dg.MetadataValue.path(str(folder / "index.html")),
        }
        return _written(folder, "".join(made.values()), facts, data.missing)

    return [results, umap, shared_images, pages]


def _site_asset(
    name: str, description: str, kind: str, read: Iterable[Artifact], also: Iterable[dg.AssetKey] = ()
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    return dg.asset(
        key=["site", name],
        deps=[*(asset_key(artifact) for artifact in read), *also],
        description=description,
        group_name="site",
        code_version="1",
        kinds={kind},
        owners=OWNERS,
    )


@contextmanager
def _alone(workspace: Workspace, context: dg.AssetExecutionContext, name: str) -> Iterator[None]:
    """Hold a file of the site against other runs; a user's mistake is a permanent failure."""
    folder = workspace.store.local_folder(PLATFORM, "locks")
    try:
        with exclusive(folder / f"site_{name}.lock", f"site/{name}", f"run {context.run.run_id}"):
            yield
    except UserError as error:
        raise dg.Failure(error.message, allow_retries=False) from None


def _written(
    path: UPath, content: str, metadata: Mapping[str, Any], missing: Mapping[str, str]
) -> dg.MaterializeResult:
    """Return the materialisation: where it lies, and the datasets that it could not speak of."""
    return dg.MaterializeResult(
        metadata={
            **metadata,
            "missing_datasets_count": float(len(missing)),
            **({"missing": table(("dataset", "why"), missing.items())} if missing else {}),
            "path": dg.MetadataValue.path(str(path)),
        },
        data_version=dg.DataVersion(_digest(content)),
    )


def _digest(text: str) -> str:
    return blake3(text.encode()).hexdigest()
