"""What a run says when it cannot do its work, and what it takes for current."""

import errno
import signal

import pytest

import agml_assets
from agml_assets import cli
from agml_assets.dataset import assets as dataset_assets
from agml_assets.errors import UserError
from agml_assets.report.artifacts import ARTIFACTS as REPORT
from agml_assets.report.artifacts import CONFIG_USED
from tests.tiny import write_images, write_registry


@pytest.fixture
def run(tmp_path):
    """Run phase 1 of `tiny` in this process."""
    registry = write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images"))

    def run(**given):
        given = {"results": tmp_path / "results", "phases": 1, **given}
        return agml_assets.run("tiny", registry=registry, **given)

    return run


@pytest.mark.parametrize("place", ["datasets.yaml", "/proc/nowhere"])
def test_a_results_root_that_cannot_be_written_to_is_named_with_cause_and_remedy(run, tmp_path, place):
    root = tmp_path / place
    with pytest.raises(UserError, match=rf"results root {root} cannot be used: \w.*\$AGML_RESULTS") as caught:
        run(results=root)
    assert len(caught.value.message.splitlines()) == 1  # told before anything is started


def test_a_full_disk_is_said_to_be_full(run, monkeypatch):
    def fill(*_args):
        raise OSError(errno.ENOSPC, "No space left on device", "/results")

    monkeypatch.setattr(dataset_assets, "make_splits", fill)
    with pytest.raises(UserError, match="dataset__splits: .*No space left on device: '/results'"):
        run()


def test_unreadable_images_that_stop_a_run_are_named_with_what_to_do(run, tmp_path, caplog):
    (tmp_path / "images" / "rust" / "leaf_07.png").write_text("no image")
    with pytest.raises(UserError, match=r"1 of 24 images \(4\.17 %\).*rust/leaf_07\.png.*max_unreadable_pct"):
        run()
    assert "Traceback" not in caplog.text and "DagsterAssetCheckFailedError" not in caplog.text


def test_an_interrupted_run_says_that_it_can_go_on(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(dataset_assets, "make_splits", lambda *_args: signal.raise_signal(signal.SIGINT))
    monkeypatch.setenv("AGML_REGISTRY", str(tmp_path / "datasets.yaml"))
    assert cli.main(["run", "--dataset", "tiny", "--phases", "1", "--results", str(tmp_path / "results")]) == 130
    assert "The same command goes on where it stopped" in capsys.readouterr().err


@pytest.mark.parametrize("home", ["relative", "missing", "datasets.yaml"])
def test_a_dagster_home_that_cannot_be_used_is_told_without_a_stack(run, tmp_path, monkeypatch, home):
    monkeypatch.setenv("DAGSTER_HOME", home if home == "relative" else str(tmp_path / home))
    with pytest.raises(UserError, match=rf"\$DAGSTER_HOME \(.*{home}\) cannot be used"):
        run()


def test_that_no_history_is_kept_is_said_once(run, tmp_path, monkeypatch, caplog, capsys):
    monkeypatch.setenv("AGML_REGISTRY", str(tmp_path / "datasets.yaml"))
    assert cli.main(["run", "--dataset", "tiny", "--phases", "1", "--results", str(tmp_path / "results")]) == 0
    said = caplog.text + "".join(capsys.readouterr())
    assert said.count("DAGSTER_HOME is not set") == 1


def test_a_damaged_list_of_settings_is_written_again(run, tmp_path):
    run()
    file = tmp_path / "results" / "tiny" / CONFIG_USED.file
    content = file.read_bytes()
    file.write_bytes(content[:10] + b"\xff" + content[11:])
    run()
    assert file.read_bytes() == content


@pytest.mark.parametrize("artifact", REPORT, ids=lambda artifact: artifact.key)
def test_a_file_of_the_report_that_was_deleted_is_written_again(run, tmp_path, artifact):
    run()
    file = tmp_path / "results" / "tiny" / artifact.file
    file.unlink()
    run()
    assert file.exists()
