"""One finished benchmark of a tiny dataset, and one store of measured artifacts: made once, for every test."""

import os
import shutil

import pytest

from tests.report.measured import measure, open_dataset
from tests.tiny import JOB, dagster, environment, write_images, write_registry

# Before anything reads it: no test reaches out to a hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Before torch is loaded, here or in a run: threads that share tiny arrays spend their time waiting for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    """Whatever the developer's shell names, tests name their own places."""
    places = (
        "AGENTS",
        "AGENT_TASKS",
        "CONFIG",
        "MODELS",
        "PERFORMANCE",
        "REGISTRY",
        "RESULTS",
        "SUBMISSIONS",
        "TASKS",
        "TASK_DATA",
    )
    for name in ("BIOBENCH_RESULTS", *places):
        monkeypatch.delenv(f"AGML_{name}", raising=False)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Folder with a finished benchmark of `tiny`, by `dagster job execute`; not to be changed."""
    root = tmp_path_factory.mktemp("finished")
    registry = write_registry(root / "datasets.yaml", write_images(root / "images"))
    done = dagster(*JOB, "benchmark", "--tags", '{"dagster/partition": "tiny"}', env=environment(root, registry))
    assert done.returncode == 0, done.stderr[-3000:]
    return root


@pytest.fixture(scope="session")
def measured(tmp_path_factory):
    """The dataset `beans` with every artifact that a report is made from; not to be changed."""
    dataset = open_dataset(tmp_path_factory.mktemp("measured"))
    measure(dataset)
    return dataset


@pytest.fixture
def copy_of_finished(finished, tmp_path):
    """A copy of the finished benchmark that a test may change."""
    shutil.copytree(finished, tmp_path / "copy")
    registry = tmp_path / "copy" / "datasets.yaml"
    # The images stay where they are: other files' times would make another source.
    assert str(finished) in registry.read_text()
    return tmp_path / "copy"
