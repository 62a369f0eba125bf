"""The columns of the pages of models: every score of the report, published rows beside, nothing made up."""

import copy
import json

import pytest

from agml_assets.errors import UserError
from agml_assets.evaluation.published import results_text
from agml_assets.site.page_models import OWN, PUBLISHED, ModelResults, models_data, runs_data
from agml_assets.site.page_sources import read_models
from agml_assets.site.pages import SiteData, build_pages
from agml_assets.store import PLATFORM, ArtifactStore, dump_json
from tests.site import invented_models
from tests.site.test_pages import data_of, unpack


@pytest.fixture(scope="module")
def results():
    return invented_models.results(names={"beans": "beans"})


@pytest.fixture(scope="module")
def data(results):
    return models_data(results, ["beans"], {"beans": "cards/beans.html"})


def by_name(data, source):
    """Return the scores of one source: subject -> id of the model -> the rest of the score."""
    models = data["models"]
    return {
        key: {models["id"][model]: rest for model, *rest in scores if unpack(models["source"])[model] == source}
        for key, scores in zip(data["subjects"]["key"], data["scores"], strict=True)
    }


def test_every_score_of_the_report_is_carried_with_its_interval_and_tie(results, data):
    carried = by_name(data, OWN)
    for key, subject in results.report["subjects"].items():
        expected = {
            one["model"]: [
                round(one["score"], 6),
                int(one["tied"]),
                round(one["interval"]["low"], 6),
                round(one["interval"]["high"], 6),
            ]
            for one in subject["standings"]
        }
        assert carried[key] == expected
    assert len(carried["plantnet"]) == 11 < len(carried["beluga"])


def test_published_rows_are_marked_and_have_no_interval(results, data):
    carried = by_name(data, PUBLISHED)
    for one in results.published.results:
        score, _, reason = carried[one.task][one.model]
        assert score == round(one.mean, 6)
        assert data["reasons"][reason] == "the published file's limits are of another kind"
    ties = {key: {model for model, (_, tied, *_) in of.items() if tied} for key, of in carried.items()}
    for best in results.published.bests:
        assert ties[best.task] == {best.best, *best.ties}


def test_published_rows_find_our_model_by_the_registered_name(results, data):
    models = data["models"]
    own = unpack(models["own"])
    joined = 0
    for place, name in enumerate(models["id"]):
        if unpack(models["source"])[place] == PUBLISHED and name in results.registered:
            entry = results.registered[name]
            assert (own[place], unpack(models["name"])[place]) == (entry.key, entry.display_name)
            joined += 1
    assert joined == 10
    lab = models["id"].index("lab/own")
    assert (own[lab], unpack(models["name"])[lab], models["resolution"][lab]) == (None, "Own of a lab", 448)


def test_means_are_those_of_the_report_and_only_of_models_that_lack_nothing(results, data):
    report, keys = results.report, data["subjects"]["key"]
    means = {frozenset(keys[place] for place in mean["subjects"]): mean["scores"] for mean in data["means"]}
    for expected in (report["mean_over_tasks"], report["mean_over_datasets"], report["by_kingdom"]["plant"]):
        subjects = frozenset((*expected[0]["tasks"], *expected[0]["missing"]))
        of = {data["models"]["id"][one[0]]: one[1:] for one in means[subjects]}
        assert of == {
            one["model"]: [
                round(one["score"], 6),
                int(one["standing"]["tied"]),
                *(round(one["interval"][end], 6) for end in ("low", "high")),
            ]
            for one in expected
            if not one["missing"]
        }
    assert sum(bool(one["missing"]) for one in report["mean_over_tasks"]) == 1


def test_columns_come_as_prior_work_tasks_and_datasets(data):
    assert data["subjects"]["key"] == [
        "imagenet1k", "newt", "beluga", "herbarium19", "iwildcam", "plantnet", "beans", "rice",
    ]  # fmt: skip
    assert unpack(data["subjects"]["kind"]) == ["prior work"] * 2 + ["task"] * 4 + ["dataset"] * 2
    assert unpack(data["subjects"]["dataset"])[-2:] == ["beans", None]
    assert unpack(data["subjects"]["card"])[-2:] == ["cards/beans.html", None]
    assert data["subjects"]["groups"][4] == invented_models.N / 2


def test_what_a_run_was_is_found_by_model_and_subject(results, data):
    runs = runs_data(results, data)
    for scores, places in zip(data["scores"], runs["places"], strict=True):
        for (model, score, *_), place in zip(scores, places, strict=True):
            if unpack(data["models"]["source"])[model] == PUBLISHED:
                assert place == -1
            else:
                assert runs["others"][place][0][1] == score
    assert unpack(runs["probe"])[0] == "RidgeProbe (alpha 1.0)"


def test_how_well_imagenet_predicts_is_carried(results, data):
    first = data["agreement"][0]
    expected = results.report["imagenet"]["aggregate"]
    assert first["models"] == expected["n_models"] == 11
    assert first["r2"] == [
        round(expected["r2"], 6),
        *(expected["intervals"]["r2"][end] for end in ("low", "high")),
    ]


def test_without_a_report_the_page_says_what_to_run():
    pages = build_pages(SiteData())
    for command in ("agml-assets evaluate DATASET --model MODEL", "model_report", "site_files"):
        assert f"<code>{command}</code>" in pages["models.html"]
    assert data_of(pages["models.html"])["scores"] == []


def test_a_model_that_has_no_mean_and_a_report_without_tasks_are_shown(results):
    report = copy.deepcopy(results.report)
    for key in ("mean_over_tasks", "mean_over_datasets"):
        report[key] = []
    report |= {"by_kingdom": {}, "by_modality": {}, "imagenet": None}
    data = models_data(ModelResults(report=report), [], {})
    assert (data["means"], data["agreement"]) == ([], [])
    assert len(data["scores"]) == 8


# --- Where it comes from


@pytest.fixture
def store(tmp_path):
    return ArtifactStore(tmp_path / "results")


def test_published_results_are_read_from_the_file_that_is_named(store, results, tmp_path, monkeypatch):
    assert read_models(store, None, {}).published is None
    (tmp_path / "results.json").write_text(results_text(results.published), "utf-8")
    monkeypatch.setenv("AGML_BIOBENCH_RESULTS", str(tmp_path / "results.json"))
    found = read_models(store, None, {})
    assert found.published == results.published
    assert found.registered["ViT-B-32/openai"].key == "clip-vit-base-patch32"


def test_a_file_that_is_named_and_is_not_there_is_told(store, tmp_path, monkeypatch):
    monkeypatch.setenv("AGML_BIOBENCH_RESULTS", str(tmp_path / "nothing.json"))
    with pytest.raises(UserError, match=r"nothing\.json cannot be read"):
        read_models(store, None, {})


def test_scores_that_are_gone_since_the_report_was_made_are_missed_by_nobody(store, results):
    store.write_text(store.path(PLATFORM, "evaluation/report.json"), dump_json(results.report))
    kept = store.path("beans", "evaluation/clip-vit-base-patch32/scores.json")
    store.write_text(kept, json.dumps({"n_train": 7}))
    found = read_models(store, results.report, {})
    data = models_data(found, [], {})
    train = runs_data(found, data)["train"]
    assert sorted(one for one in train if one is not None) == [7]
