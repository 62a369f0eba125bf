"""A backfill by Dagster's daemon reports every dataset, and SQLite holds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "backfill_with_daemon.py"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_backfill_with_the_daemon_reports_all_and_scores_those_that_were_benchmarked():
    command = [sys.executable, str(SCRIPT), "--structural", "6", "--benchmark", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"all 7 runs: \{'SUCCESS': 7\}", done.stdout)
    assert re.search(r"structural_quality: 6 datasets, .* -?\d+\.\d s overhead", done.stdout)
