"""Runs the benchmarks and keeps their rows in docs/speed.md.

`python benchmarks/make_table.py [NAME ...]`: the scripts `bench_<name>.py` so named, or all. Rows of the others
are kept where they were measured on the same machine with the same versions; so one part can be redone alone.
"""

import subprocess
import sys
from pathlib import Path

from measure import COLUMNS, machine, markdown_row

HERE = Path(__file__).parent
TABLE = HERE.parent / "docs" / "speed.md"
HEAD = """# Speed

Each row times two ways of the same work in turn, in one run of one script, and compares their results. Seconds
are medians by the clock; the ratio is that of the medians. `repeats` says how often the obvious way and ours were
timed: once where the obvious way takes minutes. Written by `make bench`; `python benchmarks/make_table.py pairs`
measures the rows of `bench_pairs.py` alone. How time and memory grow with the number of images is in
[growth.md](growth.md).
"""


def main(names: list[str]) -> int:
    """Run the scripts, write the table, and return 1 where one of them failed."""
    scripts = sorted(HERE.glob("bench_*.py"))
    known = [script.stem.removeprefix("bench_") for script in scripts]
    if unknown := set(names) - set(known):
        raise SystemExit(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    here = machine()
    rows = kept_rows(here)
    failed = []
    for script, name in zip(scripts, known, strict=True):
        if names and name not in names:
            continue
        print(f"{script.name} ...", flush=True)
        done = subprocess.run([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout, flush=True)
        if done.returncode:
            failed.append(script.name)
            continue
        found = [line for line in done.stdout.splitlines() if line.startswith("|")]
        rows = [row for row in rows if f"`{script.name}`" not in row] + found
        rows.sort(key=lambda row: row.rpartition("`bench_")[2])
        TABLE.write_text(page(here, rows))
    if failed:
        print("failed:", *failed)
    return 1 if failed else 0


def kept_rows(here: list[str]) -> list[str]:
    """Return the rows of the present table, none if it is of another machine or other versions."""
    lines = TABLE.read_text().splitlines() if TABLE.exists() else []
    if not all(f"- {line}" in lines for line in here):
        return []
    return [line for line in lines if line.startswith("|") and "`bench_" in line]


def page(here: list[str], rows: list[str]) -> str:
    """Return the text of the page."""
    table = [markdown_row(COLUMNS), markdown_row("---" for _ in COLUMNS), *rows]
    return "\n".join([HEAD, *(f"- {line}" for line in here), "", *table, ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
