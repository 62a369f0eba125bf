"""The leaderboard in the graph: what a run makes of a folder of records, and what it says of it."""

import json

import dagster as dg
import pytest

from agml_assets.leaderboard.assets import build_assets, external_keys
from agml_assets.registry.datasets import DatasetRegistry
from agml_assets.settings import Settings
from agml_assets.store import ArtifactStore
from agml_assets.workspace import Workspace
from jobs.leaderboard_jobs import leaderboard_job
from tests.leaderboard.records import record, scored, write


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder of run records that `$AGML_PERFORMANCE` names."""
    monkeypatch.setenv("AGML_PERFORMANCE", str(tmp_path / "performance"))
    (tmp_path / "performance").mkdir()
    return tmp_path / "performance"


@pytest.fixture
def run(tmp_path):
    """Run the job; return its result and a reader of the files that it made."""
    store = ArtifactStore(tmp_path / "results")

    def execute(**options):
        workspace = Workspace(DatasetRegistry(()), Settings(), store)
        definitions = dg.Definitions(
            assets=build_assets(), jobs=[leaderboard_job()], resources={"workspace": workspace}
        )
        return definitions.resolve_job_def("leaderboard").execute_in_process(**options)

    return execute, lambda name: store.root / "_platform" / "leaderboard" / f"{name}.json"


def checks_of(result):
    return {one.check_name: one for one in result.get_asset_check_evaluations()}


def metadata_of(result, name):
    (event,) = (
        e.step_materialization_data.materialization
        for e in result.get_asset_materialization_events()
        if e.asset_key == dg.AssetKey(["leaderboard", name])
    )
    return {key: value.value for key, value in event.metadata.items()}, event.tags


def test_a_run_makes_four_files(folder, run):
    execute, made = run
    write(folder, "beans", [scored("a", 0.5), scored("b", 0.7)])
    result = execute()
    assert result.success
    assert made("index").read_text() == '[\n  "beans"\n]'
    assert [one["model"] for one in json.loads(made("global").read_text())] == ["b", "a"]
    assert len(json.loads(made("board").read_text())["runs"]) == 2
    assert json.loads(made("run_records").read_text())["counts"] == {
        "accepted": 2,
        "with_warnings": 0,
        "refused": 0,
    }
    assert all(check.passed for check in checks_of(result).values())
    assert metadata_of(result, "run_records")[0]["accepted_count"] == 2.0


def test_a_new_file_is_picked_up_and_a_second_run_changes_nothing(folder, run):
    execute, made = run
    names = ("index", "global", "board", "run_records")
    write(folder, "beans", [scored("a", 0.5)])
    execute()
    write(folder, "peas", [scored("a", 0.5)])
    first = execute()
    content = {name: made(name).read_bytes() for name in names}
    second = execute()
    assert json.loads(content["index"]) == ["beans", "peas"]
    assert {name: made(name).read_bytes() for name in names} == content
    for name in names:
        assert (
            metadata_of(first, name)[1]["dagster/data_version"]
            == metadata_of(second, name)[1]["dagster/data_version"]
        )


def test_a_folder_without_records_gives_empty_files(folder, run):
    execute, made = run
    assert execute().success
    assert made("index").read_text() == made("global").read_text() == "[]"


def test_refused_records_and_warnings_are_listed_without_stopping_anything(folder, run):
    execute, made = run
    write(folder, "beans", [scored("a", 0.5), {"model": "b"}, record(prompt="which?")])
    (folder / "peas.json").write_text("[")
    result = execute()
    assert result.success
    refused = checks_of(result)["every_record_is_accepted"]
    assert not refused.passed
    assert refused.severity == dg.AssetCheckSeverity.WARN
    listed = refused.metadata["refused"].value
    assert "beans.json, record 2 | 'task' is required" in listed
    assert "peas.json | it is not valid JSON" in listed
    odd = checks_of(result)["no_record_has_a_warning"]
    assert "unknown_field" in odd.metadata["warnings"].value
    assert len(json.loads(made("run_records").read_text())["refused"]) == 2
    assert json.loads(made("index").read_text()) == ["beans"]


def test_a_missing_folder_is_said_in_words(folder, run):
    folder.rmdir()
    result = run[0](raise_on_error=False)
    assert not result.success
    (failed,) = (event.step_failure_data for event in result.all_events if event.is_step_failure)
    assert "There is no folder of run records" in failed.user_failure_data.description


def test_names_that_dagster_cannot_tell_apart_get_different_keys():
    keys = external_keys(["a-b", "a_b", "a.b", "c"])
    assert keys["c"] == "c"
    assert len({key.replace("-", "_") for key in keys.values()}) == 4


def test_every_file_of_records_is_an_external_asset(folder):
    for name in ("beans", "Strawberry-DS_x", ".odd näme"):
        write(folder, name, [])
    write(folder, "index", [])
    external = {asset.key.to_user_string() for asset in build_assets() if isinstance(asset, dg.AssetSpec)}
    assert external == {"run_records/beans", "run_records/Strawberry-DS_x", "run_records/_odd_n_me"}
    definitions = dg.Definitions(assets=build_assets(), resources={"workspace": None})
    graph = definitions.resolve_asset_graph()
    upstream = graph.get(dg.AssetKey(["leaderboard", "run_records"])).parent_keys
    assert {key.to_user_string() for key in upstream} == external
