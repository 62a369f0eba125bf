"""The Croissant description is read by `mlcroissant`, tells what the report knows, and no more."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXEL_HASHES, SPLITS
from agml_assets.quality.summary import current_metrics, judge_dataset
from agml_assets.report.artifacts import CROISSANT, ISSUES
from agml_assets.report.croissant import build_croissant
from agml_assets.report.issues import SCHEMA, build_issues
from agml_assets.workspace import Making, making
from tests.report.measured import CLASSES, N, measure, open_dataset


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    dataset = open_dataset(tmp_path_factory.mktemp("measured"))
    measure(dataset)
    Making(dataset, ISSUES).write(build_issues(dataset, judge_dataset(dataset)))
    return dataset


@pytest.fixture(scope="module")
def described(measured):
    """The description as it is stored, beside the files that it names."""
    Making(measured, CROISSANT).write(build_croissant(measured, judge_dataset(measured)))
    return measured.store.path("beans", CROISSANT.file)


@pytest.fixture(scope="module")
def loaded(described):
    from mlcroissant import Dataset

    return Dataset(jsonld=str(described))


def load(dataset):
    """Write and load the description of what is in a store."""
    from mlcroissant import Dataset

    Making(dataset, CROISSANT).write(build_croissant(dataset, judge_dataset(dataset)))
    loaded = Dataset(jsonld=str(dataset.store.path(dataset.key, CROISSANT.file)))
    assert not loaded.metadata.ctx.issues.errors
    return loaded


def put(dataset, artifact, value):
    with making(dataset, artifact) as work:
        work.write(value, source_digest=dataset.sidecar(artifact).source_digest)


def texts(description, name):
    lines = description.get(f"rai:{name}", [])
    return lines if isinstance(lines, str) else " ".join(lines)


def test_it_is_valid_but_for_what_nobody_told_the_report(loaded):
    assert not loaded.metadata.ctx.issues.errors
    unknown = ("citeAs", "datePublished", "license", "version")
    warnings = sorted(loaded.metadata.ctx.issues.warnings)
    assert len(warnings) == len(unknown)
    for warning, name in zip(warnings, unknown, strict=True):
        assert name in warning


def test_it_conforms_to_croissant_1_1_and_its_responsible_ai_terms(described):
    assert json.loads(described.read_text())["conformsTo"] == [
        "http://mlcommons.org/croissant/1.1",
        "http://mlcommons.org/croissant/RAI/1.0",
    ]


def test_records_of_the_images_are_those_of_the_image_index(measured, loaded):
    records = list(loaded.records("images"))
    index = measured.read(IMAGE_INDEX)
    assert [record["images/source_row"] for record in records] == index["source_row"].to_list()
    assert [record["images/row"] for record in records] == index["row"].to_list()
    names = [record["images/class_name"] for record in records]
    assert [name and name.decode() for name in names] == index["class_name"].cast(pl.String).to_list()
    assert records[-1]["images/excluded_reason"] == b"no label"
    assert {record["images/meta.field"] for record in records} == {b"f0", b"f1"}


def test_records_of_the_issues_are_those_of_the_table(measured, loaded):
    records = list(loaded.records("issues"))
    table = measured.read(ISSUES)
    assert list(records[0]) == [f"issues/{name}" for name in SCHEMA]
    assert [record["issues/keep"] for record in records] == table["keep"].to_list()
    assert [record["issues/split"].decode() for record in records] == table["split"].to_list()
    scores = [record["issues/near_duplicate_score"] for record in records]
    assert scores == pytest.approx(table["near_duplicate_score"].to_list())


def test_classes_and_splits_are_listed_with_their_numbers_of_images(measured, loaded):
    classes = list(loaded.records("classes"))
    assert [record["classes/name"] for record in classes] == list(CLASSES)
    assert sum(record["classes/images"] for record in classes) == N
    splits = {record["splits/name"]: record["splits/images"] for record in loaded.records("splits")}
    assert splits == dict(measured.read(SPLITS)["hf"].value_counts().iter_rows())


def test_labels_and_splits_have_their_types(loaded):
    fields = {field.id: field for record_set in loaded.metadata.record_sets for field in record_set.fields}
    croissant = "http://mlcommons.org/croissant/"
    for name in ("images/class_name", "issues/given_label"):
        assert f"{croissant}Label" in map(str, fields[name].data_types)
        assert fields[name].references.uuid == "classes/name"
    assert f"{croissant}Split" in map(str, fields["issues/split"].data_types)


def test_files_are_named_with_size_and_checksum_of_what_lies_there(described):
    files = json.loads(described.read_text())["distribution"]
    assert [file["@id"] for file in files] == ["image_index.parquet", "issues.parquet"]
    for file in files:
        content = (described.parent / file["contentUrl"]).read_bytes()
        assert file["sha256"] == hashlib.sha256(content).hexdigest()
        assert file["contentSize"] == f"{len(content)} B"
        assert file["encodingFormat"] == "application/x-parquet"


def test_statistics_are_annotations_with_the_figures_of_the_report(measured, loaded):
    images = next(record_set for record_set in loaded.metadata.record_sets if record_set.id == "images")
    values = {annotation.name: annotation.value for annotation in images.annotations}
    metrics, _ = current_metrics(measured, judge_dataset(measured))
    assert (values["count"], values["usable_count"]) == (N + 1, N)
    assert values["exact_duplicate_rate"] == metrics["exact_duplicate"]["exact_duplicate_rate"] == 2 / N
    assert values["effective_images"] == N - 1
    assert values["suspected_label_rate"] == metrics["label_noise"]["leak_safe"]["estimated_noise_rate"]
    assert 0 <= values["score_low"] <= values["score_high"] <= 10
    # Six test images identify no leak-safe accuracy.
    assert "leak_safe_accuracy" not in values


def test_provenance_names_the_source_with_its_revision_and_the_software_with_its_settings(measured, described):
    description = json.loads(described.read_text())
    origin = description["prov:wasDerivedFrom"]
    assert origin["@id"] == "https://huggingface.co/datasets/owner/beans/tree/abc"
    activity = description["prov:wasGeneratedBy"]
    assert activity["prov:used"] == {"@id": origin["@id"]}
    assert activity["prov:wasAssociatedWith"]["name"] == "agml-assets"
    settings = {one["name"]: one["value"] for one in activity["additionalProperty"]}
    assert settings["near_dup_threshold"] == measured.settings.near_dup_threshold
    assert "output_dir" not in settings


def test_provenance_is_proper_linked_data(described):
    from rdflib import Graph, Namespace, URIRef

    prov = Namespace("http://www.w3.org/ns/prov#")
    graph = Graph().parse(data=described.read_text(), format="json-ld", publicID="https://example.org/")
    origin = URIRef("https://huggingface.co/datasets/owner/beans/tree/abc")
    (dataset,) = graph.subjects(prov.wasDerivedFrom, origin)
    activity = graph.value(dataset, prov.wasGeneratedBy)
    assert graph.value(activity, prov.used) == origin


def test_notes_state_the_figures_in_words(described):
    description = json.loads(described.read_text())
    assert texts(description, "dataCollectionMissingData").startswith("1 of 41 images")
    assert "2 of 40 images have a near-duplicate" in texts(description, "dataLimitations")
    assert "labels" in texts(description, "dataAnnotationAnalysis")
    assert "EXIF" in texts(description, "dataPreprocessingProtocol")


def test_no_licence_no_date_and_no_path_of_this_machine_is_claimed(measured, described):
    description = json.loads(described.read_text())
    assert not {"license", "datePublished", "creator"} & set(description)
    assert str(measured.store.root) not in described.read_text()


def test_the_same_store_gives_the_same_text(measured):
    verdicts = judge_dataset(measured)
    assert json.dumps(build_croissant(measured, verdicts)) == json.dumps(build_croissant(measured, verdicts))


def test_a_folder_is_named_without_its_place(tmp_path):
    (tmp_path / "images").mkdir()
    dataset = open_dataset(tmp_path / "results", path=tmp_path / "images", source="folder")
    measure(dataset, IMAGE_INDEX)
    load(dataset)
    text = dataset.store.path("beans", CROISSANT.file).read_text()
    assert str(tmp_path) not in text
    assert json.loads(text)["prov:wasDerivedFrom"]["@id"] == "urn:agml-assets:folder:beans"


def test_without_images_it_is_valid_and_describes_no_file(tmp_path):
    loaded = load(open_dataset(tmp_path))
    assert not loaded.metadata.distribution
    assert not loaded.metadata.record_sets


def test_with_an_image_index_alone_it_is_valid_and_has_its_records(tmp_path):
    dataset = open_dataset(tmp_path, phases=(1,))
    measure(dataset, IMAGE_INDEX)
    loaded = load(dataset)
    assert [record_set.id for record_set in loaded.metadata.record_sets] == ["classes", "images"]
    assert len(list(loaded.records("images"))) == N + 1


def test_what_is_not_current_is_not_told(measured):
    changed = replace(measured, settings=measured.settings.override({"near_dup_threshold": 0.9}, "a test"))
    description = build_croissant(changed, judge_dataset(changed))
    images = next(one for one in description["recordSet"] if one["@id"] == "images")
    names = {annotation["name"] for annotation in images["annotation"]}
    assert "near_duplicate_rate" not in names
    assert "exact_duplicate_rate" in names
    assert "near-duplicate" not in texts(description, "dataLimitations")


def test_strange_columns_and_class_names_stay_valid(tmp_path):
    dataset = open_dataset(tmp_path)
    measure(dataset, IMAGE_INDEX, PIXEL_HASHES)
    strange = ["<b>Fäule</b>", 'a "quoted"\nname', "http://example.org/x y"]
    index = dataset.read(IMAGE_INDEX).with_columns(
        pl.col("class_name").to_physical().replace_strict(range(3), strange, return_dtype=pl.Enum(strange)),
        pl.col("meta.field").alias("meta.a b"),
        pl.lit(1.5).alias("meta.a:b"),
        pl.lit(np.nan).alias("meta.größe"),
    )
    put(dataset, IMAGE_INDEX, index)
    loaded = load(dataset)
    record = next(iter(loaded.records("images")))
    assert record["images/class_name"].decode() == strange[0]
    assert (record["images/meta.a_b"], record["images/meta.a_b~2"]) == (b"f0", 1.5)
    assert [record["classes/name"] for record in loaded.records("classes")] == strange
