"""Labels of every type, names that mislead, and splits that give none."""

import datetime as dt
import json
from decimal import Decimal

import numpy as np
import pytest
from datasets import ClassLabel, DatasetDict, Features, List, Value

from agml_assets.dataset.sources import open_source
from agml_assets.errors import UserError
from agml_assets.quality.class_imbalance import class_imbalance
from agml_assets.quality.class_names import SLIP, SPELLING, SUFFIX, alike_class_names
from agml_assets.registry.datasets import DatasetEntry
from agml_assets.report.card import build_card, find_fixes
from agml_assets.settings import Settings
from tests.dataset.test_sources_hf import imagefolder, labels, offline, png, saved, source, table  # noqa: F401
from tests.hostile.faked import Faked, unit_vectors
from tests.report.cards import invent_card
from tests.tiny import run_in_process

# --- every type -----------------------------------------------------------------------------------

NAN = float("nan")


@pytest.mark.parametrize(
    ("feature", "given", "names", "expected"),
    [
        (Value("int8"), [7, -1, None, 0, 7], ("0", "7"), [1, None, None, 0, 1]),
        (Value("uint64"), [2**62, 1], ("1", str(2**62)), [1, 0]),
        (Value("float32"), [2.0, NAN, None, 10.0], ("2", "10"), [0, None, None, 1]),
        (Value("bool"), [True, None, False], ("False", "True"), [1, None, 0]),
        (Value("large_string"), ["b", "", None, "a"], ("a", "b"), [1, None, None, 0]),
        (Value("string"), ["NaN", "None", "-1"], ("-1", "NaN", "None"), [1, 2, 0]),
        (ClassLabel(names=["a", "never", "b", "nor this"]), [2, 0, -1, None], None, [2, 0, None, None]),
    ],
    ids=["integers", "large integers", "floats", "booleans", "text", "text that looks like nothing", "holes"],
)
def test_labels_of_this_type_become_classes(tmp_path, feature, given, names, expected):
    path = saved(table(given, feature), tmp_path / "d")
    assert source(path, label_col="label").info().class_names == (names or tuple(feature.names))
    assert labels(path, label_col="label") == expected


@pytest.mark.parametrize(
    ("feature", "given"),
    [
        (Value("binary"), [b"rust", b"blight"]),
        (Value("timestamp[s]"), [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)]),
        (Value("date32"), [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]),
        (Value("decimal128(5, 2)"), [Decimal("1.00"), Decimal("2.00")]),
        (Value("float64"), [0.25, 0.5]),
        (List(Value("string")), [["rust"], ["rust", "blight"]]),
        (List(ClassLabel(names=["a", "b"])), [[0], [0, 1]]),
        ({"name": Value("string")}, [{"name": "rust"}, {"name": "blight"}]),
    ],
    ids=["bytes", "times", "dates", "decimals", "fractions", "lists", "lists of classes", "records"],
)
def test_what_is_no_class_is_refused_with_column_and_remedy(tmp_path, feature, given):
    path = saved(table(given, feature), tmp_path / "d")
    with pytest.raises(UserError) as refused:
        source(path, label_col="label")
    said = refused.value.message
    assert "'leaves'" in said
    assert "'label'" in said
    assert "text, integer" in said.lower().replace("integers", "integer")


def test_a_class_that_is_declared_twice_is_refused(tmp_path):
    import pyarrow.parquet as pq

    features = json.dumps({"info": {"features": _declared_twice()}}).encode()
    table([0, 1]).to_parquet(str(tmp_path / "d.parquet"))
    stored = pq.read_table(tmp_path / "d.parquet").replace_schema_metadata({b"huggingface": features})
    pq.write_table(stored, tmp_path / "d.parquet")
    with pytest.raises(UserError, match="cannot be loaded.*unique"):
        source(tmp_path / "d.parquet")


def _declared_twice():
    return {
        "image": {"_type": "Image"},
        "label": {"names": ["crane", "crane"], "_type": "ClassLabel"},
    }


# --- no labels ------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [-1, -100])
def test_a_test_split_without_labels_is_left_out_counted_and_said(tmp_path, missing):
    feature = ClassLabel(names=["blight", "rust"])
    hidden = table([0] * 8, Value("int64")).map(lambda row: {"label": missing})
    hidden = hidden.cast(Features({**hidden.features, "label": Value("int64")}))
    hidden._info.features["label"] = hidden.info.features["label"] = feature
    data = DatasetDict({"train": table([0, 1] * 8, feature), "test": hidden})
    path = saved(data, tmp_path / "images")
    (tmp_path / "datasets.yaml").write_text(f"datasets:\n  - {{name: tiny, source: hf, path: {path}}}\n")
    assert run_in_process(tmp_path, job="structural_quality", embedders=None).success
    value = json.loads((tmp_path / "results" / "tiny" / "result.json").read_text())
    assert value["reproducibility"]["source_images"] == 24
    assert value["reproducibility"]["num_images"] == 16
    assert value["metrics"]["class_imbalance"]["total_images"] == 16
    page = (tmp_path / "results" / "tiny" / "report" / "card.html").read_text()
    assert "8 more in the source are unreadable or without label" in page


# --- split names ----------------------------------------------------------------------------------


def test_the_name_of_a_file_moves_it_into_no_split(tmp_path):
    names = [f"rust/{word}_{i}.png" for i, word in enumerate(("train", "test", "val", "leaf"))]
    folder = imagefolder(tmp_path / "d", *names, "blight/test.png", "blight/training set 1.png")
    read = open_source(DatasetEntry(name="d", source="folder", path=folder))
    assert read.info().native_splits == ()
    assert len([*read.examples()]) == 6


def test_files_that_a_library_sorts_by_the_words_in_their_names_are_all_read(tmp_path):
    names = [f"{kind}/{word}_{i}.png" for kind in ("rust", "blight") for i, word in enumerate(("train", "test"))]
    folder = imagefolder(tmp_path / "d", *names)
    read = source(folder)
    assert sorted(example.file for example in read.examples()) == sorted(names)
    assert sorted(read.info().class_names) == ["blight", "rust"]


def test_classes_called_like_splits_stand_in_report_and_card():
    classes = ("Training", "rust", "test ")
    labels = np.arange(30) % 3
    faked = Faked(labels, classes, unit_vectors(30, 8))
    value = _imbalance(faked)
    assert value["classes_called_like_splits"] == ["Training", "test "]
    (fix,) = [fix for fix in find_fixes(invent_card(classes=classes)) if "called like splits" in fix.said]
    assert fix.number == "2 classes"
    assert not fix.severe


def _imbalance(faked):
    from agml_assets.dataset.splits import make_splits

    splits, _ = make_splits(faked.labels, [None] * len(faked.labels), Settings())
    return class_imbalance(image_index=faked._index(), splits=splits, settings=Settings())


# --- names of classes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["Rust", "rust"], SPELLING),
        (["leaf_spot", "Leaf spot", "leaf-spot "], SPELLING),
        (["caf\u00e9", "cafe\u0301"], SPELLING),
        (["\ufb01g", "fig"], SPELLING),
        (["healthy", "heatlhy"], SLIP),
        (["healthy", "healty"], SLIP),
        (["apple scab", "appel scab"], SLIP),
        (["crane", "cranes"], SLIP),
        (["Lactuca serriola L.", "Lactuca serriola"], SUFFIX),
        (["leaf spot (2019)", "leaf spot"], SUFFIX),
    ],
)
def test_names_that_may_mean_one_class_are_found(names, reason):
    others = ["something else", "entirely"]
    expected = {"groups": 1, "classes": len(names)}
    found = alike_class_names([*others, *names])
    assert {key: found[key] for key in expected} == expected
    assert found["examples"] == [{"size": len(names), "classes": names, "reason": reason}]


@pytest.mark.parametrize(
    "names",
    [
        ["Apple 6", "Apple 7", "Apple 17"],
        ["class_a", "class_b", "class_c"],
        ["rice", "mice", "dice"],
        ["Tomato___Early_blight", "Tomato___Late_blight"],
        ["leaf", "leaf spot", "leaf spot severe"],
        ["Carex flava", "Carex flacca"],
        [str(i) for i in range(100)],
        ["", " ", "-", "+"],
        ["only one"],
        [],
    ],
)
def test_names_that_differ_for_a_reason_are_not(names):
    assert alike_class_names(names) == {"groups": 0, "classes": 0, "examples": []}


def test_alike_names_stand_in_report_and_card():
    classes = ("Rust", "rust", "healthy", "blight")
    labels = np.arange(40) % 4
    assert _imbalance(Faked(labels, classes, unit_vectors(40, 8)))["alike_class_names"]["groups"] == 1
    card = invent_card(classes=classes)
    (fix,) = [fix for fix in find_fixes(card) if "almost alike" in fix.said]
    assert "\u201cRust\u201d and \u201crust\u201d" in fix.said
    assert "Perhaps one class: Rust, rust, the same but for case" in build_card(card)


def test_few_empty_classes_are_a_fault_and_many_forbid_to_publish():
    def severity(n_empty):
        card = invent_card(classes=tuple(f"{chr(97 + i)}{i}" for i in range(20)))
        metrics = card.result["metrics"]
        metrics["class_imbalance"] |= {"empty_classes": [f"x{i}" for i in range(n_empty)]}
        fixes = [fix for fix in find_fixes(card) if "without a training image" in fix.said]
        return [fix.severe for fix in fixes]

    assert severity(0) == []
    assert severity(1) == [False]
    assert severity(3) == [True]


def test_class_names_of_three_hundred_letters_and_strange_ones_arrive_unchanged(tmp_path):
    names = ["a" * 300, "b\nb", "\u202ecba", "\U0001f33f\u200d\U0001f9eb", "<b>&amp;</b>", " ", "\x00\x07"]
    path = saved(table([*range(len(names))], ClassLabel(names=names)), tmp_path / "d")
    assert source(path).info().class_names == tuple(names)
    assert labels(path) == [*range(len(names))]
