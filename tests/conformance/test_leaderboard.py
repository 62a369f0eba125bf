"""Of the 198 published files our manifests are the site's byte for byte, and our pages value by value."""

import json
from collections import Counter
from dataclasses import asdict

import pytest
from upath import UPath

from agml_assets.leaderboard.board import build_board
from agml_assets.leaderboard.catalogue import load_catalogue
from agml_assets.leaderboard.comparison import Filters, compare, detail, model_options, read_site_records
from agml_assets.leaderboard.javascript import collation_key, dump_json, number_text, parse_json, to_fixed
from agml_assets.leaderboard.manifests import build_global, build_index
from agml_assets.leaderboard.metric_names import family, is_mean_average_precision, metric_label
from agml_assets.leaderboard.outputs import global_text, index_text, read_source
from agml_assets.leaderboard.record_files import read_record_files
from agml_assets.leaderboard.run_records import check_files
from agml_assets.leaderboard.site_rows import dataset_table
from agml_assets.leaderboard.staging import stage
from agml_assets.quality.score import round_half_up


@pytest.fixture(scope="module")
def site(conformance):
    return conformance / "agml_site"


@pytest.fixture(scope="module")
def published(site):
    """Return a published file by name."""

    def read(name):
        return json.loads((site / name).read_text(encoding="utf-8"))

    return read


@pytest.fixture(scope="module")
def files(site):
    return read_record_files(site / "performance")


@pytest.fixture(scope="module")
def catalogue(site):
    return load_catalogue(site)


@pytest.fixture(scope="module")
def entries(published):
    return read_site_records(published("performance/global.json"))


def test_the_manifests_are_byte_equal(site, files, catalogue):
    assert dump_json(build_index(files)).encode() == (site / "performance" / "index.json").read_bytes()
    assert (
        dump_json(build_global(files, catalogue)).encode() == (site / "performance" / "global.json").read_bytes()
    )


def test_the_catalogue_is_found_beside_the_records(site):
    source = read_source(site / "performance")
    assert index_text(source).encode() == (site / "performance" / "index.json").read_bytes()
    assert global_text(source).encode() == (site / "performance" / "global.json").read_bytes()


def test_every_published_record_is_accepted_without_a_warning(files, catalogue, published):
    counts, found = published("counts.json"), check_files(files, catalogue)
    assert found.refused == ()
    assert found.with_warnings == ()
    assert len(files) == counts["files"]
    assert len(found.accepted) == counts["records"]
    assert Counter(one.record.task for one in found.accepted) == counts["records_by_task"]
    assert Counter(one.record.model for one in found.accepted) == counts["records_by_model"]


def test_the_tables_of_all_datasets_are_the_pages(files, published):
    tables = published("dataset_tables.json")
    assert {file.dataset for file in files} == set(tables)
    for file in files:
        table = dataset_table(file.document)
        for entry in table["entries"]:
            entry["notes_first_line"] = entry.pop("notes").partition("\n")[0]
        assert table == tables[file.dataset], file.dataset
        assert [list(entry) for entry in table["entries"]] == [list(e) for e in tables[file.dataset]["entries"]]


@pytest.mark.parametrize(
    ("name", "filters"),
    [
        ("all_options", Filters()),
        ("options_detection", Filters(tasks=("object_detection",))),
        ("options_tomato", Filters(crop_types=("tomato",))),
        ("options_tuned", Filters(tuned=True)),
    ],
)
def test_the_models_that_can_be_compared_are_the_pages(entries, published, name, filters):
    options = model_options(entries, filters)
    ours = [{"id": o.id, "model": o.model, "task": o.task, "datasetCount": o.datasets} for o in options]
    assert ours == published("model_options.json")[name]


def test_comparisons_are_the_pages(entries, published):
    comparisons = published("comparisons.json")
    compared = {name: one for name, one in comparisons.items() if "selected" in one}
    assert len(compared) == 8
    for name, one in compared.items():
        options = one["options"]
        filters = Filters(
            crop_types=tuple(options.get("cropTypes", ())), platforms=tuple(options.get("platforms", ()))
        )
        result = compare(entries, one["selected"], filters)
        assert {family: _as_the_page(comparison) for family, comparison in result.items()} == one["result"], name


def _as_the_page(comparison):
    return {
        "datasets": list(comparison.datasets),
        "entries": [
            {
                "id": model.id,
                "model": model.model,
                "task": model.task,
                "avgRank": model.average_rank,
                "datasetRanks": [asdict(one) for one in model.ranks],
            }
            for model in comparison.models
        ],
    }


def test_the_details_of_a_comparison_are_the_pages(entries, published):
    comparisons = published("comparisons.json")
    shown, selected = comparisons["detail_cls_five_gemma"], comparisons["cls_five"]["selected"]
    details = detail(entries, shown["id"], selected, shown["metric"], compare(entries, selected))
    assert [
        {
            "dataset": one.record.dataset,
            "scores": one.record.scores,
            "ranks": one.ranks,
            "variant": one.record.variant,
            "optimized": one.record.optimized,
            "platform": one.record.platform,
            "splitBreakdown": one.record.split_breakdown,
            "datasetConfig": one.record.dataset_config,
        }
        for one in details
    ] == shown["datasets"]


def test_metrics_are_called_as_on_the_page(published):
    for name, expected in published("metric_labels.json").items():
        is_map = is_mean_average_precision(name)
        found = {"label": metric_label(name), "isMap": is_map, "kind": None if is_map else family(name)}
        assert found == expected, name


def test_numbers_print_and_round_as_in_javascript(published):
    numbers = published("js_numbers.json")
    for text, expected in numbers["str"].items():
        assert number_text(parse_json(text)) == expected
    for text, expected in numbers["json"].items():
        assert dump_json(parse_json(text)) == expected
    for digits in (0, 1, 3):
        for text, expected in numbers[f"toFixed{digits}"].items():
            assert to_fixed(float(text), digits) == expected
    for text, expected in numbers["round1"].items():
        assert round_half_up(float(text)) == expected
    # `Math.round` itself has no use here: a tenth of the value, to one decimal.
    for text, expected in numbers["round"].items():
        assert round_half_up(float(text) / 10) * 10 == pytest.approx(float(expected))


def test_names_are_in_the_order_of_locale_compare(published):
    for name, ordered in published("localecompare_order.json").items():
        backwards = ordered[::-1]
        assert sorted(backwards, key=collation_key) == ordered, name


def test_the_totals_of_the_catalogue_are_the_sites(catalogue, published):
    expected, totals = published("dataset_catalog_stats.json"), catalogue.statistics()
    assert totals.datasets == expected["datasetCount"] == expected["distinctGroups"]
    assert totals.images == expected["imageCount"]
    assert totals.task_types == expected["taskTypeCount"]
    assert len(catalogue.entries) == expected["total"]
    assert [entry.name for entry in catalogue.entries[:20]] == expected["first20"]
    assert sum(entry.is_child for entry in catalogue.entries) == expected["children"]
    assert [entry.name for entry in catalogue.entries if entry.is_vision_language] == expected["vlm"]


def test_the_board_holds_every_run_and_its_ties_are_ties(files, catalogue, published, tmp_path):
    counts = published("counts.json")
    board = build_board(check_files(files, catalogue), catalogue, [UPath(tmp_path)])
    assert len(board["runs"]) == counts["global_records"]
    assert board["unranked"] == []
    repeated = {run["dataset"]: run["of_runs"] for run in board["runs"] if run["of_runs"] > 1}
    assert set(repeated) == set(counts["repeat_runs"])
    for one in board["boards"]:
        if one["dataset"] in counts["datasets_with_all_zero_ties"]:
            assert {(entry["rank"], entry["percentile"]) for entry in one["entries"]} == {(1, 50.0)}


def test_average_ranks_of_the_board_are_the_pages_where_nothing_is_tied(files, catalogue, published, tmp_path):
    board = build_board(check_files(files, catalogue), catalogue, [UPath(tmp_path)])
    (comparison,) = (c for c in board["comparisons"] if (c["task"], c["metric"]) == ("classification", "f1"))
    by_size = {len(ranking["average_ranks"]): ranking for ranking in comparison["rankings"]}
    for n_models, name in ((2, "cls_gemma_qwen"), (5, "cls_five")):
        page = published("comparisons.json")[name]["result"]["f1"]
        assert set(by_size[n_models]["datasets"]) == set(page["datasets"])
        expected = {entry["model"]: entry["avgRank"] for entry in page["entries"]}
        assert by_size[n_models]["average_ranks"] == pytest.approx(expected)


def test_a_published_file_cut_in_two_is_staged_back_byte_for_byte(site, catalogue, tmp_path):
    cut = 0
    for path in sorted((site / "performance").glob("*.json")):
        records = json.loads(path.read_text(encoding="utf-8"))
        if path.stem in ("index", "global") or len(records) < 2:
            continue
        cut += 1
        for folder, part in (("performance", records[:1]), ("staging", records[1:])):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / path.name).write_text(json.dumps(part, indent=2) + "\n")
    assert cut == 125
    stage(tmp_path / "performance", tmp_path / "staging", catalogue)
    for path in (tmp_path / "performance").glob("*.json"):
        assert path.read_bytes() == (site / "performance" / path.name).read_bytes(), path.name
    assert all(not merge.added for merge in stage(tmp_path / "performance", tmp_path / "staging", catalogue))
