"""Two benchmarks of one dataset at once: one waits, both succeed, and the artifacts are those of one run."""

import subprocess

import dagster as dg
import pytest

from agml_assets.store import ArtifactStore
from tests.same_files import artifacts, different, unfinished
from tests.tiny import BIN, JOB, environment

COMMANDS = {
    "dagster": [str(BIN / "dagster"), *JOB, "benchmark", "--tags", '{"dagster/partition": "tiny"}'],
    "agml-assets": [str(BIN / "agml-assets"), "run", "--dataset", "tiny", "--force"],
}


@pytest.mark.slow
def test_two_runs_of_one_dataset_at_once_leave_what_one_run_leaves(finished, tmp_path):
    env = environment(tmp_path, finished / "datasets.yaml")
    with dg.DagsterInstance.from_config(env["DAGSTER_HOME"]) as instance:
        instance.get_runs(limit=1)  # Dagster cannot create one history from two processes at once
    runs = [
        subprocess.Popen(
            command, env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for command in COMMANDS.values()
    ]
    outputs = [run.communicate(timeout=500)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    assert sum("Waiting for dataset 'tiny': held by run" in output for output in outputs) == 1, outputs

    results = tmp_path / "results"
    assert different(artifacts(finished / "results" / "tiny"), artifacts(results / "tiny")) == []
    store = ArtifactStore(results)
    files = [name for name in artifacts(results / "tiny") if f"{name}.meta.json" in artifacts(results / "tiny")]
    assert len(files) > 25
    assert [file for file in files if not store.is_intact("tiny", file)] == []
    assert unfinished(results) == []
