"""`results.json` keeps what others published, line by line, and replaces what we measured again."""

import json

import pytest

from agml_assets.errors import UserError
from agml_assets.registry.datasets import DatasetEntry, DatasetRegistry
from agml_assets.report.artifacts import RESULT
from agml_assets.settings import Settings
from agml_assets.site.results import build_site_results, dump_results, merge_results, site_names
from agml_assets.store import ArtifactStore
from agml_assets.workspace import DatasetWorkspace, Making


def registry_of(*names, **others):
    """Return a registry of these names; `others` are key and name."""
    entries = [DatasetEntry(name=name) for name in names]
    entries += [DatasetEntry(name=name, key=key) for key, name in others.items()]
    return DatasetRegistry(tuple(entries))


def publish(store, entry, **facts):
    report = {"dataset": entry.name, "date": "2026-08-13", "metrics": {}, **facts}
    Making(DatasetWorkspace(entry, Settings(), store), RESULT).write(report)
    return report


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_any_number_of_datasets_has_results_and_names_those_without(tmp_path, n):
    registry = registry_of(*(f"owner/d{i}" for i in range(5)))
    store = ArtifactStore(tmp_path)
    for entry in registry.entries[:n]:
        publish(store, entry)
    site = build_site_results(registry, store)
    assert list(site.results) == [f"d{i}" for i in range(n)]
    assert site.missing == tuple(f"d{i}" for i in range(n, 5))


def test_a_report_is_published_whole(tmp_path):
    registry, store = registry_of("owner/beans"), ArtifactStore(tmp_path)
    report = publish(store, registry.entries[0], score={"overall": 7.25}, phases_completed=[1])
    assert build_site_results(registry, store).results == {"beans": report}


def test_other_datasets_are_kept_and_ours_is_replaced(tmp_path):
    registry, store = registry_of("owner/beans"), ArtifactStore(tmp_path)
    new = publish(store, registry.entries[0], date="2026-09-01")
    theirs = {"dataset": "other/rice", "date": "2026-01-01"}
    old = {"beans": {"dataset": "owner/beans", "date": "2025-01-01"}, "rice": theirs}
    assert build_site_results(registry, store, old).results == {"beans": new, "rice": theirs}
    assert old["beans"]["date"] == "2025-01-01"


def test_merging_again_changes_nothing():
    reports = {"b": {"dataset": "o/b"}, "A": {"dataset": "o/A"}}
    once = merge_results({"c": {"dataset": "o/c"}}, reports)
    assert dump_results(merge_results(once, reports)) == dump_results(once)
    assert list(once) == ["A", "b", "c"]


def test_the_dataset_of_another_owner_is_not_overwritten():
    with pytest.raises(UserError, match="'other/beans' under 'beans'.*'owner/beans'"):
        merge_results({"beans": {"dataset": "other/beans"}}, {"beans": {"dataset": "owner/beans"}})


def test_a_dataset_that_was_measured_from_a_folder_is_the_same_one():
    ours = {"beans": {"dataset": "beans"}}
    assert merge_results({"beans": {"dataset": "owner/beans"}}, ours) == ours


def test_names_are_short_and_no_two_alike():
    registry = registry_of("o/beans", "iNatAg/maize", "iNatAg-mini/maize", "o/leaf.v2", b1="p/rice", b2="q/Rice")
    assert site_names(registry) == {
        "beans": "beans",
        "iNatAg__maize": "iNatAg__maize",
        "iNatAg-mini__maize": "iNatAg-mini__maize",
        "leaf-v2": "leaf.v2",
        "b1": "b1",
        "b2": "b2",
    }


def test_a_name_that_is_another_datasets_key_is_not_used():
    registry = registry_of(x="o/x", x2="p/x", c="q/x2")
    names = site_names(registry)
    assert names == {"x": "x", "x2": "x2", "c": "c"}


def test_a_name_that_is_no_file_name_gives_way_to_the_key():
    assert site_names(registry_of(leaves="Blätter; rm *")) == {"leaves": "leaves"}


def test_retired_datasets_keep_their_report_and_are_not_missed(tmp_path):
    kept, gone = DatasetEntry(name="o/kept", retired=True), DatasetEntry(name="o/gone", retired=True)
    store = ArtifactStore(tmp_path)
    publish(store, kept)
    site = build_site_results(DatasetRegistry((kept, gone)), store)
    assert (list(site.results), site.missing) == (["kept"], ())


def test_an_unfinished_report_counts_as_missing(tmp_path):
    registry, store = registry_of("o/beans"), ArtifactStore(tmp_path)
    path = store.path("beans", "result.json")
    path.parent.mkdir(parents=True)
    path.write_text('{"dataset":')
    assert build_site_results(registry, store).missing == ("beans",)


def test_text_is_strict_json():
    value = {"a": {"empty": {}, "none": [], "mixed": [1, "é", None, True], "nested": [[1], [], {"k": [0.5]}]}}
    assert json.loads(dump_results(value)) == value
    assert dump_results({}) == "{}\n"
    with pytest.raises(ValueError, match="Out of range"):
        dump_results({"a": {"x": [float("nan")]}})
