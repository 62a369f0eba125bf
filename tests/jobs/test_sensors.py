"""What is new in the registry is asked for once; what has its report is left alone; ticks cost next to nothing."""

import subprocess
import sys

import dagster as dg
import pytest

from agml_assets.definitions import build_defs
from agml_assets.quality.summary import judge_dataset
from agml_assets.registry.datasets import load_registry
from agml_assets.report.artifacts import CONFIG_USED
from agml_assets.report.result import build_config_used
from agml_assets.todo import open_workspace
from agml_assets.workspace import Making
from resources.workspace import WorkspaceResource


@pytest.fixture
def place(tmp_path):
    write(tmp_path, first="", second="", old="retired: true")
    return tmp_path


def write(root, **entries):
    lines = [f"  - {{name: {name}, path: {name}{extra and ', '}{extra}}}" for name, extra in entries.items()]
    (root / "datasets.yaml").write_text("\n".join(["datasets:", *lines]) + "\n")


def report_on(root, key):
    """Store the settings file of a report, which says what entry it is of."""
    bench = open_workspace(root / "results", registry=root / "datasets.yaml").dataset(key)
    Making(bench, CONFIG_USED).write(build_config_used(bench, judge_dataset(bench)))


def tick(root, loaded=None):
    """Evaluate the sensor as the daemon does; `loaded` is the registry of when the definitions were loaded."""
    definitions = build_defs(registry=loaded or load_registry(root / "datasets.yaml"))
    resource = WorkspaceResource(results=str(root / "results"), registry=str(root / "datasets.yaml"))
    with dg.DagsterInstance.local_temp() as instance:
        repository = definitions.get_repository_def()
        sensor = repository.get_sensor_def("new_in_registry")
        given = {"repository_def": repository, "resources": {"workspace": resource}}
        with dg.build_sensor_context(instance, **given) as context:
            return sensor.evaluate_tick(context)


def asked(data):
    return {request.partition_key: request.run_key for request in data.run_requests or []}


def test_datasets_without_a_report_are_asked_for_and_retired_ones_are_not(place):
    data = tick(place)
    assert [r.partition_key for r in data.run_requests] == ["first", "second"]
    assert {r.tags["dagster/partition"] for r in data.run_requests} == {"first", "second"}
    assert asked(tick(place)) == asked(data)  # the same keys, so the daemon asks for each run once


def test_with_a_report_of_each_there_is_nothing_to_do_and_the_tick_says_so(place):
    report_on(place, "first")
    assert asked(tick(place)).keys() == {"second"}
    report_on(place, "second")
    data = tick(place)
    assert not data.run_requests
    assert data.skip_message == "All 2 datasets have a report of their entry."


def test_a_changed_entry_is_asked_for_again_and_one_changed_back_too(place):
    first = asked(tick(place))["first"]
    report_on(place, "first")
    report_on(place, "second")
    write(place, first="native_splits: train", second="", old="retired: true")
    changed = asked(tick(place))
    assert changed.keys() == {"first"}
    report_on(place, "first")
    assert asked(tick(place)) == {}
    write(place, first="", second="", old="retired: true")
    back = asked(tick(place))
    assert back.keys() == {"first"}
    assert len({first, changed["first"], back["first"]}) == 3


def test_the_number_of_images_only_orders_the_runs(place):
    report_on(place, "first")
    report_on(place, "second")
    write(place, first="num_images: 7", second="", old="retired: true")
    assert asked(tick(place)) == {}


def test_what_was_registered_after_the_definitions_were_loaded_waits_and_is_named(place):
    loaded = load_registry(place / "datasets.yaml")
    report_on(place, "first")
    report_on(place, "second")
    write(place, first="", second="", third="", old="retired: true")
    data = tick(place, loaded)
    assert not data.run_requests
    assert "New ones wait until the definitions are reloaded: third." in data.skip_message


def test_a_damaged_report_is_none(place):
    report_on(place, "first")
    file = place / "results" / "first" / CONFIG_USED.file
    file.write_bytes(b"\xff" + file.read_bytes()[1:])
    assert "first" in asked(tick(place))


def test_it_is_for_the_benchmark_and_off(place):
    with dg.DagsterInstance.local_temp():
        repository = build_defs(registry=load_registry(place / "datasets.yaml")).get_repository_def()
        sensor = repository.get_sensor_def("new_in_registry")
    assert sensor.job_name == "benchmark"
    assert sensor.default_status == dg.DefaultSensorStatus.STOPPED
    assert sensor.minimum_interval_seconds >= 60
    assert "once" in sensor.description


def test_a_tick_over_200_datasets_loads_nothing_heavy_reads_no_image_and_takes_less_than_two_seconds(tmp_path):
    (tmp_path / "datasets.yaml").write_text(
        "datasets:\n" + "".join(f"  - {{name: d{n}, path: {tmp_path / 'x'}}}\n" for n in range(200))
    )
    code = f"""
import sys, time, pathlib, dagster as dg
from agml_assets.definitions import build_defs
from agml_assets.registry.datasets import load_registry
from resources.workspace import WorkspaceResource
registry = {str(tmp_path / "datasets.yaml")!r}
definitions = build_defs(registry=load_registry(registry))
resource = WorkspaceResource(results={str(tmp_path / "results")!r}, registry=registry)
with dg.DagsterInstance.local_temp() as instance:
    repository = definitions.get_repository_def()
    given = {{"repository_def": repository, "resources": {{"workspace": resource}}}}
    with dg.build_sensor_context(instance, **given) as context:
        started = time.process_time()
        data = repository.get_sensor_def("new_in_registry").evaluate_tick(context)
        seconds = time.process_time() - started
print(len(data.run_requests), seconds < 2, [m for m in ("torch", "sklearn", "datasets") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "200 True []"
