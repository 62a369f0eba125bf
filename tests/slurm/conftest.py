"""A real Slurm of one node, started if it is installed and not running, and ways to run datasets on it."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.tiny import BIN, environment

SCRIPT = Path(__file__).parent / "cluster.sh"
KEYS = Path("/run/agml-test-slurm/ssh")
COMMANDS = ("sbatch", "slurmctld", "slurmd", "slurmdbd", "mariadbd", "munged", "ssh")


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def cluster():
    """Folder with the keys of a running cluster; stopped at the end if it was started here."""
    missing = [name for name in COMMANDS if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")]
    if missing:
        pytest.skip(f"no Slurm here: {', '.join(missing)} not installed (tests/slurm/cluster.sh install)")
    if os.geteuid() != 0:
        pytest.skip("a Slurm of one's own needs root")
    running = (KEYS / "user").exists() and subprocess.run(["sinfo"], capture_output=True).returncode == 0
    if not running:
        subprocess.run([SCRIPT, "start"], check=True, timeout=120)
    yield KEYS
    if not running:
        subprocess.run([SCRIPT, "stop"], check=True, timeout=60)


class Site:
    """A copy of a finished benchmark whose heavy steps are to run on the cluster."""

    def __init__(self, root: Path, cluster: Path) -> None:
        self.root, self.cluster = root, cluster
        self.profile()

    def profile(self, step="defaults", **sizing) -> None:
        """Write the profile, with other sizes for one step."""
        steps = {"defaults": {"cpus": 1, "memory": "2G", "time": "'00:20:00'"}}
        steps[step] = {**steps.get(step, {}), **sizing}
        lines = [
            f"login: {{host: 127.0.0.1, port: 2222, user: root, key: {self.cluster}/user, "
            f"known_hosts: {self.cluster}/known_hosts}}",
            "queue_allowance: '00:10:00'",
            f"defaults: {_yaml(steps.pop('defaults'))}",
            f"steps: {{{', '.join(f'{name}: {_yaml(values)}' for name, values in steps.items())}}}",
        ]
        (self.root / "profile.yaml").write_text("\n".join(lines) + "\n")

    @property
    def env(self) -> dict[str, str]:
        values = environment(self.root, self.root / "datasets.yaml")
        extra = {"AGML_COMPUTE": "slurm", "AGML_SLURM_PROFILE": str(self.root / "profile.yaml")}
        return {**values, **extra, "OMP_NUM_THREADS": "1"}

    def start(self, *arguments: str, log: str = "log") -> subprocess.Popen:
        """Start `agml-assets` with what it says going to a file."""
        with (self.root / log).open("w") as out:
            return subprocess.Popen(
                [str(BIN / "agml-assets"), *arguments], env=self.env, cwd=self.root, stdout=out, stderr=out
            )

    def log(self, log: str = "log") -> str:
        return (self.root / log).read_text()

    def forget(self, key: str, *files: str) -> None:
        """Remove artifacts, so that the next run makes them again."""
        for file in files:
            for path in (self.root / "results" / key).glob(f"{file}*"):
                path.unlink()

    def contents(self, key: str = "tiny") -> dict[str, bytes]:
        """Return the content of every artifact, by its file."""
        top = self.root / "results" / key
        files = [path for path in top.rglob("*") if path.is_file() and ".work" not in path.parts]
        return {str(path.relative_to(top)): path.read_bytes() for path in files if ".meta." not in path.name}


def _yaml(values) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in values.items()) + "}"


@pytest.fixture
def site(finished, tmp_path, cluster):
    """A finished benchmark of `tiny` that a test may change, and run on the cluster."""
    shutil.copytree(finished, tmp_path / "site")
    return Site(tmp_path / "site", cluster)


def patiently(what, seconds=60.0):
    """Return what a function gives as soon as it is true."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain"
        time.sleep(0.2)
    return found


def queue(name: str = "") -> dict[str, str]:
    """Return state by number of the jobs whose name contains `name`."""
    done = subprocess.run(["squeue", "-h", "-o", "%i %T %j"], capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return {job: state for job, state, called in rows if name in called}


def account(job: str) -> str:
    """Return the state of a job in the accounts, as one word."""
    command = ["sacct", "-X", "-n", "-P", "-j", job, "-o", "State"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return (done.stdout.split() or [""])[0]
