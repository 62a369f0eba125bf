"""The columns of the pages of agents and of their trials: what was evaluated, and no more of it."""

import re
import xml.etree.ElementTree as ET

import pytest

from agml_assets.agents.plots import PLOTS
from agml_assets.site.page_agents import agents_data, draw_plots, pairs_of, plot_files, trial_files, trials_data
from agml_assets.site.page_sources import read_agents, remove_old_trials
from agml_assets.site.pages import SiteData, build_pages
from agml_assets.store import PLATFORM, ArtifactStore, dump_json
from tests.agents.invented_trials import document
from tests.site import invented_agents as invented
from tests.site.test_pages import data_of, run, unpack  # noqa: F401


@pytest.fixture(scope="module")
def results():
    return invented.usual()


@pytest.fixture(scope="module")
def shown(results):
    return agents_data(results)


@pytest.fixture(scope="module")
def trials(results):
    return trials_data(results.evaluations["crop", "react"])["trials"]


def test_every_agent_stands_with_its_rate_interval_and_what_it_lost(shown):
    agents = shown["agents"]
    places = {key: place for place, key in enumerate(agents["key"])}
    assert set(places) == {"react", "starter", "lacking"}
    assert unpack(agents["name"])[places["react"]] == "ReAct with a model"
    value = agents["success"][places["react"]]
    # One of three on crop, one of three on soil.
    assert value[:3] == [places["react"], pytest.approx(1 / 3, abs=1e-6), 1] and len(value) == 5
    assert agents["successes"][places["react"]] == [2, 6]
    lost = [agents[name][places["react"]] for name in ("n", "failed", "timed_out", "no_submission")]
    assert lost == [7, 1, 1, 1]
    assert (agents["rank"][places["lacking"]], agents["success"][places["lacking"]]) == (None, None)


def test_a_cell_has_its_trials_page_rate_improvement_and_failures(shown, results):
    row, column = shown["tasks"]["key"].index("crop"), shown["agents"]["key"].index("react")
    cell = shown["cells"][row][column]
    assert cell["file"] == "trials_crop.react.html" == trial_files(results)["crop", "react"]
    assert cell["success"][:2] == [1, 3]
    assert cell["improvement"] == [0.51, 0.29, 2]
    assert (cell["failed"], cell["timed_out"], cell["above_but_unfinished"]) == (1, 1, 1)
    assert dict(cell["errors"]) == {"out of memory": 1, "connection": 1, "out of time": 1}
    assert shown["cells"][shown["tasks"]["key"].index("zero")][column]["success"] is None


def test_tasks_carry_baseline_direction_warnings_and_why_they_decide_nothing(shown):
    tasks = shown["tasks"]
    zero, crop, soil = (tasks["key"].index(key) for key in ("zero", "crop", "soil"))
    assert (tasks["baseline"][crop], tasks["measured"][crop], tasks["reference"][crop]) == (0.5, 3, 0.8)
    assert unpack(tasks["direction"])[soil] == "lower"
    assert [tasks["warnings"]["texts"][at] for at in tasks["warnings"]["at"][crop]] == ["Labels are public."]
    assert "about 0" in unpack(tasks["undecidable"])[zero] and not tasks["in_mean"][zero]
    assert "about 0" in unpack(tasks["why_not_in_mean"])[zero] and tasks["in_mean"][crop]


def test_a_page_says_that_a_task_is_exposed():
    why = "The labels lie among the public data."
    found = invented.results([document([0.9], exposed=why)])
    assert unpack(agents_data(found)["tasks"]["why_not_in_mean"]) == [why]
    assert trials_data(found.evaluations["crop", "react"])["warnings"] == [why]


def test_a_trial_carries_its_ending_errors_scores_and_trace(trials):
    first, second, third = trials
    assert (first["ending"], second["ending"], third["ending"]) == ("submitted", "failed", "ran out of time")
    assert first["scores"] == [[1, 0.52], [2, 0.52], [3, 0.7], [4, 0.61]]
    assert (first["best"], first["success"], third["success"], third["score_above"]) == (
        [0.7, 3],
        True,
        False,
        True,
    )
    assert first["errors"] == [["out of memory", False, 1]]
    assert second["errors"] == [["connection", True, 0]] and second["error"].startswith("Traceback\n")
    did = first["trace"][2]
    assert (did["action"], did["thought"], did["arguments"]) == (
        "edit_script", "A wider net.", "instruction: widen\nthe net",
    )  # fmt: skip
    assert first["trace"][1]["observation"] == "accuracy 0.52\ndone    fine"


def test_what_is_left_out_is_so_of_the_whole_site(results):
    pages = build_pages(SiteData(agents=results))
    missing = data_of(pages["left_out.html"])["missing"]
    assert unpack(missing["name"]) == ["agents/soil/gone"]
    assert all("Left out (1)" in page for page in pages.values())


def test_without_a_leaderboard_the_page_says_what_to_run():
    pages = build_pages(SiteData())
    assert "<code>agml-assets agents run --task digits --agent-type starter</code>" in pages["agents.html"]
    assert not [name for name in pages if name.startswith("trials_")]
    assert draw_plots(None) == plot_files(None) == {}


def test_the_pages_say_the_totals_in_words(results):
    assert "14 trials of 3 agents on 3 tasks" in build_pages(SiteData(agents=results))["agents.html"]


@pytest.mark.parametrize(
    "text", ["</script><script>boom()</script>", '"><img src=x onerror=boom()>', "\u202eevil"]
)
def test_hostile_texts_stay_text(text):
    results = invented.hostile(text)
    pages = build_pages(SiteData(agents=results))
    for name in ("agents.html", "trials_crop.one.html"):
        assert pages[name].count("<script") == 3
        assert "<img" not in pages[name] and "\u202e" not in pages[name] and text not in pages[name]


def test_a_key_that_is_no_file_name_has_no_page(results):
    made = {("../evil", "react"): {}, ("crop", "a/b"): {}, ("crop", "react"): {}}
    assert trial_files(type(results)(None, made)) == {("crop", "react"): "trials_crop.react.html"}


def test_a_long_trace_stays_small_enough_to_open():
    pages = build_pages(SiteData(agents=invented.large(2, 2)))
    assert len(pages["trials_task-0.agent-0.html"].encode()) < 2_000_000
    assert len(pages["trials_task-1.agent-1.html"].encode()) < 200_000


def test_the_plots_are_files_that_the_page_names(results, shown):
    files = draw_plots(results.leaderboard)
    assert set(files) == set(shown["plots"].values()) and set(shown["plots"]) == set(PLOTS)
    assert all(re.fullmatch(r"plots/agents_[a-z0-9_]+\.svg", file) for file in files)
    for text in list(files.values())[:2]:
        ET.fromstring(text)


def test_evaluations_are_read_of_every_pair_and_old_pages_go(results, tmp_path):
    store = ArtifactStore(tmp_path)
    assert read_agents(store, None) == type(results)(None, {})
    for (task, agent), one in results.evaluations.items():
        if task != "zero":
            store.write_text(store.path(PLATFORM, f"agents/{task}/{agent}/evaluation.json"), dump_json(one))
    read = read_agents(store, results.leaderboard)
    assert set(read.evaluations) == {pair for pair in pairs_of(results.leaderboard) if pair[0] != "zero"}
    assert read.evaluations["crop", "react"] == results.evaluations["crop", "react"]
    folder = store.path(PLATFORM, "site/pages")
    for name in ("trials_crop.react.html", "trials_old.react.html", "agents.html"):
        store.write_text(folder / name, "x")
    remove_old_trials(folder, read)
    assert sorted(path.name for path in folder.iterdir()) == ["agents.html", "trials_crop.react.html"]


def test_the_site_has_the_pages_and_plots_of_stored_agents(run, results, tmp_path):  # noqa: F811
    store = ArtifactStore(tmp_path / "results")
    store.write_text(store.path(PLATFORM, "agents/leaderboard.json"), dump_json(results.leaderboard))
    for (task, agent), one in results.evaluations.items():
        store.write_text(store.path(PLATFORM, f"agents/{task}/{agent}/evaluation.json"), dump_json(one))
    folder, facts = run()
    assert "14 trials of 3 agents on 3 tasks" in (folder / "agents.html").read_text()
    assert (folder / "trials_crop.react.html").exists()
    assert len(list((folder / "plots").glob("agents_*.svg"))) == facts["plots_count"] == len(PLOTS)
