"""Every command of the README works as written, and what it says of output, jobs and files is so."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny import contents, write_images, write_registry

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BIN = Path(sys.executable).parent

MAKE = ("make demo", "make test", "make ui")
ACTIVATE = "source .venv/bin/activate"
PIP = (
    "pip install -c constraints.txt .",
    "pip uninstall -y opencv-python",
    "pip install --force-reinstall --no-deps -c constraints.txt opencv-python-headless",
)
FOLDER = "agml-assets run --dataset path/to/folder"
REMOTE = {
    "agml-assets run --dataset Project-AgML/bean_disease_uganda": "bean_disease_uganda",
    "agml-assets run --dataset iNatAg-mini/salix_alba --phases 1 2": "iNatAg-mini__salix_alba",
}
EXPORTS = (
    "export AGML_REGISTRY=/data/agml/datasets.yaml",
    "export AGML_RESULTS=/data/agml/results",
    'export DAGSTER_HOME="$PWD/.dagster"',
)
BENCHMARK = (
    'dagster job execute -m agml_assets.definitions -j benchmark --tags \'{"dagster/partition": "sample"}\''
)
ONE_METRIC = (
    'dagster asset materialize -m agml_assets.definitions --select "key:quality/near_duplicate" --partition sample'
)
MANY = ("agml-assets run sample bean_disease_uganda", "agml-assets run --all")
LEADERBOARD = "dagster job execute -m agml_assets.definitions -j leaderboard"
EVALUATE = "agml-assets evaluate sample --model efficientnet_lite0"
MODEL_REPORT = "dagster job execute -m agml_assets.definitions -j model_report"
COMPRESSION = "agml-assets compression evaluate digits-all digits-pca-8 digits-pq-4"
AGENTS = (
    "agml-assets agents run --task digits --agent starter",
    "agml-assets agents run --task digits --agent scripted",
    "agml-assets agents evaluate",
)
SITE = "dagster job execute -m agml_assets.definitions -j site_files"
BACKFILL = "dagster job backfill -w workspace.yaml -j benchmark "
SOME = BACKFILL + "--partitions sample,bean_disease_uganda --noprompt"
ALL = BACKFILL + "--all all --noprompt"
QUEUED = """
import dagster as dg
with dg.DagsterInstance.get() as instance:
    for run in instance.get_runs():
        print(run.status.value, run.remote_job_origin.location_name, run.job_name, run.tags["dagster/partition"])
"""


def blocks(language: str) -> list[str]:
    """Return the README's code blocks in a language; `""` for those without one."""
    return [body for tag, body in re.findall(r"^```(\w*)\n(.*?)^```$", README, re.M | re.S) if tag == language]


def environment(root: Path) -> dict[str, str]:
    """Return an environment with the commands on the path, everything kept below `root`, and no network."""
    foreign = ("AGML_", "DAGSTER_", "HF_", "MAKE", "MFLAGS")
    values = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    home = root / "dagster_home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (settings,) = blocks("json")  # for use without network, as the README gives them
    short = {"cartography_epochs": 1, "train_image_size": 64}
    (root / "config.json").write_text(json.dumps(json.loads(settings) | short))
    nowhere = "http://127.0.0.1:9"
    return values | {
        "PATH": f"{BIN}{os.pathsep}{values['PATH']}",
        "HOME": str(root),  # agml writes its configuration there
        "AGML_RESULTS": str(root / "results"),
        "AGML_DATA_DIR": str(root / "agml"),
        "DAGSTER_HOME": str(home),
        "HF_HOME": str(root / "huggingface"),
        "HF_HUB_OFFLINE": "1",
        "http_proxy": nowhere,
        "https_proxy": nowhere,
    }


def shell(command: str, root: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command as a reader would, with `root` as the working directory."""
    return subprocess.run(["bash", "-ec", command], cwd=root, env=env, capture_output=True, text=True, timeout=900)


def test_no_command_of_the_readme_is_untested():
    tested = {*MAKE, ACTIVATE, *PIP, FOLDER, *REMOTE, *MANY, *EXPORTS, BENCHMARK, ONE_METRIC, SITE, SOME, ALL}
    tested |= {LEADERBOARD, EVALUATE, MODEL_REPORT, COMPRESSION, *AGENTS}
    assert {line for block in blocks("sh") for line in block.splitlines()} == tested


@pytest.mark.parametrize("command", MAKE)
def test_make_has_the_target(command, tmp_path):
    env = environment(tmp_path)
    done = shell(command.replace("make ", "make -n "), ROOT, env)
    assert done.returncode == 0, done.stderr
    recipe = {"make demo": "agml_assets.demo", "make test": "pytest", "make ui": "dagster dev"}[command]
    assert recipe in done.stdout


def test_pip_does_what_make_does():
    makefile = (ROOT / "Makefile").read_text().replace("'.[dev]'", ".")
    recipes = [shlex.split(line) for line in makefile.splitlines() if line.startswith("\t$(BIN)/pip")]
    ignored = {"--quiet", "--disable-pip-version-check", "-e", "-y", "--yes"}
    steps = [{word.removeprefix("$(BIN)/") for word in recipe} - ignored for recipe in recipes]
    _torch, *others = steps
    assert others == [set(shlex.split(command)) - ignored for command in PIP]


def test_the_environment_that_make_creates_has_the_command(tmp_path):
    if not (ROOT / ".venv").is_dir():
        pytest.skip("no .venv: the package was installed without make")
    done = shell(f"{ACTIVATE}; command -v agml-assets dagster", ROOT, {"PATH": os.defpath})
    assert done.stdout.splitlines() == [str(ROOT / ".venv/bin" / name) for name in ("agml-assets", "dagster")]


@pytest.mark.parametrize(("command", "key"), REMOTE.items())
def test_a_dataset_that_cannot_be_reached_is_named_with_what_to_do(command, key, tmp_path):
    done = shell(command, tmp_path, environment(tmp_path))
    assert done.returncode == 1
    assert f"Dataset {key!r}" in done.stderr
    assert re.search("Without network .*local copy|where there is network, or put a copy", done.stderr)
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "results" / key / "result.json").exists()


def test_registry_results_and_history_are_where_the_variables_say(tmp_path):
    (tmp_path / ".dagster").mkdir()
    write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images"))
    exports = "\n".join(EXPORTS).replace("/data/agml", str(tmp_path))
    env = environment(tmp_path)
    for name in ("AGML_RESULTS", "DAGSTER_HOME"):
        del env[name]
    done = shell(f"{exports}\nagml-assets run --dataset tiny --phases 1", tmp_path, env)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results" / "tiny" / "result.json").is_file()
    assert (tmp_path / ".dagster" / "history").is_dir()
    assert "DAGSTER_HOME is not set" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", [SOME, ALL])
def test_a_backfill_queues_one_run_for_each_dataset_where_the_ui_finds_it(command, tmp_path):
    shutil.copy(ROOT / "workspace.yaml", tmp_path)
    env = environment(tmp_path)
    asked = {"sample", "bean_disease_uganda"}
    if command == ALL:
        asked = {"first", "second"}
        entries = "".join(f"  - {{name: {name}, path: .}}\n" for name in asked)
        (tmp_path / "datasets.yaml").write_text(f"datasets:\n{entries}")
        env["AGML_REGISTRY"] = str(tmp_path / "datasets.yaml")
    done = shell(command, tmp_path, env)
    assert done.returncode == 0, done.stderr
    queued = shell(f"{shlex.quote(sys.executable)} -c {shlex.quote(QUEUED)}", tmp_path, env)
    assert sorted(queued.stdout.splitlines()) == sorted(f"QUEUED agml_assets benchmark {name}" for name in asked)


@pytest.mark.slow
def test_a_folder_that_nobody_registered_is_benchmarked(tmp_path):
    write_images(tmp_path / "path" / "to" / "folder")
    done = shell(FOLDER, tmp_path, environment(tmp_path))
    assert done.returncode == 0, done.stderr
    assert re.search(r"overall score +\d+\.\d of 10", done.stdout)
    assert (tmp_path / "results" / "folder" / "result.json").is_file()


@pytest.mark.slow
def test_registered_datasets_are_run_one_after_another(tmp_path):
    names = ("sample", "bean_disease_uganda")
    for seed, name in enumerate(names):
        write_images(tmp_path / name, per_class=5, seed=seed)
    entries = "".join(f"  - {{name: {name}, path: {tmp_path / name}}}\n" for name in names)
    (tmp_path / "datasets.yaml").write_text(f"datasets:\n{entries}")
    env = environment(tmp_path) | {"AGML_REGISTRY": str(tmp_path / "datasets.yaml")}
    done = shell(f"{MANY[0]} --phases 1", tmp_path, env)
    assert done.returncode == 0, done.stderr
    again = shell(f"{MANY[1]} --phases 1", tmp_path, env)
    assert again.returncode == 0, again.stderr
    assert all(re.search(f"{name} +not scored", done.stdout) for name in names)
    assert all(re.search(f"{name} +up to date", again.stdout) for name in names)


@pytest.mark.slow
def test_the_leaderboard_is_made_where_the_table_says(tmp_path):
    (tmp_path / "performance").mkdir()
    env = environment(tmp_path) | {"AGML_PERFORMANCE": str(tmp_path / "performance")}
    done = shell(LEADERBOARD, tmp_path, env)
    assert done.returncode == 0, done.stderr
    made = {file.name for file in (tmp_path / "results/_platform/leaderboard").iterdir()}
    assert {"index.json", "global.json"} <= made


@pytest.fixture(scope="module")
def benchmarked(tmp_path_factory):
    """Folder and environment in which the sample was benchmarked and gathered by the README's commands."""
    root = tmp_path_factory.mktemp("readme")
    env = environment(root)
    (root / "performance").mkdir()
    for command in (BENCHMARK, EVALUATE, MODEL_REPORT, SITE, LEADERBOARD, COMPRESSION, *AGENTS):
        done = shell(command, root, env)
        assert done.returncode == 0, done.stderr[-3000:]
    return root, env


@pytest.mark.slow
def test_one_metric_is_done_again_and_nothing_else(benchmarked):
    root, env = benchmarked
    before = contents(root / "results")
    done = shell(ONE_METRIC, root, env)
    assert done.returncode == 0, done.stderr[-3000:]
    after = contents(root / "results")
    changed = {file for file in before.keys() | after.keys() if before.get(file) != after.get(file)}
    metric = "sample/quality/near_duplicate.json"
    assert metric in changed
    assert {file for file in changed if not file.startswith("_platform/locks/")} <= {metric, f"{metric}.meta.json"}


@pytest.mark.slow
def test_python_gives_the_path_of_the_report(benchmarked):
    root, env = benchmarked
    (code,) = blocks("python")
    done = shell(f"{shlex.quote(sys.executable)} -c {shlex.quote(code + 'print(path)')}", root, env)
    assert done.stdout.strip() == str(root / "results/sample/result.json"), done.stderr


@pytest.mark.slow
def test_the_demo_shows_the_lines_that_the_readme_shows(benchmarked):
    root, env = benchmarked
    done = shell(f"{shlex.quote(sys.executable)} -m agml_assets.demo", root, env)
    assert done.returncode == 0, done.stderr
    (shown,) = blocks("")
    assert set(shown.splitlines()) <= set(done.stdout.splitlines())


@pytest.mark.slow
def test_the_site_has_the_files_that_are_named(benchmarked):
    root, _ = benchmarked
    site = root / "results" / "_platform" / "site"
    assert list(json.loads((site / "results.json").read_text())) == ["sample"]
    assert {file.name for file in (site / "umap").iterdir()} == {"sample_umap_2d.json", "sample_umap_3d.json"}
    assert (site / "shared_images.parquet").is_file()


@pytest.mark.slow
def test_the_models_page_shows_the_evaluation_of_the_sample(benchmarked):
    root, _ = benchmarked
    report = json.loads((root / "results/_platform/evaluation/report.json").read_text())
    [standing] = report["subjects"]["sample"]["standings"]
    assert 0.5 < standing["score"] <= 1
    page = (root / "results/_platform/site/pages/models.html").read_text()
    assert "1 model evaluated here, on 1 task or dataset." in page
    assert '"id":["efficientnet_lite0"]' in page


@pytest.mark.slow
def test_the_scripted_agent_improves_on_the_starter_code(benchmarked):
    root, _ = benchmarked
    board = json.loads((root / "results/_platform/agents/leaderboard.json").read_text())
    cells = {cell["agent"]: cell for cell in board["cells"]}
    assert set(cells) == {"starter", "scripted"}
    assert [cells[name]["success"]["successes"] for name in ("starter", "scripted")] == [0, 1]
    assert cells["scripted"]["improvement"]["mean"] > 0.1


@pytest.mark.slow
def test_the_digits_that_keep_all_pixels_keep_most(benchmarked):
    root, _ = benchmarked
    board = json.loads((root / "results/_platform/compression/leaderboard.json").read_text())
    standings = board["phases"]["digits"]["standings"]
    assert [one["submission"] for one in standings] == ["digits-all", "digits-pq-4", "digits-pca-8"]
    assert [one["bytes_per_embedding"] for one in standings] == [256, 3.5, 32]
    assert standings[0]["tasks"]["digit"]["score"] > 0.9


@pytest.mark.slow
def test_results_lie_where_the_table_says(benchmarked):
    root, _ = benchmarked
    places = re.findall(r"^\| `((?:<dataset>|_platform)/[^`]*)`", README, re.M)
    assert len(places) >= 11
    for place in places:
        path = root / "results" / place.replace("<dataset>", "sample")
        assert path.is_dir() if place.endswith("/") else path.is_file(), path


def test_the_table_of_jobs_is_complete():
    from jobs.agent_jobs import agent_jobs
    from jobs.compression_jobs import compression_jobs
    from jobs.dataset_jobs import build_jobs
    from jobs.evaluation_jobs import evaluation_jobs
    from jobs.leaderboard_jobs import leaderboard_job
    from jobs.site_jobs import site_files_job

    made = (
        *build_jobs(),
        site_files_job(),
        leaderboard_job(),
        *evaluation_jobs(),
        *compression_jobs(),
        *agent_jobs(),
    )
    jobs = [job.name for job in made]
    table = README.partition("| job |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == jobs


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{p.name}" for p in sorted((ROOT / "docs").glob("*.md")))])
def test_links_to_files_lead_somewhere(page):
    file = ROOT / page
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", file.read_text())
    assert [link for link in links if not (file.parent / link).exists()] == []
