"""What a heavy step costs over its own work: in this process, in a subprocess, and as a job of a cluster.

Needs a cluster: `tests/slurm/cluster.sh start`, which this script uses as it finds it.

    python benchmarks/slurm_overhead.py [REPEATS]
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

os.environ.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
os.environ.pop("DAGSTER_HOME", None)

from agml_assets.training.artifacts import OUT_OF_FOLD
from tests.slurm.conftest import KEYS, Site, account, patiently
from tests.tiny import run_in_process, write_images, write_registry

_WORK = """
import sys
from pathlib import Path
from types import SimpleNamespace
sys.path.insert(0, "{here}")
from agml_assets.handover import Record, Request, write_record
from agml_assets.payload import make
from tests.tiny import open_workspace
bench = open_workspace(Path("{root}")).dataset("tiny")
asked = dict(step="out_of_fold", artifacts=("training/out_of_fold",), submission="bare")
request = Request(**asked, entry=bench.entry, settings=bench.settings, root=str(bench.store.root))
write_record(bench, "out_of_fold", Record("bare", "bare"))
make(request, "out_of_fold", SimpleNamespace(log=SimpleNamespace(info=print)))
"""


def seconds_of_step(root: Path, mode: str) -> float:
    """Return the wall time of the step `out_of_fold`, within a run that has started already."""
    os.environ["AGML_COMPUTE"] = mode
    result = run_in_process(root, OUT_OF_FOLD)
    assert result.success
    [end] = [e for e in result.all_events if e.event_type_value == "STEP_SUCCESS"]
    return end.step_success_data.duration_ms / 1000


def seconds_of_bare_job(script: str) -> float:
    """Return the wall time from `sbatch` to the job's end, by the same script, watched every 0.2 s."""
    started = time.monotonic()
    done = subprocess.run(["sbatch", "--parsable"], input=script, capture_output=True, text=True, check=True)
    patiently(lambda: account(done.stdout.strip()) == "COMPLETED", 120)
    return time.monotonic() - started


def main() -> None:
    """Measure and print medians."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory(prefix="agml-overhead-") as folder:
        root = Path(folder)
        write_registry(root / "datasets.yaml", write_images(root / "images"))
        Site(root, KEYS)
        os.environ["AGML_SLURM_PROFILE"] = str(root / "profile.yaml")
        os.environ["AGML_COMPUTE"] = "in_process"
        assert run_in_process(root).success
        (root / "work.py").write_text(_WORK.format(here=Path(__file__).parents[1], root=root))
        script = (
            f"#!/bin/bash\n#SBATCH --mem=2G --output={root}/bare.log\nexport OMP_NUM_THREADS=1\n"
            f"exec {sys.executable} {root}/work.py\n"
        )
        times: dict[str, list[float]] = {}
        for _ in range(repeats):
            for mode in ("in_process", "subprocess", "slurm"):
                times.setdefault(mode, []).append(seconds_of_step(root, mode))
            times.setdefault("bare job of the same work", []).append(seconds_of_bare_job(script))
    for name, values in times.items():
        print(f"{name:<48} {statistics.median(values):6.1f} s  ({min(values):.1f} to {max(values):.1f})")


if __name__ == "__main__":
    main()
