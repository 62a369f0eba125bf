"""The dataset registry: what loads, what is refused and how, and what `--dataset` finds."""

import importlib.util
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agml_assets.errors import UserError
from agml_assets.registry.datasets import (
    SHIPPED,
    DatasetEntry,
    DatasetRegistry,
    default_key,
    load_registry,
    resolve_dataset,
)


@pytest.fixture(autouse=True)
def empty_place(tmp_path, monkeypatch):
    """A working directory of its own, and an environment that names no registry."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGML_REGISTRY", raising=False)
    return tmp_path


def load(text, file="datasets.yaml"):
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return load_registry(path)


def load_one(text):
    (entry,) = load(f"datasets:\n  - {{{text}}}\n").entries
    return entry


def refusal(action, *arguments, **keywords):
    with pytest.raises(UserError) as caught:
        action(*arguments, **keywords)
    return caught.value.message


# The schema of AgML's benchmarking pipeline

EXISTING = """
defaults:
  phases: "1 2 3"
  hf_config_name: ""
  label_col: "label"
  image_col: "image"
  compound_label_cols: []

datasets:
  - name: Project-AgML/bean_disease_uganda
  - name: Project-AgML/watermelon_disease_classification
    hf_config_name: raw
    phases: "1"
  - name: Project-AgML/AgriVision4_disease_classification
    compound_label_cols: [crop, label]
    phases: [1, 2]
  - name: Project-AgML/grapevine_disease_classification
    compound_label_cols: "label grape_variety"
    label_col: ""
  - name: iNatAg-mini/zea_mays
    time: "05:00:00"
    mem: 32G
"""


def test_a_file_of_the_existing_pipeline_loads_unchanged(caplog):
    with caplog.at_level(logging.WARNING):
        bean, watermelon, agrivision, grapevine, maize = load(EXISTING).entries
    assert (bean.key, bean.source, bean.phases) == ("bean_disease_uganda", "hf", (1, 2, 3))
    assert (bean.label_col, bean.image_col, bean.hf_config_name) == ("label", "image", None)
    assert (bean.compound_label_cols, bean.metadata_cols, bean.native_splits) == ((), None, "all")
    assert (watermelon.hf_config_name, watermelon.phases) == ("raw", (1,))
    assert (agrivision.compound_label_cols, agrivision.phases) == (("crop", "label"), (1, 2))
    assert (grapevine.compound_label_cols, grapevine.label_col) == (("label", "grape_variety"), None)
    assert (maize.key, maize.source) == ("iNatAg-mini__zea_mays", "agml")
    ignored = [record.getMessage() for record in caplog.records]
    assert len(ignored) == 2 and "`mem`" in ignored[0] and "`time`" in ignored[1]


def test_an_entry_overrides_the_defaults_and_those_the_built_in_ones():
    first, second, third = load(
        """
        defaults: {phases: "1", label_col: class, native_splits: train, metadata_cols: [site],
                   settings: {embed_model: efficientnet_lite0, cv_folds: 3}}
        datasets:
          - name: o/a
          - {name: o/b, phases: "3 2", label_col: kind, native_splits: all, metadata_cols: [],
             settings: {cv_folds: 4}}
          - {name: o/c, phases: , label_col: , native_splits: , metadata_cols: , settings: }
        """
    ).entries
    assert (first.phases, first.label_col, first.native_splits) == ((1,), "class", "train")
    assert (first.metadata_cols, first.settings) == (
        ("site",),
        {"embed_model": "efficientnet_lite0", "cv_folds": 3},
    )
    assert (second.phases, second.label_col, second.native_splits) == ((2, 3), "kind", "all")
    assert (second.metadata_cols, second.settings) == (
        (),
        {"embed_model": "efficientnet_lite0", "cv_folds": 4},
    )
    assert (third.phases, third.label_col, third.native_splits) == ((1, 2, 3), None, "all")
    assert (third.metadata_cols, third.settings) == (None, {})


@pytest.mark.parametrize("empty", ['""', "", "null", "~"])
def test_columns_that_are_not_named_are_found_by_type(empty):
    entry = load_one(f"name: o/a, label_col: {empty}, image_col: {empty}, hf_config_name: {empty}")
    assert (entry.label_col, entry.image_col, entry.hf_config_name) == (None, None, None)


def test_every_key_of_an_entry_is_read():
    entry = load_one(
        "name: owner/x, key: X, source: hf, revision: 'abc', hf_config_name: raw, label_col: l, image_col: i, "
        "compound_label_cols: [a, 'b c'], metadata_cols: 'site camera', native_splits: train, phases: 2, "
        "settings: {cv_folds: 3}, retired: true, num_images: 12"
    )
    assert entry == DatasetEntry(
        name="owner/x", key="X", source="hf", revision="abc", hf_config_name="raw", label_col="l", image_col="i",
        compound_label_cols=("a", "b c"), metadata_cols=("site", "camera"), native_splits="train", phases=(2,),
        settings={"cv_folds": 3}, retired=True, num_images=12,
    )  # fmt: skip


def test_anchors_and_merge_keys_of_yaml_work():
    registry = load(
        """
        datasets:
          - &base {name: o/a, label_col: kind, phases: "1"}
          - {<<: *base, name: o/b}
        """
    )
    assert [(e.name, e.label_col) for e in registry.entries] == [("o/a", "kind"), ("o/b", "kind")]


# Names, keys, sources, paths


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("owner/name", "name"),
        ("Project-AgML/Rice_2-x", "Rice_2-x"),
        ("owner/name-", "name-"),
        ("mnist", "mnist"),
        ("iNatAg/zea_mays", "iNatAg__zea_mays"),
        ("iNatAg-mini/zea_mays", "iNatAg-mini__zea_mays"),
        ("iNatAgFoo/zea_mays", "zea_mays"),
        ("owner/v1.0 (new)", "v1-0-new"),
        ("owner/_platform", "platform"),
        ("../..", None),
        ("données/blé tendre", "ble-tendre"),
        ("数据", None),
        ("a" * 300, "a" * 100),
    ],
)
def test_default_keys_are_the_last_part_of_the_name_and_always_safe(name, key):
    found = default_key(name)
    assert found == key or (key is None and found.startswith("dataset-"))
    assert DatasetEntry(name="o/x", key=found).key == found


@pytest.mark.parametrize("key", ["_x", "-x", "a/b", "a.b", "..", "a b", "é", "a" * 101, "a\n"])
def test_unsafe_keys_are_refused(key):
    message = refusal(load, f"datasets:\n  - name: o/x\n    key: {json.dumps(key)}\n")
    assert "entry 1 ('o/x')" in message and "`key`" in message


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("name: owner/x", "hf"),
        ("name: mnist", "hf"),
        ("name: iNatAg/zea_mays", "agml"),
        ("name: iNatAg-mini/zea_mays", "agml"),
        ("name: iNatAg/zea_mays, path: copy", "agml"),
        ("name: x, path: photos", "folder"),
        ("name: owner/x, path: saved, source: hf", "hf"),
        ("name: bean_disease_uganda, source: agml", "agml"),
        ("name: s, source: sample", "sample"),
    ],
)
def test_the_source_follows_from_name_and_path(text, source):
    assert load_one(text).source == source


def test_paths_start_at_the_registry_file_and_expand(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("DATA", "/data")
    registry = load(
        """
        datasets:
          - {name: a, path: photos/a}
          - {name: b, path: ../b}
          - {name: c, path: ~/c}
          - {name: d, path: "${DATA}/d"}
        """,
        "sub/datasets.yaml",
    )
    assert [str(entry.path) for entry in registry.entries] == [
        f"{tmp_path}/sub/photos/a",
        f"{tmp_path}/sub/../b",
        "/home/me/c",
        "/data/d",
    ]
    assert load_registry("sub/datasets.yaml") == registry


def test_a_path_with_an_unset_variable_is_refused(monkeypatch):
    monkeypatch.delenv("NOWHERE", raising=False)
    message = refusal(load_one, "name: a, path: $NOWHERE/a")
    assert "entry 1 ('a')" in message and "'NOWHERE'" in message


def test_the_registry_file_is_named_by_argument_then_by_environment(monkeypatch, tmp_path):
    load("datasets: [{name: o/argument}]", "argument.yaml")
    load("datasets: [{name: o/environment}]", "environment.yaml")
    assert load_registry().where == str(SHIPPED)
    monkeypatch.setenv("AGML_REGISTRY", "")
    assert load_registry().where == str(SHIPPED)
    monkeypatch.setenv("PLACE", str(tmp_path))
    monkeypatch.setenv("AGML_REGISTRY", "$PLACE/environment.yaml")
    assert load_registry().keys() == ["environment"]
    assert load_registry("argument.yaml").keys() == ["argument"]
    assert load_registry("argument.yaml").where == f"{tmp_path}/argument.yaml"


def test_keys_that_differ_in_case_alone_collide():
    message = refusal(load, "datasets: [{name: a/Rice}, {name: b/rice}, {name: c/rice, key: rice2}]")
    assert "'a/Rice'" in message and "'b/rice'" in message and "set `key`" in message
    assert "rice2" not in message


def test_the_key_of_a_retired_entry_stays_taken():
    assert "same key" in refusal(load, "datasets: [{name: a/x, retired: true}, {name: b/x}]")


def test_one_dataset_may_be_registered_twice_under_different_keys():
    registry = load("datasets: [{name: o/x, hf_config_name: raw}, {name: o/x, key: x2, hf_config_name: b}]")
    assert registry.keys() == ["x", "x2"]
    message = refusal(registry.get, "o/x")
    assert "x, x2" in message


# What is refused


def test_problems_of_a_file_are_reported_together():
    message = refusal(
        load,
        """
        default: {}
        defaults: {phases: "4", name: x, lable_col: y}
        datasets:
          - name: o/good
          - {name: o/a, lable_col: x, retired: maybe}
          - {key: nameless}
          - just text
          - {name: o/b, settings: {cv_fold: 3, split_seed: x}}
          - {name: o/good}
        """,
    )
    for part in (
        "datasets.yaml",
        "unknown key 'default'. Did you mean 'defaults'",
        "defaults: `phases`",
        "defaults: 'name'",
        "defaults: unknown key 'lable_col'. Did you mean 'label_col'",
        "entry 2 ('o/a'): unknown key 'lable_col'. Did you mean 'label_col'",
        "entry 2 ('o/a'): `retired`",
        "entry 3: has no `name`",
        "entry 4: must be a mapping",
        "entry 5 ('o/b'): `settings`: unknown key 'cv_fold'. Did you mean 'cv_folds'",
        "'split_seed'",
        "'o/good' and 'o/good' have the same key",
    ):
        assert part in message
    # The bad default is said once, not for every entry.
    assert message.count("`phases`") == 1


@pytest.mark.parametrize("key", ["config", "zzz", "5", "on"])
def test_an_unknown_key_always_comes_with_known_ones(key):
    message = refusal(load_one, f"name: o/x, {key}: 1")
    assert "unknown key" in message and "hf_config_name" in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("phases: '1,2'", "`phases`"),
        ("phases: '0'", "`phases`"),
        ("phases: 4", "`phases`"),
        ("phases: []", "`phases`"),
        ("phases: true", "`phases`"),
        ("phases: {1: 2}", "`phases`"),
        ("native_splits: test", "`native_splits`"),
        ("source: kaggle", "`source`"),
        ("source: folder", "`path`"),
        ("path: 5", "`path`"),
        ("revision: 1234567", "quotes"),
        ("revision: 2024-01-01", "quotes"),
        ("hf_config_name: no", "quotes"),
        ("label_col: [a]", "`label_col`"),
        ("compound_label_cols: [a, 1]", "`compound_label_cols`"),
        ("compound_label_cols: [a, a]", "only once"),
        ("compound_label_cols: {a: b}", "`compound_label_cols`"),
        ("metadata_cols: ['']", "`metadata_cols`"),
        ("retired: 'yes'", "`retired`"),
        ("num_images: -1", "`num_images`"),
        ("num_images: 1.5", "`num_images`"),
        ("num_images: true", "`num_images`"),
        ("settings: [a]", "`settings`"),
        ("settings: {1: 2}", "unknown key 1"),
        ("settings: {cv_folds: true}", "'cv_folds'"),
        ("settings: {output_dir: x}", "'output_dir'"),
        ("settings: {train_ratio: 0.9, val_ratio: 0.2}", "train_ratio + val_ratio"),
    ],
)
def test_a_bad_value_is_refused_by_entry_and_key(text, said):
    message = refusal(load_one, f"name: o/x, {text}")
    assert "datasets.yaml" in message and "entry 1 ('o/x')" in message and said in message


@pytest.mark.parametrize("name", ["", "''", "5", "[a]", "'  '", "no"])
def test_an_entry_without_a_proper_name_is_refused_by_its_position(name):
    assert "entry 2: " in refusal(load, f"datasets: [{{name: o/x}}, {{name: {name}}}]")


@pytest.mark.parametrize("name", ["iNatAg/", "iNatAg-mini/a/b"])
def test_a_collection_without_a_species_is_refused(name):
    assert f"'{name}'" in refusal(load_one, f"name: {name}")


def test_a_setting_of_one_dataset_may_need_the_settings_of_the_run():
    assert load_one("name: o/x, settings: {train_ratio: 0.9}").settings == {"train_ratio": 0.9}


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be a mapping"),
        ("just text", "must be a mapping"),
        ("[a, b]", "must be a mapping"),
        ("defaults: {}", "`datasets` must be a list"),
        ("datasets: {name: o/x}", "`datasets` must be a list"),
        ("datasets: []\ndefaults: [a]", "`defaults` must be a mapping"),
        ("datasets:\n  - name: o/x\n   bad: 1", "line 3"),
        ("datasets:\n\t- name: o/x", "line 2"),
        ("datasets: [", "line 1"),
        ("datasets: []\ndatasets: []", "line 2"),
        ("datasets:\n  - name: o/x\n    name: o/y", "line 3"),
        ("datasets: []\n---\ndatasets: []", "line 2"),
        ("datasets: *nothing", "line 1"),
        ("datasets: []\n? [a]\n: b", "line 2"),
        ("datasets: !!python/object/apply:os.system ['true']", "line 1"),
        ("datasets: !!python/name:os.system", "line 1"),
        ("datasets: [{name: o/x, revision: 2024-13-45}]", "month"),
        ("datasets: [{name: o/x, num_images: " + "9" * 5000 + "}]", "YAML"),
        ("datasets: " + "[" * 50_000, "YAML"),
        ('datasets: [{name: "o/\0"}]', "YAML"),
        ("datasets: &d [*d]", "entry 1: must be a mapping"),
        (BOMB + "datasets: [{name: o/x, phases: *i, path: *i, settings: {cv_folds: *i}}]", "'cv_folds'"),
        (BOMB + "datasets: [{name: *i}]", "entry 1"),
    ],
)
def test_hostile_yaml_is_refused_without_a_stack_trace(text, said):
    message = refusal(load, text)
    assert "datasets.yaml" in message and said in message
    assert len(message) < 5000


def test_text_that_is_not_utf8_is_refused():
    Path("bad.yaml").write_bytes(b"datasets: [{name: o/caf\xe9}]")
    assert "bad.yaml" in refusal(load_registry, "bad.yaml")


def test_a_file_that_is_absent_or_a_folder_is_refused(monkeypatch, tmp_path):
    assert "absent.yaml" in refusal(load_registry, "absent.yaml")
    monkeypatch.setenv("AGML_REGISTRY", "absent.yaml")
    message = refusal(load_registry)
    assert "absent.yaml" in message and "$AGML_REGISTRY" in message
    assert str(tmp_path) in refusal(load_registry, tmp_path)


# Looking datasets up


@pytest.fixture
def registry():
    return load(
        """
        datasets:
          - {name: o/small, num_images: 10}
          - {name: o/unknown_size}
          - {name: o/big, num_images: 1000}
          - {name: o/old, num_images: 5000, retired: true}
          - {name: o/none, num_images: 0}
          - {name: o/also_unknown, key: other}
          - {name: o/joined, num_images: 10, compound_label_cols: [crop, label], phases: "1"}
        """
    )


def test_keys_are_heaviest_first_then_unknown_sizes_in_file_order_without_retired_ones(registry):
    assert registry.keys() == ["big", "small", "joined", "none", "unknown_size", "other"]
    assert len(registry.entries) == 7


def test_an_empty_registry_has_no_keys():
    assert load("datasets: []").keys() == load("datasets:").keys() == []


def test_entries_are_found_by_key_and_by_name(registry):
    assert registry.get("other").name == registry.get("o/also_unknown").name == "o/also_unknown"


def test_an_unknown_dataset_is_refused_with_the_nearest_names(registry):
    assert "'small'" in refusal(registry.get, "smal")
    assert "'small'" in refusal(registry.get, "Small")
    assert "big, small" in refusal(registry.get, "zzzzzz")
    assert "none" in refusal(DatasetRegistry(()).get, "x")


def test_a_retired_dataset_says_so_and_is_not_suggested(registry):
    for text in ("old", "o/old"):
        message = refusal(registry.get, text)
        assert "retired" in message and "history" in message
    assert "old'" not in refusal(registry.get, "ol").partition("Did you mean")[2]


def test_an_entry_can_be_added_or_replaced(registry):
    more = registry.with_entry(DatasetEntry(name="p/new"))
    assert more.get("new").name == "p/new" and len(more.entries) == 8
    changed = registry.with_entry(DatasetEntry(name="o/small", phases=(1,)))
    assert changed.get("small").phases == (1,) and len(changed.entries) == 7
    assert registry.get("small").phases == (1, 2, 3)


def test_a_registered_dataset_takes_the_overrides_that_are_given(registry):
    entry = resolve_dataset("joined", registry, label_col=None, phases=(2, 1), metadata_cols=())
    assert (entry.compound_label_cols, entry.phases, entry.metadata_cols) == (("crop", "label"), (1, 2), ())
    assert resolve_dataset("o/joined", registry) == registry.get("joined")


def test_a_label_column_that_is_asked_for_takes_the_place_of_a_compound_label(registry):
    assert resolve_dataset("joined", registry, label_col="crop").compound_label_cols == ()
    both = resolve_dataset("joined", registry, label_col="crop", compound_label_cols=("a", "b"))
    assert both.compound_label_cols == ("a", "b")


def test_datasets_of_the_hub_and_of_agml_run_unregistered(registry):
    hub = resolve_dataset("someone/rice.leaves", registry, hf_config_name="raw", label_col="kind")
    assert (hub.key, hub.source, hub.hf_config_name, hub.label_col) == ("rice-leaves", "hf", "raw", "kind")
    assert resolve_dataset("iNatAg/zea_mays", registry).source == "agml"
    assert resolve_dataset("iNatAg-mini/zea_mays", registry).key == "iNatAg-mini__zea_mays"


@pytest.mark.parametrize("text", ["Rice leaves", "./Rice leaves", "$PLACE/Rice leaves", "x/../Rice leaves/"])
def test_an_existing_folder_runs_unregistered(text, registry, tmp_path, monkeypatch):
    monkeypatch.setenv("PLACE", str(tmp_path))
    Path("Rice leaves").mkdir()
    Path("x").mkdir()
    entry = resolve_dataset(text, registry)
    assert (entry.key, entry.source, entry.path) == ("Rice-leaves", "folder", tmp_path / "Rice leaves")


def test_a_link_to_a_folder_keeps_its_own_name(registry, tmp_path):
    Path("store-1234").mkdir()
    Path("rice").symlink_to("store-1234")
    assert resolve_dataset("rice", registry).key == "rice"


def test_a_folder_that_exists_comes_before_a_name_on_the_hub(registry):
    Path("data/rice").mkdir(parents=True)
    assert resolve_dataset("data/rice", registry).source == "folder"
    assert resolve_dataset("data/maize", registry).source == "hf"


def test_a_saved_dataset_of_the_hub_library_is_recognised(registry):
    for name, marker in (("one", "state.json"), ("several", "dataset_dict.json")):
        Path(name).mkdir()
        Path(name, marker).write_text("{}")
        assert resolve_dataset(name, registry).source == "hf"


def test_a_folder_of_parquet_files_is_one_of_the_hub_library_and_one_with_class_folders_is_not(registry):
    for file in ("flat/x.parquet", "hub/data/train.parquet", "mixed/index.parquet", "mixed/data/x.parquet"):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).touch()
    Path("mixed/rust").mkdir()
    Path("flat/.cache").mkdir()
    sources = {name: resolve_dataset(name, registry).source for name in ("flat", "hub", "mixed")}
    assert sources == {"flat": "hf", "hub": "hf", "mixed": "folder"}


def test_a_registered_key_comes_before_a_folder_of_that_name(registry):
    Path("small").mkdir()
    assert resolve_dataset("small", registry).name == "o/small"


def test_an_unregistered_dataset_never_takes_the_key_of_a_registered_one(registry):
    Path("Small").mkdir()
    message = refusal(resolve_dataset, "./Small", registry)
    assert "'o/small'" in message and "--dataset small" in message
    assert "'o/old'" in refusal(resolve_dataset, "someone/old", registry)


@pytest.mark.parametrize(
    "text",
    [
        "smal",
        "",
        " ",
        "./absent",
        "a/b/c",
        "iNatAg/",
        "https://huggingface.co/datasets/o/x",
        "x" * 5000,
        "a\0b",
    ],
)
def test_anything_else_is_refused_with_known_names(text, registry):
    message = refusal(resolve_dataset, text, registry)
    assert "neither registered" in message and "small" in message


def test_a_retired_dataset_is_not_run_by_its_name(registry):
    assert "retired" in refusal(resolve_dataset, "o/old", registry)


def test_a_bad_override_is_refused_with_dataset_and_key(registry):
    message = refusal(resolve_dataset, "small", registry, phases=(1, 7))
    assert "'small'" in message and "`phases`" in message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("label_col", "label"),
        ("image_col", "photo"),
        ("metadata_cols", ("field",)),
        ("compound_label_cols", ("crop", "label")),
    ],
)
def test_columns_of_a_folder_or_the_sample_are_refused(registry, field, value):
    Path("leaves").mkdir()
    for text, known in (("leaves", registry), ("sample", load_registry())):
        message = refusal(resolve_dataset, text, known, **{field: value})
        assert repr(text) in message and f"`{field}`" in message and "no columns" in message
    assert resolve_dataset("leaves", registry, metadata_cols=(), compound_label_cols=()).source == "folder"


def test_columns_of_a_registered_folder_are_refused_and_those_of_the_defaults_are_not():
    defaults = "defaults: {label_col: kind, image_col: image}\n"
    entry = "datasets: [{name: leaves, path: photos%s}]\n"
    assert load(defaults + entry % "").get("leaves").source == "folder"
    assert load(defaults + entry % ", label_col: kind, metadata_cols: []").get("leaves").source == "folder"
    message = refusal(load, defaults + entry % ", label_col: species, compound_label_cols: [a, b]")
    assert "'leaves'" in message and "`label_col`, `compound_label_cols`" in message and "no columns" in message
    load(defaults + "datasets: [{name: leaves, source: hf, path: photos, label_col: species}]\n")


def test_the_root_of_the_file_system_is_no_dataset(registry):
    assert "'/' is the root of the file system" in refusal(resolve_dataset, "/", registry)


def test_a_folder_whose_path_is_no_utf8_is_refused_in_words(registry, tmp_path):
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    (odd / "leaves").mkdir(parents=True)
    (tmp_path / "link").symlink_to(odd)
    for folder in (odd, odd / "leaves", tmp_path / "link"):
        message = refusal(resolve_dataset, str(folder), registry)
        assert "no UTF-8 text" in message and "Rename" in message
        message.encode()


# Digests


def test_the_source_digest_changes_with_what_is_read_and_with_nothing_else():
    entry = DatasetEntry(name="o/x")
    others = [
        {"name": "o/y", "key": "x"}, {"source": "agml"}, {"path": "/data"}, {"revision": "abc"},
        {"hf_config_name": "raw"}, {"label_col": "kind"}, {"image_col": "photo"},
        {"compound_label_cols": ["a", "b"]}, {"metadata_cols": []}, {"native_splits": "train"},
    ]  # fmt: skip
    digests = {DatasetEntry.model_validate({"name": "o/x", **other}).source_digest() for other in others}
    assert len(digests | {entry.source_digest()}) == len(others) + 1
    same = {"key": "z", "phases": "1", "settings": {"cv_folds": 3}, "retired": True, "num_images": 5}
    assert DatasetEntry.model_validate({"name": "o/x", **same}).source_digest() == entry.source_digest()


def test_an_entry_survives_json():
    entry = DatasetEntry.model_validate(
        {"name": "x", "path": "photos", "metadata_cols": ["a"], "compound_label_cols": "b c", "phases": "1 3"}
    )
    assert DatasetEntry.model_validate_json(entry.model_dump_json()) == entry


# The file that ships


def test_the_shipped_registry_loads_without_a_warning(caplog):
    registry = load_registry()
    assert not caplog.records
    assert registry.keys()[0] == "arabica_coffee_leaf_disease_classification"  # the largest published one


def test_the_sample_needs_no_network():
    entry = load_registry().get("sample")
    assert (entry.source, entry.phases) == ("sample", (1, 2, 3))
    assert entry.settings["embed_model"] == entry.settings["backbone"] == "efficientnet_lite0"


def test_compound_columns_are_those_that_agmls_experiments_state():
    stated = {
        "AgriVision4_disease_classification": ("crop", "label"),
        "grapevine_disease_classification": ("label", "grape_variety"),
        "FruitVision_quality_classification": ("label", "fruit"),
        "fresh_rotten_fruit_classification": ("label", "fruit_type"),
    }
    registry = load_registry()
    assert {key: registry.get(key).compound_label_cols for key in stated} == stated


def test_the_examples_of_inatag_are_datasets_of_agml_with_their_number_of_images():
    # Read beside the package: importing agml takes seconds.
    package = Path(importlib.util.find_spec("agml").submodule_search_locations[0])
    known = {}
    for collection in ("iNatAg", "iNatAg-mini"):
        known |= json.loads((package / "_assets" / f"{collection}_public_datasources.json").read_text())
    examples = {e.name: e.num_images for e in load_registry().entries if e.source == "agml"}
    assert {name.partition("/")[0] for name in examples} == {"iNatAg", "iNatAg-mini"}
    assert examples == {name: known[name]["n_images"] for name in examples}


def test_the_registry_loads_nothing_heavy():
    heavy = ("dagster", "torch", "datasets", "agml", "polars", "sklearn", "numpy", "PIL")
    code = (
        "import sys; from agml_assets.registry.datasets import load_registry; load_registry();"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
