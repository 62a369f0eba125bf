"""What a terminal shows of a finished benchmark."""

from agml_assets.report.artifacts import RESULT
from agml_assets.summary_table import describe_result
from agml_assets.workspace import Making
from tests.tiny import open_workspace


def test_exact_copies_are_counted_by_the_hash_that_is_right(copy_of_finished):
    bench = open_workspace(copy_of_finished).dataset("tiny")
    report = bench.read(RESULT)
    exact = report["metrics"]["exact_duplicate"]
    assert exact["exact_duplicate_count"] == exact["blake3"]["duplicate_count"] == 2
    exact["exact_duplicate_count"], exact["blake3"]["duplicate_count"] = 30, 40
    Making(bench, RESULT).write(report)
    shown = describe_result(bench, bench.store.path(bench.key, RESULT.file))
    (line,) = [line for line in shown.splitlines() if "exact copy" in line]
    assert line.split()[-1] == "40"


def test_a_figure_that_too_few_images_cannot_give_is_told_by_its_reason(copy_of_finished):
    bench = open_workspace(copy_of_finished).dataset("tiny")
    metrics = bench.read(RESULT)["metrics"]
    shown = describe_result(bench, bench.store.path(bench.key, RESULT.file)).splitlines()
    (labels,) = [line for line in shown if "labels that look wrong" in line]
    (copies,) = [line for line in shown if "accuracy added by copies" in line]
    assert metrics["label_noise"]["leak_safe"]["not_identifiable"] in labels
    assert metrics["leakage"]["leakage_inflation_reason"] in copies
