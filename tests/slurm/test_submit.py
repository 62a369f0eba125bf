"""Whole benchmarks as jobs of a real Slurm: an array with a broken dataset, and the registry in one job."""

import re
import subprocess

import pytest

from tests.slurm.conftest import Site, account, patiently
from tests.tiny import write_images

KEYS = ("one", "two", "three", "four")


@pytest.fixture
def five(tmp_path, cluster):
    """Four small datasets and one without a folder, of which only the structure is measured."""
    entries = [
        f"  - {{name: {key}, path: {write_images(tmp_path / key, per_class=4, seed=seed)}, phases: [1]}}"
        for seed, key in enumerate(KEYS)
    ]
    entries.insert(2, f"  - {{name: broken, path: {tmp_path}/nowhere, phases: [1]}}")
    (tmp_path / "datasets.yaml").write_text("datasets:\n" + "\n".join(entries) + "\n")
    return Site(tmp_path, cluster)


def submit(site, *options):
    run = site.start("slurm", "submit", "--unchecked", *options)
    assert run.wait(100) == 0, site.log()
    said = site.log()
    job, logs = re.search(r"Submitted job (\d+): 5 datasets. Logs: (\S+)", said).groups()
    return job, site.root / "results" / "_platform" / "slurm" / logs.rpartition("/")[2]


def finished(job):
    done = subprocess.run(["sacct", "-X", "-n", "-P", "-j", job, "-o", "State"], capture_output=True, text=True)
    states = done.stdout.split()
    return states if states and not {"PENDING", "RUNNING", "COMPLETING"} & set(states) else None


def reports(site):
    return {path.parent.name for path in (site.root / "results").glob("*/result.json")}


def test_an_array_leaves_a_report_of_each_dataset_and_one_named_error(five):
    job, logs = submit(five, "--array")
    states = patiently(lambda: finished(job), 500)
    assert sorted(states) == ["COMPLETED"] * 4 + ["FAILED"]
    assert reports(five) == set(KEYS)
    errors = [path.read_text() for path in logs.glob(f"agml-{job}_*.err")]
    assert len(errors) == 5
    assert sum("nowhere" in text for text in errors) == 1
    assert sum("failed" in text for text in errors) == 1


def test_the_registry_in_one_job_moves_on_after_a_failure_and_names_it(five):
    job, logs = submit(five)
    patiently(lambda: finished(job), 500)
    assert account(job) == "FAILED"
    assert reports(five) == set(KEYS)
    text = (logs / f"agml-{job}.err").read_text()
    assert re.search(r"broken: failed.*nowhere", text)


def test_what_is_missing_is_named_and_nothing_is_submitted(five):
    run = five.start("slurm", "submit")
    assert run.wait(100) == 1
    assert "Missing: dataset 'broken'" in five.log()
    assert "Submitted" not in five.log()
