"""Very many and very few: images, classes, names, pairs, datasets."""

import json
import subprocess
import sys
import textwrap
import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from dagster import AssetKey

from agml_assets import memory
from agml_assets.definitions import build_defs
from agml_assets.errors import UserError
from agml_assets.quality.class_names import alike_class_names
from agml_assets.quality.clusters import cosine_silhouettes
from agml_assets.registry.datasets import load_registry
from agml_assets.report.card import MAX_BYTES, build_card
from agml_assets.training.out_of_fold import out_of_fold, stratified_folds
from tests.hostile.faked import Faked, unit_vectors
from tests.report.cards import invent_card


def species(k):
    return tuple(f"Genus species {i:05}" for i in range(k))


def report_of(dataset):
    return json.loads(dataset.store.path(dataset.key, "result.json").read_text())


def size_of(dataset, file):
    return dataset.store.path(dataset.key, file).stat().st_size


# --- few images -----------------------------------------------------------------------------------

FEW = [(1, 1), (2, 1), (2, 2), (3, 2), (4, 2), (5, 2), (5, 5)]


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize(("n", "k"), FEW)
def test_a_handful_of_images_has_a_whole_report(tmp_path, n, k, alike):
    vectors, pixels = (unit_vectors(n, 8), None)
    if alike:
        vectors, pixels = np.repeat(unit_vectors(1, 8), n, axis=0), np.zeros(n, np.int64)
    dataset = Faked(np.arange(n) % k, species(k), vectors, pixels).report(tmp_path)
    value = report_of(dataset)
    assert value["phases_completed"] == [1, 2, 3]
    assert value["breaches"] == []
    for metric in value["metrics"].values():
        assert not metric.get("skipped") or metric["reason"]
    for file in ("report/card.html", "report/croissant.json", "report/issues.parquet"):
        assert size_of(dataset, file) > 0
    near = value["metrics"]["near_duplicate"]
    assert (near["near_duplicate_count"], near["effective_images"]) == (
        (n if n > 1 else 0, 1) if alike else (0, n)
    )
    if k == 1 or n == k or alike:
        assert value["metrics"]["feature_separability"]["skipped"], "nothing to compare is no perfect separation"


def test_without_two_images_of_a_class_no_label_is_judged_and_none_is_called_right():
    from agml_assets.quality.label_noise import label_noise
    from agml_assets.settings import Settings

    labels = np.arange(4)
    faked = Faked(labels, species(4), unit_vectors(4, 8))
    given = out_of_fold(faked.vectors, labels, stratified_folds(labels, 5), 4)
    value = label_noise(
        image_index=faked._index(),
        labels=labels,
        out_of_fold=given,
        out_of_fold_grouped=given,
        duplicate_groups=faked._hashes(),
        noise_calibration={"skipped": True, "reason": "Too few."},
        settings=Settings(),
    )
    assert value == {"skipped": True, "reason": "No label can be judged: no class has images in two folds."}


# --- many classes ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_thousand_classes_have_a_report_of_sane_size(tmp_path):
    n, k = 20_000, 10_000
    faked = Faked(np.arange(n) % k, species(k), unit_vectors(n, 16), calibrate=False)
    dataset = faked.report(tmp_path, phases=(1, 2))
    value = report_of(dataset)
    assert value["phases_completed"] == [1, 2]
    assert value["reproducibility"]["num_classes"] == k
    assert size_of(dataset, "result.json") < 10_000_000
    assert size_of(dataset, "report/croissant.json") < 5_000_000
    assert size_of(dataset, "report/card.html") <= MAX_BYTES


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_thousands_of_classes_go_through_training_metrics_too(tmp_path):
    n, k = 6_000, 3_000
    faked = Faked(np.arange(n) % k, species(k), unit_vectors(n, 16), calibrate=False)
    dataset = faked.report(tmp_path)
    value = report_of(dataset)
    assert value["phases_completed"] == [1, 2, 3]
    assert value["metrics"]["class_confusability"]["confusion_matrix"] is None
    assert size_of(dataset, "result.json") < 10_000_000
    assert size_of(dataset, "report/card.html") <= MAX_BYTES


def test_probabilities_that_do_not_fit_into_memory_are_refused_in_words(monkeypatch):
    n, k = 20, 10_000
    monkeypatch.setattr(memory, "free_memory", lambda: 1_000_000_000)
    labels = np.arange(n)
    with pytest.raises(
        UserError, match=r"20 images in 10000 classes need about 1\.6 GB of memory, where 1\.0 GB"
    ) as e:
        out_of_fold(unit_vectors(n, 4), labels, labels % 5, k)
    assert "phases: [1, 2]" in e.value.message


def test_free_memory_is_that_of_the_machine_or_of_the_job_whichever_is_less(tmp_path, monkeypatch):
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (groups / "job" / "step").mkdir(parents=True)
    monkeypatch.setattr(memory, "_PROC", proc)
    monkeypatch.setattr(memory, "_CGROUPS", groups)
    assert memory.free_memory() is None
    (proc / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
    assert memory.free_memory() == 8000 * 1024
    (proc / "self" / "cgroup").write_text("0::/job/step\n")
    (groups / "job" / "step" / "memory.max").write_text("max\n")
    (groups / "job" / "step" / "memory.current").write_text("70000\n")
    assert memory.free_memory() == 8000 * 1024
    (groups / "job" / "memory.max").write_text("100000\n")
    (groups / "job" / "memory.current").write_text("70000\n")
    (groups / "job" / "memory.stat").write_text("anon 60000\ninactive_file 9000\n")
    assert memory.free_memory() == 39_000


# --- many and long names --------------------------------------------------------------------------


@pytest.mark.parametrize("sign", ["<", pytest.param("\N{HERB}", marks=pytest.mark.slow)])
def test_a_card_of_ten_thousand_classes_of_three_hundred_letters_keeps_to_its_size(sign):
    card = invent_card()
    names = [f"{i:05} " + sign * 294 for i in range(10_000)]
    metrics = dict(card.result["metrics"])
    metrics["class_imbalance"] = metrics["class_imbalance"] | {
        "class_totals": dict.fromkeys(names, 1),
        "counts": dict.fromkeys(names, 1),
        "n_declared_classes": len(names),
    }
    points = [
        {"x": float(i), "y": 0.0, "label": name, "split": "train", "index": i} for i, name in enumerate(names)
    ]
    page = build_card(replace(card, result={**card.result, "metrics": metrics}, points=points))
    assert len(page.encode()) <= MAX_BYTES
    assert "the table lists the others" in page


def test_what_makes_a_page_too_large_is_left_out_and_said(monkeypatch):
    card = invent_card()
    monkeypatch.setattr("agml_assets.report.card.MAX_BYTES", 1)
    page = build_card(card)
    assert "No map: the names of its classes would make this page too large." in page
    assert "No picture: none is stored, or the page is full." in page


def test_alike_names_among_ten_thousand_are_found_in_seconds():
    rng = np.random.default_rng(0)
    words = ["".join(map(chr, rng.integers(97, 123, 9))) for _ in range(10_000)]
    names = [f"{words[i]} {words[-i - 1]} {i}" for i in range(9_998)]
    names += [names[17].upper(), f"{words[5][:-1]} {words[-6]} 5"]
    started = time.monotonic()
    found = alike_class_names(names)
    assert time.monotonic() - started < 30
    assert [group["classes"] for group in found["examples"]] == [[names[5], names[-1]], [names[17], names[-2]]]


# --- many images and pairs ------------------------------------------------------------------------


def test_silhouettes_of_many_images_hold_no_table_of_pairs():
    n, k = 20_000, 10
    labels, vectors = np.arange(n) % k, unit_vectors(n, 16)
    tracemalloc.start()
    cosine_silhouettes(vectors, labels, k)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * n / 10, "a tenth of a byte for each pair"


_SEARCH = """
    import json, re, resource, sys, time
    from pathlib import Path
    import numpy as np
    from agml_assets.embeddings.duplicate_groups import duplicate_groups
    from agml_assets.embeddings.neighbors import find_neighbors
    n, groups, d, spread = 58_000, int(sys.argv[1]), 64, float(sys.argv[2])
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(groups, d))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    member = np.arange(n) % groups
    vectors = (centres[member] + spread * rng.normal(size=(n, d)) / d**0.5).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
    find_neighbors(vectors[:2000], threshold=0.98, max_pairs=1000)  # libraries are loaded
    before, started = peak(), time.monotonic()
    found = find_neighbors(vectors, threshold=0.98, max_pairs=10_000_000)
    frame = duplicate_groups(np.arange(n), found.near_group)
    print(json.dumps({
        "pairs": found.n_pairs, "stored": len(found.pair_rows), "seconds": time.monotonic() - started,
        "grown": peak() - before, "groups": frame["joined"].n_unique(),
        "right": bool((found.near_group == member).all()),
        "sorted": bool((np.diff(found.pair_rows[:, 0]) >= 0).all()),
        "result": sum(a.nbytes for a in (found.ids, found.cosines, found.pair_rows, found.pair_cosines)),
    }))
"""


def search(groups, spread):
    command = [sys.executable, "-c", textwrap.dedent(_SEARCH), str(groups), str(spread)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_1_7_billion_near_duplicate_pairs_are_counted_grouped_and_never_all_stored():
    found = search(groups=1, spread=0.05)
    assert found["pairs"] == 58_000 * 57_999 // 2 == 1_681_971_000
    assert found["stored"] == 10_000_000
    assert found["groups"] == 1
    assert found["right"] and found["sorted"]
    assert found["grown"] < found["result"] + 1_500_000_000, f"{found['grown'] / 1e9:.1f} GB"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_58_000_images_in_groups_of_18_have_exactly_their_pairs():
    # 3,222 groups: 4 are left over and join the first four.
    found = search(groups=3222, spread=0.05)
    assert found["pairs"] == found["stored"] == 3218 * 18 * 17 // 2 + 4 * 19 * 18 // 2
    assert found["groups"] == 3222
    assert found["right"] and found["sorted"]


# --- many datasets --------------------------------------------------------------------------------


def test_partitions_are_datasets_and_a_thousand_of_them_load_at_once(tmp_path):
    file = tmp_path / "datasets.yaml"
    lines = "".join(f"  - name: set_{i:04}\n    path: {tmp_path}\n" for i in range(1000))
    file.write_text(f"datasets:\n{lines}")
    registry = load_registry(file)
    started = time.monotonic()
    definitions = build_defs(registry=registry)
    assert time.monotonic() - started < 20
    asset = definitions.resolve_asset_graph().get(AssetKey(["dataset", "image_index"]))
    assert len(asset.partitions_def.get_partition_keys()) == 1000
