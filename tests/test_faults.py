"""What passes by itself is tried again, a few times and later and later; anything else fails at once."""

import errno
import http.client
import itertools
import re
import socket
import sqlite3
import threading
import time
import urllib.error
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import aiohttp
import botocore.exceptions
import httpx2
import pytest
import requests
import sqlalchemy.exc
import urllib3
from huggingface_hub.errors import (
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

from agml_assets import recording
from agml_assets.dataset import assets as dataset_assets
from agml_assets.dataset.artifacts import ARTIFACTS as DATASET
from agml_assets.dataset.artifacts import IMAGE_INDEX, PIXEL_HASHES, PIXELS
from agml_assets.dataset.sources import open_source
from agml_assets.errors import UserError
from agml_assets.faults import RETRY_DELAYS_S, is_transient, retry_delay
from agml_assets.quality.artifacts import METRIC_ARTIFACTS
from agml_assets.runner import run_dataset
from agml_assets.training.artifacts import DYNAMICS, TEST_PREDICTIONS
from agml_assets.training.reference_trainer import ReferenceTrainer
from tests.tiny import (
    JOB,
    contents,
    dagster,
    environment,
    open_workspace,
    run_in_process,
    write_images,
    write_registry,
)

REQUEST = httpx2.Request("GET", "https://hub/x")


def answer(status, kind=HfHubHTTPError):
    return kind(f"{status}", response=httpx2.Response(status, request=REQUEST))


def answer_of_requests(status):
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError(f"{status}", response=response)


def answer_of_s3(status):
    told = {"Error": {"Code": str(status)}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return botocore.exceptions.ClientError(told, "GetObject")


PASSING = [
    TimeoutError("timed out"),
    ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
    ConnectionError("Couldn't reach the hub"),
    http.client.RemoteDisconnected("Remote end closed connection without response"),
    http.client.IncompleteRead(b""),
    BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
    OSError(errno.ESTALE, "Stale file handle"),
    socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
    requests.ReadTimeout("read timed out"),
    requests.ConnectionError("broken"),
    requests.exceptions.ChunkedEncodingError("broken"),
    answer_of_requests(429),
    answer_of_requests(503),
    urllib.error.HTTPError("https://hub/x", 502, "Bad Gateway", {}, None),
    urllib3.exceptions.ProtocolError("Connection broken"),
    httpx2.ReadTimeout("timed out"),
    httpx2.ConnectTimeout("timed out"),
    httpx2.ReadError("broken"),
    httpx2.RemoteProtocolError("peer closed connection"),
    answer(429),
    answer(500),
    answer(504),
    aiohttp.ServerDisconnectedError(),
    aiohttp.ClientResponseError(None, (), status=503),
    botocore.exceptions.EndpointConnectionError(endpoint_url="https://s3"),
    botocore.exceptions.ReadTimeoutError(endpoint_url="https://s3"),
    answer_of_s3(503),
    sqlite3.OperationalError("database is locked"),
    sqlalchemy.exc.OperationalError("insert", {}, sqlite3.OperationalError("database is locked")),
]

LASTING = [
    UserError("The label column is missing."),
    ValueError("bad"),
    MemoryError(),
    FileNotFoundError(errno.ENOENT, "No such file"),
    PermissionError(errno.EACCES, "Permission denied"),
    OSError(errno.ENOSPC, "No space left on device"),
    ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
    BrokenPipeError(errno.EPIPE, "Broken pipe"),
    OSError(errno.ENETUNREACH, "Network is unreachable"),
    socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
    OfflineModeIsEnabled("HF_HUB_OFFLINE is set"),
    answer(404, RepositoryNotFoundError),
    answer(401),
    answer_of_requests(403),
    answer_of_s3(403),
    sqlite3.OperationalError("no such table: runs"),
]


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_this_passes(error):
    assert is_transient(error)


@pytest.mark.parametrize("error", LASTING, ids=repr)
def test_this_does_not_pass(error):
    assert not is_transient(error)


def caught(raise_it):
    with pytest.raises(Exception) as caught:
        raise_it()
    return caught.value


def raised_from(*errors, hidden=False):
    """Return the first error, raised while the second was handled, that while the third was, and so on."""

    def raise_it():
        first, *others = errors
        if not others:
            raise first
        try:
            raise caught(lambda: raise_again(others))
        except Exception:
            if hidden:
                raise first from None
            raise first  # noqa: B904

    def raise_again(others):
        raise raised_from(*others, hidden=hidden)

    return caught(raise_it)


@pytest.mark.parametrize("hidden", [False, True])
def test_a_time_out_put_into_words_for_the_user_passes_all_the_same(hidden):
    assert is_transient(
        raised_from(UserError("Cannot be loaded."), httpx2.ReadTimeout("timed out"), hidden=hidden)
    )
    assert is_transient(raised_from(UserError("Cannot be loaded."), RuntimeError("wrapped"), answer(503)))


@pytest.mark.parametrize("hidden", [False, True])
def test_a_user_error_after_a_mistake_does_not_pass(hidden):
    assert not is_transient(raised_from(UserError("Cannot be loaded."), KeyError("label"), hidden=hidden))


def test_a_connection_that_failed_is_judged_by_why_it_failed():
    unreachable = requests.ConnectionError("cannot connect")
    assert not is_transient(raised_from(unreachable, ConnectionRefusedError(errno.ECONNREFUSED, "refused")))
    reset = requests.ConnectionError("cannot connect")
    assert is_transient(raised_from(reset, ConnectionResetError(errno.ECONNRESET, "reset")))


def test_the_libraries_word_for_being_offline_does_not_pass():
    words = ConnectionError("Couldn't reach the hub"), FileNotFoundError("not cached"), OfflineModeIsEnabled("x")
    assert not is_transient(raised_from(UserError("Cannot be loaded."), *words, hidden=True))


def test_what_datasets_raises_offline_does_not_pass_although_it_drops_the_cause(monkeypatch):
    from datasets import config, load_dataset_builder

    monkeypatch.setattr(config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ConnectionError, match="OfflineModeIsEnabled") as caught:
        load_dataset_builder("nobody/nothing")
    assert not is_transient(caught.value)


def test_the_time_out_decides_and_not_a_file_that_was_looked_for_before():
    assert is_transient(raised_from(LocalEntryNotFoundError("x"), httpx2.ReadTimeout("x"), answer(404)))


def test_errors_that_came_from_one_another_in_a_circle_have_an_end():
    first, second = ValueError("first"), ValueError("second")
    first.__context__, second.__context__ = second, first
    assert not is_transient(first)


def test_waits_grow_and_differ_from_run_to_run():
    waits = [[retry_delay(attempt) for _ in range(200)] for attempt in range(len(RETRY_DELAYS_S))]
    assert all(max(earlier) < min(later) for earlier, later in itertools.pairwise(waits))
    for delay, drawn in zip(RETRY_DELAYS_S, waits, strict=True):
        assert min(drawn) >= 0.75 * delay and max(drawn) <= 1.25 * delay
        assert len(set(drawn)) > 100
    assert 30 < sum(RETRY_DELAYS_S) < 90  # a passing fault passes, and a user without network need not wait long


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Folder with the dataset `tiny`; waits take no time, and are noted in `waits` of this module."""
    write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images"))
    monkeypatch.setattr(recording, "retry_delay", lambda attempt: RETRY_DELAYS_S[attempt] / 1000)
    return tmp_path


def source_that_fails(monkeypatch, times, error):
    """Let the source fail that many times; return the list of tries."""
    tries = []

    def fail_first(entry):
        tries.append(time.monotonic())
        if len(tries) <= times:
            raise error()
        return open_source(entry)

    monkeypatch.setattr(dataset_assets, "open_source", fail_first)
    return tries


def retries(result):
    return [event.step_key for event in result.all_events if event.is_step_up_for_retry]


def test_a_source_that_fails_twice_is_read_the_third_time(root, monkeypatch, caplog):
    tries = source_that_fails(monkeypatch, 2, lambda: requests.ReadTimeout("read timed out"))
    with caplog.at_level("WARNING", "agml_assets"):
        result = run_in_process(root, job="structural_quality")
    assert result.success
    assert len(tries) == 3
    assert retries(result) == ["decode_images"] * 2
    said = [r.getMessage() for r in caplog.records if r.name.startswith("agml_assets")]
    assert [re.match(r"Try (\d) of 4 of decode_images failed, again in \d+ s\. ", line)[1] for line in said] == [
        "1",
        "2",
    ]
    assert all("Dataset 'tiny': ReadTimeout: read timed out" in line for line in said)
    bench = open_workspace(root).dataset("tiny")
    assert [bench.store.failure("tiny", a.file) for a in DATASET] == [None] * len(DATASET)


def test_a_source_that_always_fails_is_given_up_and_the_rest_is_kept(copy_of_finished, monkeypatch):
    monkeypatch.setattr(recording, "retry_delay", lambda attempt: 0.0)
    tries = source_that_fails(monkeypatch, 99, lambda: raised_from(UserError("No answer."), answer(503)))
    before = contents(copy_of_finished / "results" / "tiny")
    result = run_in_process(copy_of_finished, IMAGE_INDEX, METRIC_ARTIFACTS["near_duplicate"])
    assert not result.success
    assert len(tries) == 4
    (failure,) = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    assert (
        failure.user_failure_data.description == "Dataset 'tiny': No answer.\nTried 4 times. Run it again later."
    )
    after = contents(copy_of_finished / "results" / "tiny")
    changed = {file for file in before.keys() | after.keys() if before.get(file) != after.get(file)}
    # The vectors and all that is made from them stay; only the report speaks of what failed.
    assert not {file for file in changed if file.startswith(("embeddings/", "training/", "dataset/splits"))}
    assert "dataset/image_index.parquet.failed.json" in changed


def test_a_mistake_is_tried_once_and_told_in_its_own_words_beside_every_artifact(root, monkeypatch):
    tries = source_that_fails(monkeypatch, 99, lambda: UserError("There is no label column."))
    result = run_in_process(root, job="structural_quality")
    assert not result.success
    assert (len(tries), retries(result)) == (1, [])
    bench = open_workspace(root).dataset("tiny")
    notes = [bench.store.failure("tiny", a.file)["error"] for a in (IMAGE_INDEX, PIXEL_HASHES, PIXELS)]
    assert notes == ["There is no label column."] * 3


def test_a_bug_is_tried_once(root, monkeypatch):
    tries = source_that_fails(monkeypatch, 99, lambda: ZeroDivisionError("division by zero"))
    result = run_in_process(root, job="structural_quality")
    assert not result.success
    assert (len(tries), retries(result)) == (1, [])
    bench = open_workspace(root).dataset("tiny")
    notes = [bench.store.failure("tiny", a.file)["error"] for a in (IMAGE_INDEX, PIXEL_HASHES, PIXELS)]
    assert notes == ["ZeroDivisionError: division by zero"] * 3


def test_the_console_command_tries_again_too(root, monkeypatch, caplog):
    tries = source_that_fails(monkeypatch, 1, lambda: ConnectionResetError(errno.ECONNRESET, "reset by peer"))
    places = {"results": root / "results", "registry": root / "datasets.yaml"}
    path = run_dataset("tiny", phases=[1], **places)
    assert path.exists()
    assert len(tries) == 2
    assert "again in" in caplog.text


def test_a_gpu_without_room_is_not_tried_again(copy_of_finished, monkeypatch):
    import torch

    tries = []

    def fail(*_args, **_given):
        tries.append(1)
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(ReferenceTrainer, "train", fail)
    assert not run_in_process(copy_of_finished, DYNAMICS, TEST_PREDICTIONS).success
    assert len(tries) == 1


@contextmanager
def busy_hub():
    """A hub that answers everything with 503; yields its address and the list of requests."""
    asked = []

    class Busy(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET  # noqa: N815
        do_POST = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


@pytest.mark.slow
def test_a_hub_that_is_busy_is_asked_again_and_then_given_up(tmp_path):
    registry = tmp_path / "datasets.yaml"
    registry.write_text("datasets:\n  - name: someone/leaves\n")
    with busy_hub() as (address, asked):
        env = environment(tmp_path, registry) | {
            "HF_ENDPOINT": address,
            "HF_HUB_OFFLINE": "0",
            "HF_HOME": str(tmp_path / "hf"),
            "NO_PROXY": "127.0.0.1",
        }
        done = dagster(*JOB, "structural_quality", "--tags", '{"dagster/partition": "leaves"}', env=env)
    assert done.returncode == 1
    assert len(asked) >= 4
    assert len(set(re.findall(r"Try (\d) of 4 of decode_images failed, again in \d+ s", done.stderr))) == 3
    assert "Tried 4 times. Run it again later." in done.stderr
    assert "'leaves'" in done.stderr
