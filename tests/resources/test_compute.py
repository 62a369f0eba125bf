"""Where heavy steps run, profiles of clusters, scripts of jobs and what their ends mean; without a cluster."""

import json
import shlex
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import dagster as dg
import pytest
import yaml
from dagster_slurm import SlurmPipesClient

from agml_assets import prefetch, slurm
from agml_assets.cli import main
from agml_assets.errors import UserError
from agml_assets.faults import is_transient
from agml_assets.handover import Record, Request, read_record, write_record
from agml_assets.hub_cache import is_cached
from agml_assets.registry.models import ModelEntry, ModelRegistry
from agml_assets.slurm_profile import Profile, load_profile, parse_profile, ready_profiles, time_seconds
from agml_assets.slurm_script import describe_end, extra_lines, sbatch_lines
from resources import slurm_jobs
from resources.compute import Compute, ComputeResource, open_compute
from resources.slurm_jobs import _Client, _explain, _Job
from tests.evaluation.backbones.tiny_models import save_clip, save_tokenizer
from tests.tiny import open_workspace, run_in_process, write_images, write_registry


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    for name in ("AGML_COMPUTE", "AGML_SLURM_PROFILE", "HF_HOME", "HF_HUB_CACHE", "AGML_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)


def profile(**values) -> Profile:
    return parse_profile(values, "a test")


def test_heavy_steps_run_in_the_runs_own_process_unless_told_otherwise(monkeypatch):
    assert open_compute().mode == "in_process"
    monkeypatch.setenv("AGML_COMPUTE", "subprocess")
    assert open_compute().mode == "subprocess"
    assert open_compute("in_process").mode == "in_process"


@pytest.mark.parametrize("mode", ["slrum", "local", "SLURM"])
def test_an_unknown_mode_is_refused_with_those_that_there_are(mode, monkeypatch):
    monkeypatch.setenv("AGML_COMPUTE", mode)
    with pytest.raises(UserError, match="in_process, subprocess, slurm"):
        open_compute()
    with pytest.raises(dg.Failure, match="in_process, subprocess, slurm"):
        ComputeResource().create_resource(dg.build_init_resource_context())


def test_the_mode_slurm_needs_a_profile_and_a_valid_sizing(tmp_path):
    with pytest.raises(UserError, match=r"\$AGML_SLURM_PROFILE"):
        open_compute("slurm")
    file = tmp_path / "cluster.yaml"
    file.write_text("defaults: {cpus: 2}\n")
    assert open_compute("slurm", str(file)) == Compute("slurm", str(file))
    with pytest.raises(UserError, match="memory"):
        open_compute("slurm", str(file), {"embeddings": {"memory": "lots"}})
    with pytest.raises(UserError, match="reference_training"):
        open_compute("slurm", str(file), {"reference_trainings": {"cpus": 1}})


def test_the_launchpad_sizes_one_step_of_one_run():
    cluster = profile(
        defaults={"cpus": 2, "gpus": 1}, steps={"reference_training": {"cpus": 8, "time": "12:00:00"}}
    )
    changes = {"reference_training": {"time": "2-00:00:00"}}
    assert cluster.sizing("reference_training", changes).seconds == 2 * 86400
    assert cluster.sizing("reference_training", changes).cpus == 8
    assert cluster.sizing("embeddings", changes).seconds == 4 * 3600


def test_steps_on_processors_ask_for_no_gpu_even_where_every_job_gets_one():
    cluster = profile(defaults={"gpus": 1})
    for step in ("out_of_fold", "out_of_fold_grouped"):
        assert "#SBATCH --gres=none" in extra_lines(cluster.sizing(step), requeue=True)
    for step in ("embeddings", "reference_training", "leak_safe_training"):
        assert "#SBATCH --gres=gpu:1" in sbatch_lines(cluster.sizing(step), requeue=True)
    assert profile(steps={"out_of_fold": {"gpus": 1}}).sizing("out_of_fold").gpus == 1


# sbatch(1), option --time: the six notations.
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60", 3600),
        ("1:30", 90),
        ("48:00:00", 172_800),
        ("2-12", 216_000),
        ("1-1:30", 91_800),
        ("1-0:0:5", 86_405),
    ],
)
def test_times_are_read_as_slurm_reads_them(text, seconds):
    assert time_seconds(text) == seconds


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"default": {}}, "defaults"),
        ({"defaults": {"cpu": 4}}, "cpus"),
        ({"defaults": {"cpus": "4"}}, "cpus"),
        ({"defaults": {"cpus": 0}}, "cpus"),
        ({"defaults": {"memory": "64 GB"}}, "memory"),
        ({"defaults": {"time": "two days"}}, "time"),
        (yaml.safe_load("defaults: {time: 48:00:00}"), "quotes"),
        ({"defaults": {"partition": "low; rm -rf /"}}, "partition"),
        ({"defaults": {"account": "$(id)"}}, "account"),
        ({"defaults": {"exclude": "node'1"}}, "exclude"),
        ({"defaults": {"constraint": "a b"}}, "constraint"),
        ({"defaults": {"modules": ["cuda/12 && x"]}}, "modules"),
        ({"defaults": {"gpus": -1}}, "gpus"),
        ({"defaults": {"time": "0"}}, "more than zero"),
        ({"steps": {"embeddings": {"time": "0-0:00"}}}, "more than zero"),
        ({"environment": "envs/agml"}, "absolute path"),
        ({"environment": ""}, "absolute path"),
        ({"steps": {"embedding": {}}}, "embeddings"),
        ({"steps": {"embeddings": None}}, "embeddings"),
        ({"login": {"hosts": "x"}}, "login.hosts"),
        ({"login": {"port": 0}}, "login.port"),
        ({"env": {"A B": "x"}}, "environment variable"),
        ({"env": {"HF_HOME": "$NOT_SET_ANYWHERE/hub"}}, "NOT_SET_ANYWHERE"),
        ([1], "keys and values"),
    ],
)
def test_a_profile_that_is_not_valid_is_refused_by_name(values, named):
    with pytest.raises(UserError) as refused:
        parse_profile(values, "cluster.yaml")
    assert named in refused.value.message


def test_every_mistake_in_a_profile_is_told_at_once():
    with pytest.raises(UserError) as refused:
        parse_profile({"defaults": {"cpus": 0, "memory": "x"}, "steps": {"embeddings": {"time": "x"}}}, "f")
    assert all(word in refused.value.message for word in ("cpus", "memory", "embeddings: time"))


def test_a_profile_that_is_absent_or_no_yaml_is_refused(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        load_profile(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("a: [")
    with pytest.raises(UserError, match="not YAML"):
        load_profile(tmp_path / "bad.yaml")


def test_the_ready_profile_is_valid_and_asks_for_what_such_a_cluster_wants(monkeypatch):
    monkeypatch.setenv("GROUP_FOLDER", "/group/plants")
    assert list(ready_profiles()) == ["farm"]
    farm = load_profile("farm")
    training = farm.sizing("reference_training")
    assert (training.seconds, training.memory, training.gpus) == (48 * 3600, "64G", 1)
    assert (training.partition, training.account, training.modules) == ("low", "publicgrp", ("cuda/12",))
    assert farm.requeue
    assert farm.env["HF_HOME"] == "/group/plants/huggingface"
    assert farm.sizing("out_of_fold").gpus == 0


def script(tmp_path, monkeypatch, array=False, **values):
    monkeypatch.setenv("AGML_DATA_DIR", "/data/with a blank")
    env = {"AGML_RESULTS": "/shared/results", "AGML_REGISTRY": "/shared/it's.yaml"}
    cluster = profile(**{"environment": "/shared/env", **values})
    return slurm.whole_script(cluster, ["beans", "leaves"], array=array, env=env, logs=tmp_path)


def test_a_script_is_valid_shell_with_threads_by_processors_and_no_network(tmp_path, monkeypatch):
    text = script(tmp_path, monkeypatch, defaults={"modules": ["cuda/12"], "exclude": "n-[1-3]", "account": "a"})
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
    for line in (
        "#SBATCH --exclude='n-[1-3]'",
        "#SBATCH --account=a",
        "module load cuda/12",
        'export OMP_NUM_THREADS="$threads"',
        "export HF_HUB_OFFLINE=1",
        "export AGML_COMPUTE=in_process",
        "exec /shared/env/bin/python -P -m agml_assets.cli run beans leaves",
    ):
        assert line in text.splitlines()
    assert text.index("#SBATCH") < text.index("module load") < text.index("exec ")


def test_variables_reach_the_job_as_they_are(tmp_path, monkeypatch):
    text = script(tmp_path, monkeypatch, env={"ODD": "a'b $HOME `x`"})
    exports = "\n".join(line for line in text.splitlines() if line.startswith("export ") and "PATH" not in line)
    seen = subprocess.run(
        ["bash", "-c", f'{exports}\nprintf "%s\\n" "$ODD" "$AGML_DATA_DIR" "$AGML_REGISTRY"'],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert seen == ["a'b $HOME `x`", "/data/with a blank", "/shared/it's.yaml"]


def test_models_and_tasks_of_ones_own_reach_jobs_by_absolute_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("AGML_MODELS", "AGML_TASKS", "AGML_TASK_DATA", "AGML_BIOBENCH_RESULTS"):
        monkeypatch.setenv(name, f"mine/{name}")
    text = script(tmp_path, monkeypatch)
    for name in ("AGML_MODELS", "AGML_TASKS", "AGML_TASK_DATA", "AGML_BIOBENCH_RESULTS"):
        assert f"export {name}={tmp_path}/mine/{name}" in text.splitlines()


def test_an_array_has_a_task_for_each_dataset(tmp_path, monkeypatch):
    text = script(tmp_path, monkeypatch, array=True)
    assert "#SBATCH --array=0-1" in text
    picked = text.replace("exec /shared/env/bin/python", "echo")
    for task, key in enumerate(("beans", "leaves")):
        done = subprocess.run(
            ["bash"],
            input=picked,
            capture_output=True,
            text=True,
            env={"SLURM_ARRAY_TASK_ID": str(task), "PATH": "/bin"},
        )
        assert done.stdout.split()[-1] == key, done.stderr


def test_a_dry_run_shows_the_script_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images", per_class=1))
    monkeypatch.setenv("AGML_REGISTRY", str(tmp_path / "datasets.yaml"))
    (tmp_path / "cluster.yaml").write_text("defaults: {cpus: 3}\n")
    options = ["--profile", str(tmp_path / "cluster.yaml"), "--results", str(tmp_path / "results")]
    assert main(["slurm", "submit", "--dry-run", *options]) == 0
    shown = capsys.readouterr().out
    assert "#SBATCH --cpus-per-task=3" in shown
    assert f"{tmp_path}/results/_platform/slurm/" in shown
    assert f"export AGML_REGISTRY={tmp_path}/datasets.yaml" in shown
    assert not (tmp_path / "results").exists()


@pytest.fixture
def dry(tmp_path, monkeypatch):
    """Return a function that shows the script of `tiny`, with changes to command and profile."""
    write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images", per_class=1))
    monkeypatch.setenv("AGML_REGISTRY", str(tmp_path / "datasets.yaml"))

    def show(*options, results="results", **values):
        (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(values))
        places = ["--profile", str(tmp_path / "cluster.yaml"), "--results", str(tmp_path / results)]
        return main(["slurm", "submit", "--dry-run", *options, *places])

    return show


@pytest.mark.parametrize("name", ["my results", "50%", "results\n#SBATCH --qos=high", "it's"])
def test_a_results_root_that_a_line_for_sbatch_cannot_hold_is_refused(dry, capsys, name):
    assert dry(results=name) == 1
    shown = capsys.readouterr()
    assert "cannot be used with a cluster" in shown.err
    assert not shown.out


def test_a_dry_run_refuses_an_environment_that_is_not_there(dry, capsys, tmp_path):
    assert dry(environment=str(tmp_path / "no_env")) == 1
    assert f"{tmp_path}/no_env/bin/python does not exist" in capsys.readouterr().err


def test_without_a_dataset_there_is_nothing_to_submit(dry, capsys, tmp_path):
    registry = tmp_path / "datasets.yaml"
    registry.write_text(registry.read_text().replace("    path:", "    retired: true\n    path:"))
    assert dry("--array") == 1
    shown = capsys.readouterr()
    assert "No dataset is registered" in shown.err
    assert not shown.out


def test_a_dry_run_shows_no_secret_of_the_profile(dry, capsys):
    secrets = ("HF_TOKEN", "aws_secret_access", "API_KEY", "DB_PASSWORD")
    assert dry(env={**dict.fromkeys(secrets, "hush"), "HF_HOME": "/shared/hub"}) == 0
    shown = capsys.readouterr().out
    assert "hush" not in shown
    assert all(f"export {name}='***'" in shown for name in secrets)
    assert "export HF_HOME=/shared/hub" in shown


def test_where_there_is_no_sbatch_submitting_says_so(monkeypatch):
    monkeypatch.setattr("agml_assets.slurm.shutil.which", lambda name: None)
    with pytest.raises(UserError, match="login node"):
        slurm.submit("#!/bin/bash\n")


SIZING = profile(defaults={"time": "1", "memory": "2G"}).sizing("embeddings")


# The words of sacct(1), JOB STATE CODES, and what `ExitCode` holds with each.
@pytest.mark.parametrize(
    ("state", "code", "told"),
    [
        ("TIMEOUT", "0:0", "time limit of 1"),
        ("OUT_OF_MEMORY", "0:125", "memory of 2G"),
        ("NODE_FAIL", "1:0", "lost its node"),
        ("BOOT_FAIL", "1:0", "lost its node"),
        ("PREEMPTED", "0:15", "give way"),
        ("CANCELLED", "0:15", "was cancelled"),
        ("FAILED", "3:0", "status 3"),
        ("FAILED", "0:11", "signal 11"),
        ("COMPLETED", "0:0", "without telling"),
    ],
)
def test_the_end_of_a_job_is_told_in_words_with_the_schedulers_own(state, code, told):
    text = describe_end(12, state, code, SIZING, "")
    assert told in text
    assert "job 12" in text
    assert state in text or state == "COMPLETED"


def test_a_job_killed_for_memory_without_control_groups_is_known_by_its_log():
    log = "slurmstepd: error: Exceeded job memory limit"
    assert "memory of 2G" in describe_end(12, "FAILED", "0:9", SIZING, log)
    assert "signal 9" in describe_end(12, "FAILED", "0:9", SIZING, "")


class Cluster:
    """Stands in for the connection to a cluster: answers commands, and keeps what it was told."""

    def __init__(self, **states):
        self.states, self.told = states, []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def run(self, command, timeout=None):
        self.told.append(command)
        for words, answer in self.states.items():
            if words in command:
                return answer
        return ""


@pytest.fixture
def job(tmp_path):
    write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images", per_class=1))
    dataset = open_workspace(tmp_path).dataset("tiny")
    request = Request(
        step="embeddings",
        artifacts=("embeddings/embeddings",),
        entry=dataset.entry,
        settings=dataset.settings,
        root=str(dataset.store.root),
        submission="ours",
    )
    folder = tmp_path / "results" / "tiny" / ".work" / "jobs" / "tiny-embeddings-i1"
    folder.mkdir(parents=True)
    return _Job(dataset, request, "i1", folder)


def find(job, cluster):
    client = _Client(slurm_resource=SimpleNamespace(ssh=None), launcher=None)
    client.job = job
    return client._find_reattachable_job(None, cluster, "embeddings")


def test_the_hooks_that_are_replaced_are_the_librarys():
    for name in (
        "_get_remote_run_dir",
        "_find_reattachable_job",
        "_is_job_still_running",
        "_store_job_tags",
        "_is_run_canceling",
    ):
        assert name in vars(_Client)
        assert callable(getattr(SlurmPipesClient, name))


# sacct(1) and squeue(1), JOB STATE CODES: every one of a job that has not ended, and the one of success.
@pytest.mark.parametrize(
    "state",
    [
        *("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "COMPLETED", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD"),
        *("REQUEUE_FED", "RESIZING", "RESV_DEL_HOLD", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED"),
    ],
)
def test_a_job_of_the_same_inputs_is_taken_up_with_its_own_submission(job, state):
    write_record(job.dataset, "embeddings", Record("theirs", "i1", str(job.folder), 7))
    found = find(job, Cluster(squeue=state))
    assert found == {"job_id": "7", "run_dir": str(job.folder)}
    assert job.submission == "theirs"
    assert read_record(job.dataset, "embeddings").submission == "theirs"


@pytest.mark.parametrize("state", ["SUSPENDED", "REQUEUE_HOLD", "COMPLETED"])
def test_a_job_that_was_taken_up_is_waited_for_whatever_becomes_of_it(state):
    client = _Client(slurm_resource=SimpleNamespace(ssh=None), launcher=None)
    assert client._is_job_still_running(7, Cluster(squeue=state))


def test_while_the_cluster_cannot_be_asked_no_job_is_submitted_and_the_record_stays(job):
    write_record(job.dataset, "embeddings", Record("theirs", "i1", str(job.folder), 7))

    class Mute(Cluster):
        def run(self, command, timeout=None):
            raise RuntimeError("connection closed")

    with pytest.raises(RuntimeError) as lost:
        find(job, Mute())
    error = _explain(job, SimpleNamespace(ssh=None), SIZING, lost.value, late=False)
    assert "connection closed" in error.message
    assert read_record(job.dataset, "embeddings") == Record("theirs", "i1", str(job.folder), 7)


def test_nothing_of_a_record_is_run_on_the_login_node(job):
    file = job.dataset.store.path("tiny", ".work/jobs/embeddings.json")
    for forged in ({"job_id": "1; touch x #", "folder": "/f"}, {"job_id": None, "folder": "/f; touch x #"}):
        file.write_text(json.dumps({"submission": "theirs", "identity": "another", **forged}))
        cluster = Cluster(squeue="7")
        assert find(job, cluster) is None
        for command in cluster.told:
            words = shlex.split(command.replace(" || true", "").replace(" 2>/dev/null", ""))
            assert "touch" not in words and not any(word.endswith(";") for word in words), command


def test_a_job_runs_no_module_of_the_working_directory():
    launcher = slurm_jobs._Launcher(profile(environment="/shared/env"), SIZING, "embeddings")
    lines = launcher.prepare_execution(working_dir="/f", pipes_context={}).payload
    assert lines[-1] == "exec /shared/env/bin/python -P -m agml_assets.payload embeddings"


def test_a_job_whose_number_was_never_noted_is_found_by_its_name(job):
    write_record(job.dataset, "embeddings", Record("theirs", "i1", str(job.folder), None))
    cluster = Cluster(**{f"-n dagster_{job.folder.name}": "41\n42\n", "squeue": "RUNNING"})
    assert find(job, cluster)["job_id"] == "42"


@pytest.mark.parametrize("state", ["FAILED", "TIMEOUT", "CANCELLED", ""])
def test_a_job_that_has_ended_without_a_result_makes_room_for_a_new_one(job, state):
    write_record(job.dataset, "embeddings", Record("theirs", "i1", str(job.folder), 7))
    (job.folder / "messages.jsonl").write_text("old")
    assert find(job, Cluster(sacct=state)) is None
    assert read_record(job.dataset, "embeddings") == Record("ours", "i1", str(job.folder), None)
    assert not list(job.folder.iterdir())


def test_a_job_of_other_inputs_is_cancelled_and_may_no_longer_write(job):
    for number in (7, None):
        write_record(job.dataset, "embeddings", Record("theirs", "another", "/elsewhere", number))
        cluster = Cluster(**{"-n dagster_elsewhere": "7", "squeue": "SUSPENDED"})
        assert find(job, cluster) is None
        assert any("scancel 7" in command for command in cluster.told)
    assert read_record(job.dataset, "embeddings").submission == "ours"


@pytest.mark.parametrize(
    ("row", "again"),
    [
        ("NODE_FAIL|0:0", True),
        ("PREEMPTED|0:15", True),
        ("TIMEOUT|0:0", False),
        ("OUT_OF_MEMORY|0:125", False),
        ("CANCELLED by 0|0:15", False),
        ("FAILED|1:0", False),
    ],
)
def test_only_a_job_that_the_cluster_lost_is_tried_again_and_the_end_of_its_log_is_told(
    job, monkeypatch, row, again
):
    job.record(9)
    (job.folder / "slurm-9.err").write_text("\n".join(f"line {n}" for n in range(100)))
    monkeypatch.setattr(slurm_jobs, "SSHConnectionPool", lambda ssh: Cluster(sacct=row))
    error = _explain(job, SimpleNamespace(ssh=None), SIZING, RuntimeError("ended"), late=False)
    assert is_transient(error) is again
    assert "'tiny': embeddings: job 9" in error.message
    assert "line 99" in error.message
    assert "line 10\n" not in error.message
    assert read_record(job.dataset, "embeddings") is None


def test_a_lost_connection_leaves_the_job_to_be_taken_up(job, monkeypatch):
    job.record(9)

    class Gone(Cluster):
        def __enter__(self):
            raise OSError("no route to host")

    monkeypatch.setattr(slurm_jobs, "SSHConnectionPool", lambda ssh: Gone())
    error = _explain(job, SimpleNamespace(ssh=None), SIZING, RuntimeError("ssh"), late=False)
    assert is_transient(error)
    assert read_record(job.dataset, "embeddings").job_id == 9


def test_a_job_that_waited_too_long_is_told_as_such(job, monkeypatch):
    job.record(9)
    monkeypatch.setattr(slurm_jobs, "SSHConnectionPool", lambda ssh: Cluster(sacct="CANCELLED by 0|0:15"))
    error = _explain(job, SimpleNamespace(ssh=None), SIZING, RuntimeError("Timed out"), late=True)
    assert "queue_allowance" in error.message
    assert not is_transient(error)


def test_a_missing_model_is_named_before_a_job_is_submitted(copy_of_finished, monkeypatch):
    registry = copy_of_finished / "datasets.yaml"
    registry.write_text(registry.read_text().replace("backbone: efficientnet_lite0", "backbone: nobody/no-model"))
    cluster = copy_of_finished / "cluster.yaml"
    cluster.write_text(f"env: {{HF_HOME: {copy_of_finished}/hub}}\n")
    monkeypatch.setenv("AGML_SLURM_PROFILE", str(cluster))
    monkeypatch.setattr(slurm_jobs, "run_job", lambda *arguments: pytest.fail("submitted"))
    from agml_assets.training.artifacts import DYNAMICS

    result = run_in_process(copy_of_finished, DYNAMICS, compute=Compute("slurm"))
    assert not result.success
    [failure] = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    assert "'nobody/no-model'" in failure.user_failure_data.description
    assert "agml-assets prefetch tiny" in failure.user_failure_data.description


def test_a_model_is_cached_with_its_configuration_and_weights(tmp_path):
    commit = "0" * 40
    folder = tmp_path / "models--owner--model"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    assert not is_cached("owner/model", None, tmp_path)
    (snapshot / "model.safetensors").write_bytes(b"")
    assert is_cached("owner/model", None, tmp_path)
    assert is_cached("owner/model", commit, tmp_path)
    assert not is_cached("owner/model", "1" * 40, tmp_path)
    assert not is_cached("owner/other", None, tmp_path)


def test_prefetch_names_every_missing_piece_and_goes_on(tmp_path, monkeypatch, caplog):
    images = write_images(tmp_path / "images", per_class=2)
    (tmp_path / "datasets.yaml").write_text(
        "datasets:\n"
        f"  - {{name: gone, path: {tmp_path}/nowhere, settings: {{embed_model: {tmp_path}/no_model, "
        "backbone: efficientnet_lite0}}\n"
        f"  - {{name: here, path: {images}, settings: {{embed_model: efficientnet_lite0, "
        "backbone: efficientnet_lite0}}\n"
    )
    monkeypatch.setenv("AGML_REGISTRY", str(tmp_path / "datasets.yaml"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    caplog.set_level("INFO")
    assert main(["prefetch", "--all", "--check"]) == 1
    missing = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(missing) == 2
    assert any("dataset 'gone'" in line and "nowhere" in line for line in missing)
    assert any("no_model" in line for line in missing)
    assert main(["prefetch", "here", "--check"]) == 0


def test_prefetch_opens_models_to_be_evaluated_with_their_text_half(tmp_path, monkeypatch, caplog):
    for name in ("whole", "textless"):
        (tmp_path / name).mkdir()
        save_clip(tmp_path / name)
    save_tokenizer(tmp_path / "whole")
    model = "provider: transformers, checkpoint:"
    (tmp_path / "models.yaml").write_text(
        f"models:\n  - {{key: whole, {model} {tmp_path}/whole, zero_shot: true}}\n"
        f"  - {{key: textless, {model} {tmp_path}/textless, zero_shot: true}}\n"
        f"  - {{key: images, {model} {tmp_path}/textless}}\n"
        f"  - {{key: gone, {model} {tmp_path}/gone}}\n"
        "  - {key: lite, provider: packaged, checkpoint: efficientnet_lite0}\n"
    )
    monkeypatch.setenv("AGML_MODELS", str(tmp_path / "models.yaml"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    caplog.set_level("INFO")
    assert main(["prefetch", "--check", "--model", "whole", "images", "--model", "lite"]) == 0
    here = [record.message.partition(" (")[0] for record in caplog.records if record.message.endswith(" is here.")]
    assert here[:4] == ["model 'whole'", "text half of model 'whole'", "model 'images'", "model 'lite'"]
    caplog.clear()
    assert main(["prefetch", "--check", "--model", "gone", "textless", "whole"]) == 1
    missing = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert [line.partition(" (")[0] for line in missing[:2]] == [
        "Missing: model 'gone'",
        "Missing: text half of model 'textless'",
    ]
    assert all("(for evaluation)" in line for line in missing[:2])


def test_models_that_are_not_registered_are_all_named_before_anything_is_read(monkeypatch, capsys):
    monkeypatch.setattr(prefetch, "fetch", lambda pieces: pytest.fail("read"))
    assert main(["prefetch", "--check", "--model", "dinov2-bas", "nothing-like-it", "dinov2-base"]) == 1
    said = capsys.readouterr().err
    assert "dinov2-bas" in said and "nothing-like-it" in said


def test_a_library_of_the_extra_is_asked_for_its_weights(tmp_path, monkeypatch):
    asked = []

    def create_model(name, pretrained):
        asked.append((name, pretrained))
        raise RuntimeError("no network")

    stand_in = ModuleType("timm")
    stand_in.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", stand_in)
    entry = ModelEntry(key="vit", provider="timm", checkpoint="hf-hub:owner/vit", revision="abc")
    registry = ModelRegistry((entry,), "a test")
    [(piece, reason)] = prefetch.fetch(prefetch.pieces_of_models(registry, ["vit"]))
    assert asked == [("hf-hub:owner/vit@abc", True)]
    assert "hf-hub:owner/vit at abc" in piece.name and "no network" in reason


def test_submitting_is_refused_while_something_to_read_is_missing(tmp_path, monkeypatch, capsys):
    (tmp_path / "datasets.yaml").write_text(
        f"datasets:\n  - {{name: gone, path: {tmp_path}/nowhere, phases: [1]}}\n"
    )
    (tmp_path / "cluster.yaml").write_text("defaults: {cpus: 1}\n")
    monkeypatch.setenv("AGML_REGISTRY", str(tmp_path / "datasets.yaml"))
    monkeypatch.setattr(slurm, "submit", lambda script: pytest.fail("submitted"))
    options = ["--profile", str(tmp_path / "cluster.yaml"), "--results", str(tmp_path / "results")]
    assert main(["slurm", "submit", *options]) == 1
    said = capsys.readouterr().err
    assert "Nothing was submitted" in said
    assert "dataset 'gone'" in said
    monkeypatch.setattr(slurm, "submit", lambda script: 5)
    assert main(["slurm", "submit", "--unchecked", *options]) == 0
    assert "Submitted job 5" in capsys.readouterr().out
