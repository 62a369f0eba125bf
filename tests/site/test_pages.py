"""The pages as text: everything there is is in them, nothing in them is markup or asks anything of the network."""

import base64
import json
import re
import zlib
from hashlib import sha256

import dagster as dg
import pytest

from agml_assets.leaderboard.catalogue import CatalogueEntry
from agml_assets.leaderboard.comparison import FAMILIES, read_site_records
from agml_assets.leaderboard.outputs import global_text, read_source
from agml_assets.registry.datasets import DatasetEntry, DatasetRegistry
from agml_assets.report.artifacts import CARD, RESULT
from agml_assets.settings import Settings
from agml_assets.site.assets import build_assets
from agml_assets.site.page_catalogue import catalogue_data
from agml_assets.site.page_columns import lists, number, packed, texts, web_address
from agml_assets.site.page_runs import details_of_board, runs_of_board
from agml_assets.site.pages import PAGES, SiteData, build_pages
from agml_assets.store import ArtifactStore
from agml_assets.workspace import DatasetWorkspace, Making, Workspace
from tests.site.invented_records import HOSTILE, hostile, invent_records, report, site_of, usual


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A site with a little of everything, and its pages."""
    data = usual(tmp_path_factory.mktemp("usual"))
    return data, build_pages(data)


def data_of(page):
    """Return the data that a page carries."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(text)


def unpack(column):
    """Return the texts of a column."""
    return [None if place < 0 else column["texts"][place] for place in column["at"]]


# --- What the pages carry


def test_every_run_of_the_board_is_on_the_leaderboard_with_its_rank_and_interval(site):
    data, pages = site
    runs = data_of(pages["index.html"])["runs"]
    shown = {}
    for place, scores in enumerate(runs["scores"]):
        identity = tuple(unpack(runs[name])[place] for name in ("dataset", "model", "task", "how", "config"))
        for label, score, rank, of, tied, *interval in scores:
            shown[*identity, runs["metrics"][label]] = score, rank, of, tied, interval
    expected = {}
    for board in data.board["boards"]:
        for entry in board["entries"]:
            run = data.board["runs"][entry["run"]]
            interval = run["intervals"].get(board["metric"], {})
            limits = [round(interval[end], 6) for end in ("low", "high")] if "low" in interval else []
            tied = sum(other["score"] == entry["score"] for other in board["entries"]) - 1
            identity = board["dataset"], run["model"], board["task"], board["variant"], board["config"]
            values = round(entry["score"], 6), entry["rank"], len(board["entries"]), tied, limits
            expected[*identity, board["label"]] = values
    assert shown == expected
    assert any(interval for *_, interval in shown.values())


def test_the_metric_that_ranks_a_task_comes_first(site):
    data, _ = site
    runs = runs_of_board(data.board)
    for task, scores in zip(unpack(runs["task"]), runs["scores"], strict=True):
        first = runs["metrics"][scores[0][0]]
        assert (
            first == {"classification": "F1", "detection": "mAP@0.50", "segmentation": "mIoU"}[task]
            or first == "F1"
        )


def test_the_comparison_carries_exactly_the_records_of_the_manifest_where_none_is_refused(tmp_path):
    pages = build_pages(site_of(tmp_path, *invent_records()))
    carried = data_of(pages["compare.html"])
    records = read_site_records(json.loads(global_text(read_source(tmp_path / "performance"))))
    assert list(
        zip(*(unpack(carried[name]) for name in ("model", "dataset", "task", "how", "platform")), strict=True)
    ) == [(one.model, one.dataset, one.task, one.variant, one.platform) for one in records]
    for family, scores in zip(FAMILIES, carried["scores"], strict=True):
        assert scores == [one.scores[family] for one in records]


def test_refused_records_and_scores_outside_their_range_are_not_compared(tmp_path):
    records, catalogue = invent_records(datasets=1, models=2)
    ((name, (first, second)),) = records.items()
    first |= {"task": "classification", "metrics": {"f1": 0.4}}
    refused = {**first, "device": 5, "metrics": {"f1": 0.99}}
    percent = {**first, "model": "percent", "metrics": {"f1": 41.2, "recall": 0.5}}
    data = site_of(
        tmp_path, {name: [first, refused, percent, {**second, "model": "other", "num_samples": "x"}]}, catalogue
    )
    carried = data_of(build_pages(data)["compare.html"])
    f1 = dict(zip(unpack(carried["model"]), carried["scores"][0], strict=True))
    assert f1 == {first["model"]: 0.4, "percent": None}


def test_scores_that_differ_in_the_last_digit_stay_different(tmp_path):
    records, catalogue = invent_records(datasets=1, models=2)
    ((name, (first, second)),) = records.items()
    for record, score in ((first, 0.1 + 0.2), (second, 0.3)):
        record |= {"task": "classification", "metrics": {"f1": score}}
    carried = data_of(build_pages(site_of(tmp_path, {name: [first, second]}, catalogue))["compare.html"])
    assert sorted(carried["scores"][0]) == [0.3, 0.1 + 0.2]


def test_refused_records_warnings_and_missing_datasets_are_all_listed(site):
    data, pages = site
    left_out = data_of(pages["left_out.html"])
    refused, accepted = data.run_records["refused"], data.run_records["accepted"]
    assert unpack(left_out["refused"]["why"]) == [one["reason"] for one in refused]
    assert left_out["refused"]["record"] == [one["position"] for one in refused]
    assert unpack(left_out["warnings"]["why"]) == [w["message"] for one in accepted for w in one["warnings"]]
    reasons = ["not between 0 and 1: f1 = 78.2", "none of its metrics is a score: loss"]
    assert sorted(unpack(left_out["unranked"]["why"])) == sorted(reasons)
    assert dict(zip(unpack(left_out["missing"]["name"]), unpack(left_out["missing"]["why"]), strict=True)) == {
        "never_run": "no report yet",
        "compression/never": "not evaluated yet: agml-assets compression evaluate never",
        "agents/soil/gone": "not evaluated yet",
    }
    entries = sum(len(table["why"]["at"]) for table in left_out.values())
    assert all("Left out (" in page for page in pages.values())
    assert entries >= 7


def test_notes_are_carried_whole(site):
    data, _ = site
    details = details_of_board(data.board, data.run_records)
    notes = json.loads(zlib.decompress(base64.b64decode(details["notes"])))
    of_records = {one["record"]["notes"] for one in data.run_records["accepted"]}
    assert set(notes) == of_records
    without = details_of_board(data.board, None)
    assert set(without["note"]) == {-1}


def test_notes_stay_with_their_run_when_the_file_has_changed_since(tmp_path):
    records, catalogue = invent_records(datasets=1, models=2)
    ((name, (first, second)),) = records.items()
    first["notes"], second["notes"] = "of the first", "of the second"
    before = site_of(tmp_path, {name: [first, second]}, catalogue)
    after = site_of(tmp_path, {name: [{**first, "model": "new", "notes": "new"}, first, second]}, catalogue)
    details = details_of_board(before.board, after.run_records)
    notes = json.loads(zlib.decompress(base64.b64decode(details["notes"])))
    models = [run["model"] for run in before.board["runs"]]
    place = unpack(runs_of_board(before.board)["model"])
    assert {model: notes[details["note"][place.index(model)]] for model in models} == {
        first["model"]: "of the first",
        second["model"]: "of the second",
    }


def catalogued(entries=(), reports=None, cards=None, runs=None):
    return catalogue_data([CatalogueEntry(name) for name in entries], reports or {}, cards or {}, runs or {})


def test_a_score_is_shown_with_its_interval_a_range_or_the_reason_why_not():
    reports = {
        "a": report(6.5, (6.1, 6.9)),
        "b": report(4.0, missing=("annotation",), low_high=(3.0, 5.0)),
        "c": {"metrics": {}},
    }
    data = catalogued("abcd", reports)
    reasons = data["reasons"]
    assert data["published"][:2] == [[6.5, 6.1, 6.9], [4, 6.1, 6.9]]
    assert data["calibrated"][:2] == [[5.5], [None, 3, 5]]
    assert data["axes"][1] == [4, 4, 4, None]
    assert reasons[data["published"][2]].startswith("Phase 1 is not completed.")
    assert "label_noise is missing." in reasons[data["calibrated"][2]]
    assert reasons[data["published"][3]] == "No report: its quality was not measured."


def test_whatever_is_not_in_the_catalogue_is_added_to_it():
    data = catalogued(["a"], {"b": {}}, {"c": "cards/c.html"}, {"d": 3})
    assert data["name"] == ["a", "b", "c", "d"]
    assert unpack(data["source"])[1:] == ["not in the catalogue"] * 3
    assert data["runs"] == [0, 0, 0, 3]


def test_a_part_of_a_collection_is_found_under_its_name_in_the_catalogue():
    data = catalogued(
        ["iNatAg/maize"], {"iNatAg__maize": report(5.0)}, {"iNatAg__maize": "cards/iNatAg__maize.html"}
    )
    assert data["name"] == ["iNatAg/maize"]
    assert data["published"][0][0] == 5
    assert unpack(data["card"]) == ["cards/iNatAg__maize.html"]


@pytest.mark.parametrize("odd", [None, 3, [], {"score": 3}, {"metrics": 3}, {"metrics": {"label_noise": "x"}}])
def test_a_report_of_any_shape_does_not_stop_the_page(odd):
    data = catalogued(["a"], {"a": odd})
    assert isinstance(data["published"][0], int)


# --- Columns


def test_columns_carry_each_text_once_and_nothing_for_none():
    assert texts(["b", None, "a", "b"]) == {"texts": ["b", "a"], "at": [0, -1, 1, 0]}
    assert lists([["x", "y"], [], ["y"]]) == {"texts": ["x", "y"], "at": [[0, 1], [], [1]]}


def test_numbers_are_short_and_finite():
    assert [number(x) for x in (1.0, 0.12345678, float("nan"), float("inf"), None, True, "3")] == [
        1, 0.123457, None, None, None, None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "is_link"),
    [
        ("https://doi.org/10.1/x", True),
        ("http://example.org", True),
        ("HTTPS://example.org", True),
        ("javascript:boom()", False),
        (" javascript:boom()", False),
        ("java\tscript:boom()", False),
        ("data:text/html,x", False),
        ("//example.org", False),
        ("https://", False),
        ("https://exa mple.org", False),
        ("http://[::1", False),
        ("/etc/passwd", False),
        (None, False),
        (7, False),
    ],
)
def test_only_web_addresses_become_links(text, is_link):
    assert (web_address(text) == text) is (is_link or text is None)
    assert (web_address(text) is not None) is is_link


def test_packed_texts_come_back():
    assert json.loads(zlib.decompress(base64.b64decode(packed(["ä", "</script>"])))) == ["ä", "</script>"]


# --- What the pages may do


def test_nothing_from_the_data_is_markup(tmp_path):
    for text in build_pages(hostile(tmp_path)).values():
        assert "<img" not in text
        assert "<script>boom" not in text
        assert "\u202e" not in text
        assert HOSTILE not in text
        assert "javascript:boom" not in text
        assert text.count("<script") == text.count("</script>") == 3


def test_scripts_run_by_their_hash_and_nothing_else_does(site):
    _, pages = site
    for text in pages.values():
        (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
        assert policy.startswith("default-src &#39;none&#39;; img-src data:; ")
        allowed = re.findall(r"sha256-([A-Za-z0-9+/=]+)", policy)
        scripts = re.findall(r"<script>(.*?)</script>", text, re.S)
        assert [base64.b64encode(sha256(s.encode()).digest()).decode() for s in scripts] == allowed
        assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", text)
        assert "fetch(" not in text and "innerHTML" not in text


def test_every_link_between_the_pages_resolves(site):
    data, pages = site
    trials = {f"trials_{task}.{agent}.html" for task, agent in data.agents.evaluations}
    assert set(pages) == {f"{name}.html" for name in PAGES} | trials
    for text in pages.values():
        named = set(re.findall(r"""["'`]([a-z_]+\.html)""", text))
        assert named <= set(pages)


def test_the_same_data_give_the_same_pages(tmp_path, site):
    data, pages = site
    assert build_pages(data) == pages
    records, catalogue = invent_records(datasets=4)
    one = build_pages(site_of(tmp_path / "one", records, catalogue))
    other = build_pages(site_of(tmp_path / "other", dict(reversed(records.items())), catalogue))
    assert one == other


def test_without_anything_the_pages_say_what_is_missing():
    pages = build_pages(SiteData(missing={"leaderboard/board.json": "not made yet"}))
    assert "The leaderboard has not been made yet." in pages["index.html"]
    assert "There are no results to compare yet." in pages["compare.html"]
    assert "There is no catalogue" in pages["datasets.html"]
    assert "Left out (1)" in pages["index.html"]
    assert unpack(data_of(pages["left_out.html"])["missing"]["name"]) == ["leaderboard/board.json"]


# --- The asset


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that publishes datasets and makes the pages."""
    monkeypatch.setenv("AGML_PERFORMANCE", str(tmp_path / "data" / "performance"))
    store = ArtifactStore(tmp_path / "results")

    def execute(*entries, finished=(), cards=()):
        registry = DatasetRegistry(tuple(entries))
        for entry in entries:
            dataset = DatasetWorkspace(entry, Settings(), store)
            if entry.key in finished:
                Making(dataset, RESULT).write({**report(7.0), "dataset": entry.name})
            if entry.key in cards:
                Making(dataset, CARD).write(f"<p>{entry.name}")
        definitions = dg.Definitions(
            assets=build_assets(), resources={"workspace": Workspace(registry, Settings(), store)}
        )
        job = definitions.resolve_implicit_global_asset_job_def()
        done = job.execute_in_process(asset_selection=[dg.AssetKey(["site", n]) for n in ("results", "pages")])
        (event,) = [e for e in done.get_asset_materialization_events() if e.asset_key.path[-1] == "pages"]
        facts = {k: v.value for k, v in event.step_materialization_data.materialization.metadata.items()}
        return store.root / "_platform" / "site" / "pages", facts

    return execute


def entry(key):
    return DatasetEntry(name=f"owner/{key}")


@pytest.mark.parametrize("n", [0, 1, 3])
def test_any_number_of_datasets_has_pages_and_those_without_a_report_are_named(run, n):
    keys = [f"d{i}" for i in range(3)]
    folder, facts = run(*map(entry, keys), finished=keys[:n], cards=keys[:n])
    catalogue = data_of((folder / "datasets.html").read_text())["catalogue"]
    assert catalogue["name"] == keys[:n]
    missing = data_of((folder / "left_out.html").read_text())["missing"]
    named = dict(zip(unpack(missing["name"]), unpack(missing["why"]), strict=True))
    assert {key: named[key] for key in keys[n:]} == dict.fromkeys(keys[n:], "no report yet")
    assert named["leaderboard/board.json"] == "not made yet; the job leaderboard makes it"
    assert facts["missing_datasets_count"] == len(named) == 3 - n + 5
    assert facts["cards_count"] == n


def test_links_to_cards_resolve_inside_the_folder(run):
    folder, _ = run(entry("beans"), entry("rice"), finished=("beans", "rice"), cards=("beans",))
    catalogue = data_of((folder / "datasets.html").read_text())["catalogue"]
    assert unpack(catalogue["card"]) == ["cards/beans.html", None]
    assert (folder / "cards" / "beans.html").read_text() == "<p>owner/beans"
    missing = data_of((folder / "left_out.html").read_text())["missing"]
    assert dict(zip(unpack(missing["name"]), unpack(missing["why"]), strict=True))["rice"] == "no card yet"


def test_a_card_that_is_gone_leaves_no_copy(run, tmp_path):
    folder, _ = run(entry("beans"), finished=("beans",), cards=("beans",))
    for file in (tmp_path / "results" / "beans" / "report").iterdir():
        file.unlink()
    run(entry("beans"))
    assert list((folder / "cards").iterdir()) == []


def test_a_second_run_changes_nothing(run):
    folder, _ = run(entry("beans"), finished=("beans",), cards=("beans",))
    before = {p: p.read_bytes() for p in folder.rglob("*.html")}
    run(entry("beans"))
    assert {p: p.read_bytes() for p in folder.rglob("*.html")} == before


def test_the_catalogue_beside_the_records_is_read(run, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "datasets.json").write_text(json.dumps([{"name": "maize", "num_images": "1,200"}]))
    folder, _ = run(entry("beans"))
    catalogue = data_of((folder / "datasets.html").read_text())["catalogue"]
    assert (catalogue["name"], catalogue["images"]) == (["maize"], [1200])


def test_totals_in_words_are_those_of_the_data(site):
    data, pages = site
    runs = data.board["runs"]
    models, datasets = ({run[name] for run in runs} for name in ("model", "dataset"))
    assert f"{len(runs)} runs of {len(models)} models on {len(datasets)} datasets" in pages["index.html"]
    counts = data.run_records["counts"]
    assert f"Made from {counts['accepted'] + counts['refused']} run records" in pages["index.html"]
