"""The site's comparison where the published records are silent: ties, repeated runs, filters."""

from agml_assets.leaderboard.comparison import Filters, compare, detail, model_options, read_site_records

TASK = "image_classification"


def entry(model, dataset, f1, **fields):
    return {
        "model": model,
        "dataset": dataset,
        "percentiles": {"f1": 50},
        "scores": {"f1": f1},
        "crop_types": ["bean"],
        "machine_learning_task": TASK,
        "variant": "zero-shot",
        "platform": "cuda",
        **fields,
    }


def ids(*models):
    return [f"{model}|||{TASK}" for model in models]


def ranks(records, *models, filters=Filters()):  # noqa: B008 - frozen
    return {one.model: one.average_rank for one in compare(records, ids(*models), filters)["f1"].models}


def test_equal_scores_share_the_better_rank_and_the_next_is_skipped():
    records = read_site_records([entry(m, "d", s) for m, s in (("a", 0.9), ("b", 0.5), ("c", 0.5), ("e", 0.1))])
    assert ranks(records, "a", "b", "c", "e") == {"a": 1, "b": 2, "c": 2, "e": 4}


def test_equal_averages_stand_in_the_order_of_selection():
    records = read_site_records(
        [entry(m, d, s) for m, d, s in (("a", "x", 1), ("b", "x", 0), ("a", "y", 0), ("b", "y", 1))]
    )
    assert list(ranks(records, "b", "a")) == ["b", "a"]
    assert list(ranks(records, "a", "b")) == ["a", "b"]


def test_one_narrow_model_shrinks_the_comparison_of_all():
    records = read_site_records(
        [entry("a", "x", 1), entry("a", "y", 0), entry("b", "x", 0), entry("b", "y", 1), entry("c", "x", 0)]
    )
    assert compare(records, ids("a", "b"))["f1"].datasets == ("x", "y")
    assert compare(records, ids("a", "b", "c"))["f1"].datasets == ("x",)
    assert ranks(records, "a", "b", "c") == {"a": 1, "b": 2, "c": 2}


def test_zero_shot_and_fine_tuned_are_pooled_unless_filtered():
    records = read_site_records(
        [
            entry("a", "x", 0.2),
            entry("a", "x", 0.9, variant="fine-tuned"),
            entry("b", "x", 0.5, variant="fine-tuned"),
            entry("b", "x", 0.3),
        ]
    )
    assert ranks(records, "a", "b") == {"a": 1, "b": 2}
    assert ranks(records, "a", "b", filters=Filters(tuned=False)) == {"b": 1, "a": 2}
    assert ranks(records, "a", "b", filters=Filters(tuned=True)) == {"a": 1, "b": 2}


def test_every_filter_that_is_set_must_hold():
    records = read_site_records(
        [entry("a", "x", 1), entry("a", "y", 1, platform="cpu", optimized=True, crop_types=None)]
    )

    def left(**filters):
        return sum(option.datasets for option in model_options(records, Filters(**filters)))

    assert left() == 2
    assert (
        left(platforms=("cpu", "tpu"))
        == left(optimized=True)
        == left(optimized=False)
        == left(datasets=("y",))
        == 1
    )
    assert left(crop_types=("bean",)) == 1
    assert left(crop_types=("bean",), platforms=("cpu",)) == left(tasks=("other",)) == 0


def test_entries_without_a_percentile_are_not_taken_and_numbers_may_be_texts():
    raws = [
        entry("a", "x", "0.5"),
        entry("b", "x", 1, percentiles={}),
        entry(" ", "x", 1),
        None,
        entry("c", "", 1),
    ]
    (only,) = read_site_records(raws)
    assert only.scores["f1"] == 0.5
    assert read_site_records({"not": "a list"}) == []


def test_details_show_the_run_that_won_with_its_own_ranks():
    records = read_site_records(
        [
            entry("a", "x", 0.9, scores={"f1": 0.9, "recall": 0.1}, notes="won"),
            entry("a", "x", 0.5, scores={"f1": 0.5, "recall": 0.8}, variant="fine-tuned"),
            entry("b", "x", 0.7, scores={"f1": 0.7, "recall": 0.4}),
        ]
    )
    selected = ids("a", "b")
    (only,) = detail(records, selected[0], selected, "f1", compare(records, selected))
    assert only.record.notes == "won"
    assert only.ranks == {"f1": 1, "map": None, "precision": None, "recall": 2}


def test_what_was_never_run_has_no_rank():
    records = read_site_records([entry("a", "x", 1)])
    assert compare(records, ids("a", "nobody"))["f1"].models == ()
    assert compare(records, ids("a"))["f1"].models == ()
