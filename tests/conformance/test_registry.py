"""Every dataset with a published report is registered, with the columns and size that the report shows."""

import json

import pytest

from agml_assets.registry.datasets import load_registry


@pytest.fixture(scope="module")
def reports(conformance):
    return json.loads((conformance / "agml_site/results.json").read_text())


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AGML_REGISTRY", raising=False)
        return load_registry()


def test_every_published_dataset_is_registered_under_its_published_key(reports, registry):
    assert len(reports) == 27
    for key, report in reports.items():
        entry = registry.get(key)
        assert (entry.key, entry.name, entry.source) == (key, report["dataset"], "hf")
        assert list(entry.phases) == report["phases_completed"]


def test_compound_labels_have_one_column_for_every_part_of_the_published_class_names(reports, registry):
    compound = set()
    for key, report in reports.items():
        columns = registry.get(key).compound_label_cols
        names = report["metrics"]["class_imbalance"]["counts"]
        if columns:
            compound.add(key)
            assert {len(name.split(", ")) for name in names} == {len(columns)}
        else:
            assert not any(", " in name for name in names)
    assert compound == {
        "AgriVision4_disease_classification",
        "banana_grade_variety_classification",
        "banana_guava_quality_classification",
        "bean_cowpea_leaf_disease_classification",
    }


def test_compound_columns_are_those_that_the_reports_list_as_metadata(reports, registry):
    # The published pipeline lists the components of a compound label as metadata: it names them so.
    for key, report in reports.items():
        columns = registry.get(key).compound_label_cols
        if columns:
            assert set(columns) == set(report["metrics"]["metadata_coverage"]["metadata_columns"])


def test_compound_columns_stand_in_the_order_of_the_parts(reports, registry):
    for key, report in reports.items():
        columns = registry.get(key).compound_label_cols
        coverage = report["metrics"]["metadata_coverage"].get("coverage", {})
        # A component that was text is listed by its values: one a class, the part at its place.
        for place, column in enumerate(columns):
            for name, values in coverage[column].items():
                (value,) = values
                assert value.isdigit() or value == name.split(", ")[place]


def test_sizes_are_those_of_the_catalogue_and_at_least_the_published_ones(reports, registry, conformance):
    catalogue = {
        item["name"]: item["num_images"]
        for item in json.loads((conformance / "agml_site/hf_datasets.json").read_text())
    }
    published = {k: r["metrics"]["exact_duplicate"]["total_images"] for k, r in reports.items()}
    for entry in registry.entries:
        if entry.name.startswith("Project-AgML/"):
            assert entry.num_images == (catalogue.get(entry.key) or published[entry.key])
            assert entry.num_images >= published.get(entry.key, 0)
