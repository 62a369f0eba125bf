"""`agml-assets compression`, typed as people do: what it says of good and of bad files."""

import json

import numpy as np
import polars as pl
import pytest

from agml_assets.cli import main

N = 60
IDS = [f"{place:03}" for place in range(N)]
RUN = ("compression", "run", "--annotation_path", "labels", "--submission_file", "m.csv", "--output_dir", "out")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Give a folder with a submission, one task and their registry, in which commands are typed."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(N, 5))
    (tmp_path / "labels").mkdir()
    height = vectors @ rng.normal(size=5)
    pl.DataFrame({"id": IDS, "label": height}).write_csv(tmp_path / "labels/height__regression.csv")
    frame = pl.DataFrame(vectors, schema=list("01234"))
    pl.DataFrame({"id": IDS}).hstack(frame).write_csv(tmp_path / "m.csv")
    register(tmp_path)
    (tmp_path / "config.yaml").write_text(
        "k_folds: 2\nbatch_size: 16\nepochs: 1\nlearning_rate: 1e-3\nenable_plots: false\n"
        "update_leaderboard: true\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGML_SUBMISSIONS", str(tmp_path / "submissions.yaml"))
    monkeypatch.setenv("AGML_RESULTS", str(tmp_path / "results"))
    return tmp_path


def register(folder, more="", file="m.csv"):
    (folder / "submissions.yaml").write_text(
        f"submissions:\n  - {{key: m, phase: p, file: {file}, tasks: labels{more}}}\n"
    )


@pytest.fixture
def evaluate(folder, capsys, caplog):
    """Return a function that types the command and returns its status, what it prints, and what it logs."""

    def run():
        status = main(["compression", "evaluate", "m"])
        return status, capsys.readouterr().out, caplog.text

    return run


def test_everything_that_is_left_out_is_printed(folder, evaluate):
    labels = folder / "labels"
    pl.DataFrame({"id": IDS, "label": [1.0] * N}).write_csv(labels / "flat__regression.csv")
    crops = pl.DataFrame({"id": [*IDS, "absent"], "label": ["maize"] * 30 + ["wheat"] * 29 + ["rye"] * 2})
    crops.write_csv(labels / "crops__classification.csv")
    status, out, err = evaluate()
    assert status == 0
    assert "of 2 tasks" in out
    assert "'flat' has no score: All targets are equal" in err
    assert "1 labelled sample without an embedding: absent" in err
    assert "Class 'rye' has 1 examples" in err
    assert "60 of 60 labelled samples" not in err


def test_without_a_single_score_the_command_says_so_and_why(folder, evaluate):
    pl.DataFrame({"id": IDS, "label": [1.0] * N}).write_csv(folder / "labels/height__regression.csv")
    status, out, err = evaluate()
    assert status == 0
    assert "no task has a score" in out
    assert "All targets are equal" in err


def test_of_many_rare_classes_a_few_are_named_and_the_others_counted(folder, evaluate):
    pl.DataFrame({"id": IDS, "label": [f"c{i}" for i in range(N)]}).write_csv(folder / "labels/c__cls.csv")
    assert evaluate()[0] == 0
    left_out = json.loads((folder / "results/_platform/compression/m/summary.json").read_text())["left_out"]
    assert left_out["c"].count("Class") == 5
    assert "So are 55 examples of 55 further classes." in left_out["c"]


def test_a_registry_without_submissions_is_said(folder, capsys):
    (folder / "submissions.yaml").write_text("submissions: []\n")
    assert main(["compression", "evaluate", "--all"]) == 1
    assert "No submission is registered" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["exclude", "ids"])
def test_a_list_of_ids_that_is_no_utf8_is_named(folder, evaluate, key):
    (folder / "list.txt").write_bytes("café\n".encode("latin-1"))
    np.save(folder / "m.npy", np.zeros((N, 2)))
    register(folder, f", {key}: list.txt", file="m.npy" if key == "ids" else "m.csv")
    status, _, err = evaluate()
    assert status == 1
    assert "list.txt: it is no UTF-8 text" in err


def test_codes_cannot_be_learnt_from_one_embedding(folder, evaluate):
    lines = (folder / "m.csv").read_text().splitlines()
    (folder / "m.csv").write_text("\n".join(lines[:2]))
    register(folder, ", compress: {method: product_quantisation, size: 2}")
    status, _, err = evaluate()
    assert status == 1
    assert "needs 2 embeddings or more" in err


def test_blocks_without_places_name_the_columns_of_the_file(folder, evaluate):
    register(folder, ", block_km: 10.0")
    status, _, err = evaluate()
    assert status == 1
    assert "no column 'latitude'. Its columns are 'id', 'label'." in err


def test_a_submission_with_a_task_of_its_own_does_not_stop_the_ranking_of_the_others(folder, capsys):
    more = folder / "more"
    more.mkdir()
    text = (folder / "labels/height__regression.csv").read_text()
    for name in ("height", "extra"):
        (more / f"{name}__regression.csv").write_text(text)
    line = "  - {{key: {}, phase: p, file: m.csv, tasks: {}}}\n"
    (folder / "submissions.yaml").write_text(
        "submissions:\n" + line.format("a", "labels") + line.format("b", "labels") + line.format("c", "more")
    )
    assert main(["compression", "evaluate", "--phase", "p"]) == 0
    board = json.loads((folder / "results/_platform/compression/leaderboard.json").read_text())["phases"]["p"]
    assert {one["submission"] for one in board["standings"]} == {"a", "b", "c"}
    assert board["weights"] == {"extra": 0.0, "height": 1.0}
    assert {one["task"]: one["missing"] for one in board["tasks"]} == {"extra": ["a", "b"], "height": []}


def test_the_published_command_line_ranks_the_phase_and_prints_the_table(folder, capsys):
    assert main([*RUN, "--config", "config.yaml", "--method_name", "one", "--phase", "dev"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("experiment", "weighted_score", "aggregated_rank", "q::height"))
    (written,) = (folder / "out/leaderboards/dev").glob("leaderboard_*.csv")
    assert f"Leaderboard in {written.relative_to(folder)}" in out


@pytest.mark.parametrize(
    ("task", "method", "says"),
    [
        ("results_summary.json", "m", "summary lies there"),
        ("t" * 150, "m" * 60, "longer than 200 bytes"),
        ("t", "a\nb", "control character"),
        ("t", "../up", "slash"),
    ],
)
def test_names_no_file_can_have_are_refused_before_anything_is_computed(folder, capsys, task, method, says):
    (folder / "labels/height__regression.csv").rename(folder / f"labels/{task}__regression.csv")
    assert main([*RUN, "--method_name", method]) == 1
    assert says in capsys.readouterr().err
    assert not (folder / "out").exists()


def test_a_file_that_could_not_be_written_is_refused_before_images_are_read(folder, capsys):
    assert main(["compression", "embed", "nowhere", "mine.txt", "--model", "efficientnet_lite0"]) == 1
    assert "mine.txt: name a file that ends with .csv or .parquet" in capsys.readouterr().err
