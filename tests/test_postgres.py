"""The history of runs in PostgreSQL: a real server, started here in a folder of its own."""

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import dagster as dg
import psutil
import pytest

from agml_assets.errors import UserError
from resources.history import BenchmarkInstance
from tests.tiny import BIN, JOB, dagster, environment, write_images, write_registry

REPOSITORY = Path(__file__).parents[1]
ARGUMENTS = (*JOB, "structural_quality", "--tags", '{"dagster/partition": "tiny"}')
PASSWORD = "p@ss/w%rd"


def find_program(name):
    """Debian keeps the server's programs off the path."""
    found = shutil.which(name) or max(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), default=None)
    return str(found) if found else None


def call(*command, **given):
    """Call a program of the server, which refuses to run as root."""
    other = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", **other, **given)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def server():
    """Host and port of a running server."""
    initdb, pg_ctl = find_program("initdb"), find_program("pg_ctl")
    if not initdb or not pg_ctl:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="agml-postgres-"))
    try:
        secret = folder / "password"
        secret.write_text(PASSWORD)
        if os.geteuid() == 0:
            for path in (folder, secret):
                shutil.chown(path, "nobody", "nogroup")
        data = str(folder / "data")
        call(initdb, "-D", data, "-U", "agml", "-A", "scram-sha-256", f"--pwfile={secret}", "--no-sync")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        call(pg_ctl, "-D", data, "-o", options, "-l", str(folder / "log"), "-w", "start")
        try:
            yield f"127.0.0.1:{port}"
        finally:
            call(pg_ctl, "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder)


class connect:  # noqa: N801 - used as a function
    """A connection to a place `host:port/database` that commits each statement."""

    def __init__(self, place):
        import psycopg2

        host, port, database = re.split("[:/]", place)
        self._connection = psycopg2.connect(host=host, port=port, user="agml", password=PASSWORD, dbname=database)
        self._connection.autocommit = True

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self._connection.close()

    def execute(self, statement):
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else None


@pytest.fixture
def history(server):
    """Host, port and name of an empty database."""
    name = f"history_{secrets.token_hex(4)}"
    with connect(f"{server}/postgres") as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{server}/{name}"


@pytest.fixture
def place(tmp_path):
    """Environment of runs with the project's own dagster.yaml."""
    env = environment(tmp_path, write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images")))
    home = Path(env["DAGSTER_HOME"])
    (home / "dagster.yaml").unlink()
    (home / "dagster.yaml").symlink_to(REPOSITORY / "dagster.yaml")
    return env


def address(history, password=PASSWORD):
    return f"postgresql://agml:{quote(password, safe='')}@{history}"


def ask(history, statement):
    with connect(history) as connection:
        return connection.execute(statement)


def sqlite_files(env):
    return [path.name for path in Path(env["DAGSTER_HOME"]).rglob("*.db*")]


@pytest.mark.slow
def test_with_the_variable_runs_and_events_are_in_postgresql_and_nothing_is_in_sqlite(history, place):
    env = {**place, "AGML_POSTGRES_URL": address(history)}
    done = dagster(*ARGUMENTS, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert ask(history, "SELECT pipeline_name, status FROM runs") == [("structural_quality", "SUCCESS")]
    ((events,),) = ask(history, "SELECT count(*) FROM event_logs JOIN runs USING (run_id)")
    assert events > 50
    assert sqlite_files(env) == []
    kept = [path for path in Path(env["DAGSTER_HOME"]).rglob("*") if path.is_file()]
    assert not [path for path in kept if PASSWORD in path.read_text(errors="ignore")]

    also = subprocess.run(
        [str(BIN / "agml-assets"), "run", "--dataset", "tiny", "--phases", "1", "--force"],
        env=env,
        cwd=Path(env["AGML_RESULTS"]).parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert also.returncode == 0, also.stderr
    assert "is not used" not in also.stderr
    assert ask(history, "SELECT status FROM runs") == [("SUCCESS",), ("SUCCESS",)]
    assert sqlite_files(env) == []


@pytest.mark.slow
def test_two_first_runs_at_once_on_an_empty_database_both_succeed(history, tmp_path):
    runs = []
    for name in "ab":
        root = tmp_path / name
        root.mkdir()
        env = environment(root, write_registry(root / "datasets.yaml", write_images(root / "images")))
        (Path(env["DAGSTER_HOME"]) / "dagster.yaml").write_text((REPOSITORY / "dagster.yaml").read_text())
        env["AGML_POSTGRES_URL"] = address(history)
        command = [str(BIN / "dagster"), *ARGUMENTS]
        runs.append(
            subprocess.Popen(
                command, env=env, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
    outputs = [run.communicate(timeout=400)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    assert ask(history, "SELECT status FROM runs") == [("SUCCESS",), ("SUCCESS",)]


@pytest.mark.slow
def test_a_daemon_runs_what_a_backfill_queued_in_postgresql(history, place):
    env = {**place, "AGML_POSTGRES_URL": address(history)}
    root = Path(env["AGML_RESULTS"]).parent
    shutil.copy(REPOSITORY / "workspace.yaml", root)
    backfill = ("job", "backfill", "-w", "workspace.yaml", "-j", "structural_quality", "--partitions", "tiny")
    queued = dagster(*backfill, "--noprompt", env=env)
    assert queued.returncode == 0, queued.stderr[-3000:]
    with (root / "log").open("w") as log:
        command = [str(BIN / "dagster-daemon"), "run", "-w", "workspace.yaml"]
        daemon = subprocess.Popen(command, env=env, cwd=root, stdout=log, stderr=log)
    try:
        wait_for(lambda: daemon.poll() is not None or ask(history, "SELECT status FROM runs") == [("SUCCESS",)])
        assert daemon.poll() is None, (root / "log").read_text()[-3000:]
        command_lines = [" ".join(child.cmdline()) for child in psutil.Process(daemon.pid).children(True)]
    finally:
        daemon.terminate()
        daemon.wait(timeout=60)
    assert (root / "results" / "tiny" / "result.json").exists()
    assert sqlite_files(env) == []
    assert command_lines
    assert not [line for line in command_lines if quote(PASSWORD, safe="") in line or PASSWORD in line]


def wait_for(happens):
    deadline = time.monotonic() + 240
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.5)


@pytest.mark.slow
def test_a_wrong_password_is_told_without_the_password_and_without_a_stack(history, place):
    env = {**place, "AGML_POSTGRES_URL": address(history, "wr0ng")}
    done = dagster(*ARGUMENTS, env=env)
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert "password authentication failed" in said
    assert "Error: $AGML_POSTGRES_URL names postgresql+psycopg2://agml:***@127.0.0.1" in said
    assert "Traceback" not in said
    assert "wr0ng" not in said
    assert not Path(env["AGML_RESULTS"]).exists()


def instance(monkeypatch, place, url):
    monkeypatch.setenv("AGML_POSTGRES_URL", url)
    monkeypatch.setenv("DAGSTER_HOME", place["DAGSTER_HOME"])
    return dg.DagsterInstance.get()


@pytest.mark.slow
def test_a_server_that_is_not_there_is_named(monkeypatch, place):
    pytest.importorskip("dagster_postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound, so nobody else can answer there
        port = free.getsockname()[1]
        with pytest.raises(UserError, match=rf"127\.0\.0\.1:{port}/history.*cannot be used: .*refused"):
            instance(monkeypatch, place, f"postgresql://agml@127.0.0.1:{port}/history")


@pytest.mark.parametrize("url", ["sqlite:///x", "localhost", "mysql://a@b/c", "postgresql://a@b:port/c"])
def test_what_is_no_url_of_a_server_is_refused_with_an_example(monkeypatch, place, url):
    pytest.importorskip("dagster_postgres")
    with pytest.raises(UserError, match="must be a URL such as postgresql://"):
        instance(monkeypatch, place, url)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, place):
    monkeypatch.setitem(sys.modules, "dagster_postgres", None)
    with pytest.raises(UserError, match=r"dagster_postgres.*pip install 'agml-assets\[postgres\]'"):
        instance(monkeypatch, place, "postgresql://agml@localhost/history")


def test_without_the_variable_the_history_is_in_sqlite_in_the_home(monkeypatch, place):
    monkeypatch.setenv("DAGSTER_HOME", place["DAGSTER_HOME"])
    with dg.DagsterInstance.get() as opened:
        assert isinstance(opened, BenchmarkInstance)
        assert opened.get_runs() == []
        assert opened.get_ref().storage_data.class_name == "DagsterSqliteStorage"
    assert "history" in {path.name for path in Path(place["DAGSTER_HOME"]).iterdir()}
