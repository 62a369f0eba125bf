"""Results on `memory://` and in an S3 bucket are those of a local folder; the bucket is a local server's."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from importlib.util import find_spec

import numpy as np
import pytest
from upath import UPath

import agml_assets
from agml_assets.definitions import build_defs
from agml_assets.embeddings.cache import EmbeddingCache, embed_in_shards
from agml_assets.errors import UserError
from agml_assets.quality.artifacts import METRIC_ARTIFACTS
from agml_assets.recording import asset_key
from agml_assets.registry.datasets import load_registry
from agml_assets.settings import Settings, results_root
from agml_assets.store import ArtifactStore
from agml_assets.workspace import Workspace
from resources.workspace import workspace_in_memory
from tests.same_files import artifacts, different
from tests.tiny import write_images, write_registry

SIDECAR = {"artifact": "room/name", "code_version": "1", "inputs": {}, "settings": {}}


@pytest.fixture(scope="module")
def server():
    """Address of an S3 server on this machine."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(server, monkeypatch, tmp_path):
    """Name of a bucket, which the environment gives access to."""
    import boto3
    import s3fs

    given = {
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": server,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AGML_SCRATCH": str(tmp_path / "scratch"),
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    name = f"bucket-{random.getrandbits(64):x}"
    boto3.client("s3").create_bucket(Bucket=name)
    yield name
    s3fs.S3FileSystem.clear_instance_cache()


def buckets():
    import boto3

    return {one["Name"] for one in boto3.client("s3").list_buckets()["Buckets"]}


@pytest.fixture(params=["memory", "s3"])
def root(request, tmp_path, monkeypatch):
    """A remote results root."""
    if request.param == "s3":
        return f"s3://{request.getfixturevalue('bucket')}/some/results"
    monkeypatch.setenv("AGML_SCRATCH", str(tmp_path / "scratch"))
    return f"memory://{tmp_path.name}/results"


def run_job(store, registry, job, *selection):
    """Run a job, or some artifacts of it, on a store."""
    workspace = Workspace(load_registry(registry), Settings(), store)
    definitions = build_defs(registry=workspace.registry, resources={"workspace": workspace_in_memory(workspace)})
    return definitions.resolve_job_def(job).execute_in_process(
        partition_key="tiny" if selection else None,
        asset_selection=[asset_key(artifact) for artifact in selection] or None,
        raise_on_error=False,
    )


@pytest.mark.slow
def test_a_whole_benchmark_gives_the_bytes_of_one_in_a_local_folder(root, finished, tmp_path, caplog):
    registry = finished / "datasets.yaml"
    path = agml_assets.run("tiny", results=root, registry=registry)
    store = ArtifactStore(root)
    assert str(path) == str(store.path("tiny", "result.json"))
    local, remote = artifacts(finished / "results" / "tiny"), artifacts(store.path("tiny", "result.json").parent)
    assert "report/card.html" in remote
    assert different(local, remote) == []
    shards = list((store.root / "_platform/embeddings/cache").rglob("*.npy"))
    assert shards

    with caplog.at_level("INFO"):
        agml_assets.run("tiny", results=root, registry=registry)
    assert "up to date" in caplog.text

    metric = METRIC_ARTIFACTS["feature_separability"]
    before = store.path("tiny", metric.file).read_bytes()
    assert run_job(store, registry, "benchmark", metric).success
    assert store.path("tiny", metric.file).read_bytes() == before

    left = [path for path in (tmp_path / "scratch").rglob("*") if path.is_file()]
    assert left
    assert all(path.suffix == ".lock" and path.name.startswith("tiny.") for path in left)
    assert run_job(store, registry, "site_files").success
    reports = json.loads((store.root / "_platform/site/results.json").read_text())
    assert reports["tiny"]["score"] == remote["result.json"]["score"]


def test_vectors_that_were_encoded_before_a_crash_are_in_the_bucket_whatever_becomes_of_the_scratch(
    root, tmp_path
):
    images, vectors = [f"image{n}" for n in range(6)], np.eye(6, dtype=np.float32)
    encoded = []

    def encode(rows, crash_at=None):
        if rows[0] == crash_at:
            raise KeyboardInterrupt
        encoded.extend(rows)
        return vectors[list(rows)]

    out = tmp_path / "vectors.npy"
    first = EmbeddingCache(ArtifactStore(root, scratch=tmp_path / "one"), {"model": "m"})
    with pytest.raises(KeyboardInterrupt):
        embed_in_shards(lambda rows: encode(rows, crash_at=4), images, first, out, 2)
    second = EmbeddingCache(ArtifactStore(root, scratch=tmp_path / "other"), {"model": "m"})
    use = embed_in_shards(encode, images, second, out, 2)
    assert (use.hits, encoded) == (4, [0, 1, 2, 3, 4, 5])
    np.testing.assert_array_equal(np.load(out), vectors)
    assert not list((tmp_path / "other").rglob("*.npy"))  # the cache is not copied to this machine


def test_a_damaged_shard_in_a_bucket_is_not_used(root, tmp_path):
    store = ArtifactStore(root)
    cache = EmbeddingCache(store, {"model": "m"})
    file = cache.put(["a"], np.ones((1, 4), dtype=np.float32))
    path = store.path("_platform", file)
    path.write_bytes(path.read_bytes()[:-4] + bytes(4))
    assert cache.get(file) is None


def test_unfinished_work_stays_between_tries_and_roots_do_not_share_it(tmp_path):
    scratch = tmp_path / "scratch"
    (ArtifactStore("memory://a-b/c", scratch).local_folder("beans", ".work/reference") / "checkpoint").touch()
    again = ArtifactStore("memory://a-b/c", scratch).local_folder("beans", ".work/reference")
    assert (again / "checkpoint").exists()
    for other in ("memory://a/b-c", "memory://a-b-c", "memory://a/b/c"):
        folder = ArtifactStore(other, scratch).local_folder("beans", ".work/reference")
        assert list(folder.iterdir()) == []


def test_what_another_process_writes_is_seen(bucket):
    root = f"s3://{bucket}/results"
    store = ArtifactStore(root)
    store.write("beans", "room/first.json", 1, SIDECAR)
    list(store.path("beans", "room").iterdir())
    code = (
        "from agml_assets.store import ArtifactStore; import sys\n"
        "side = {'artifact': 'a', 'code_version': '2', 'inputs': {}, 'settings': {}}\n"
        "for name in ('first', 'second'): ArtifactStore(sys.argv[1]).write('beans', f'room/{name}.json', 22, side)"
    )
    subprocess.run([sys.executable, "-c", code, root], check=True)
    assert store.sidecar("beans", "room/second.json") is not None
    assert store.sidecar("beans", "room/first.json").code_version == "2"
    assert store.read("beans", "room/first.json") == 22
    names = sorted(path.name for path in store.path("beans", "room").iterdir())
    assert names == ["first.json", "first.json.meta.json", "second.json", "second.json.meta.json"]


WRITER = """
import sys
import numpy as np
from agml_assets.store import ArtifactStore
store, n = ArtifactStore(sys.argv[1]), 0
side = {"artifact": "a", "code_version": "1", "inputs": {}, "settings": {}}
while True:
    n += 1
    store.write("beans", "room/array.npy", np.full(400_000, n), side)
    print(n, flush=True)
"""


@pytest.mark.slow
def test_an_upload_that_is_killed_leaves_the_artifact_whole_or_absent(bucket, tmp_path):
    root, seed = f"s3://{bucket}/results", random.randrange(2**32)
    moments = random.Random(seed)
    for _ in range(6):
        command = [sys.executable, "-c", WRITER, root]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert writer.stdout.readline() == "1\n"
        time.sleep(moments.uniform(0, 0.3))
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate()
        store = ArtifactStore(root)
        sidecar = store.sidecar("beans", "room/array.npy")
        assert sidecar is None or store.is_intact("beans", "room/array.npy"), f"seed {seed}"
        store.remove_leftovers("beans")
        assert len([path for path in (tmp_path / "scratch").iterdir() if path.is_dir()]) <= 1, f"seed {seed}"


def test_copies_that_a_living_process_uses_stay_and_those_of_a_killed_one_go(tmp_path):
    scratch = tmp_path / "scratch"
    code = (
        "from agml_assets.store import ArtifactStore; import sys, time, pathlib, numpy as np\n"
        "store = ArtifactStore('memory://x', pathlib.Path(sys.argv[1]))\n"
        "side = {'artifact': 'a', 'code_version': '1', 'inputs': {}, 'settings': {}}\n"
        "store.write('beans', 'room/array.npy', np.arange(3), side)\n"
        "array = store.read('beans', 'room/array.npy')\n"
        "print('staged', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(scratch)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in processes:
        assert process.stdout.readline() == "staged\n"
    assert len(list(scratch.rglob("*.npy"))) == 2
    processes[0].kill()
    processes[0].communicate()
    ArtifactStore("memory://y", scratch).remove_leftovers("beans")
    assert len(list(scratch.rglob("*.npy"))) == 1
    processes[1].kill()
    processes[1].communicate()
    ArtifactStore("memory://y", scratch).remove_leftovers("beans")
    assert list(scratch.iterdir()) == []


@pytest.fixture
def run(tmp_path):
    """Run phase 1 of `tiny` on a results root."""
    registry = write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images"))
    return lambda root: agml_assets.run("tiny", registry=registry, phases=1, results=root)


def test_a_bucket_that_is_not_there_is_named_and_not_made(bucket, run):
    before = buckets()
    with pytest.raises(UserError, match=r"results root s3://no-such-bucket/x cannot be used: .*bucket.*AWS_"):
        run("s3://no-such-bucket/x")
    assert buckets() == before


def test_missing_credentials_are_told(bucket, run, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(UserError, match=rf"s3://{bucket}/x cannot be used: .*credentials.*AWS_ACCESS_KEY_ID"):
        run(f"s3://{bucket}/x")


def test_a_server_that_does_not_answer_is_told(bucket, run, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=rf"s3://{bucket}/x cannot be used: .*127\.0\.0\.1:9"):
        run(f"s3://{bucket}/x")


@pytest.mark.skipif(find_spec("gcsfs") is not None, reason="the driver of gs:// is installed here")
def test_a_missing_driver_is_named():
    with pytest.raises(UserError, match="gcsfs"):
        results_root("gs://bucket/results", Settings())


def test_a_password_in_the_root_is_refused_without_repeating_it():
    with pytest.raises(UserError, match="environment") as caught:
        ArtifactStore("s3://key:s3cret@bucket/results")
    assert "s3cret" not in caught.value.message


def test_nothing_is_read_ahead_from_a_listing_of_a_moment_ago(bucket):
    store = ArtifactStore(UPath(f"s3://{bucket}/results"))
    assert store.root.storage_options["use_listings_cache"] is False
