"""The task registry: what loads, what is refused and how, installed tasks, and what the docs say of it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from agml_assets.errors import UserError
from agml_assets.evaluation.tasks import READERS, read_task
from agml_assets.registry.datasets import load_registry
from agml_assets.registry.tasks import SHIPPED, TaskEntry, check_keys_are_unique, load_tasks

DOCS = Path(__file__).parents[2] / "docs/tasks.md"
NINE = ["beluga", "fishnet", "fungiclef", "herbarium19", "iwildcam", "kabr", "mammalnet", "plankton", "plantnet"]
BESIDE = ["ecdysis", "imagenet1k", "newt", "inat21"]


@pytest.fixture(autouse=True)
def empty_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGML_TASKS", raising=False)
    monkeypatch.delenv("AGML_TASK_DATA", raising=False)


def load(text, file="tasks.yaml"):
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return load_tasks(path)


def refused(text):
    with pytest.raises(UserError) as error:
        load(text)
    return error.value.message


def test_thirteen_tasks_ship_and_the_nine_are_the_mean():
    tasks = load_tasks()
    assert tasks.keys() == [*NINE, *BESIDE]
    assert [entry.key for entry in tasks.entries if entry.counts_in_mean] == NINE
    assert tasks.where == str(SHIPPED)
    assert all(entry.reader in READERS for entry in tasks.entries)


def test_the_protocol_is_the_published_one():
    """Section by section of the published description: probe, metric, how images of one example are joined."""
    assert {entry.key: (entry.probe, entry.metric, entry.aggregate) for entry in load_tasks().entries} == {
        "beluga": ("knn", "macro_f1", None),
        "fishnet": ("multi_label", "trait_f1", None),
        "fungiclef": ("simpleshot_open_set", "user_loss", "mean"),
        "herbarium19": ("linear", "macro_f1", None),
        "iwildcam": ("linear", "macro_f1", None),
        "kabr": ("logistic", "macro_f1", "max"),
        "mammalnet": ("logistic", "macro_f1", "max"),
        "plankton": ("linear", "macro_f1", None),
        "plantnet": ("linear", "macro_f1", None),
        "ecdysis": ("linear", "macro_f1", None),
        "imagenet1k": ("linear", "accuracy", None),
        "newt": ("svm", "accuracy", None),
        "inat21": ("linear", "accuracy", None),
    }


def test_the_nine_span_four_kingdoms_and_six_modalities():
    nine = [entry for entry in load_tasks().entries if entry.counts_in_mean]
    assert {entry.kingdom for entry in nine} == {"animal", "plant", "fungi", "protist"}
    assert {entry.modality for entry in nine} == {
        "drone video", "web video", "micrographs", "in-situ photos", "specimen photos", "camera trap",
    }  # fmt: skip


def test_every_shipped_task_says_how_to_get_it_and_what_to_cite():
    for entry in load_tasks().entries:
        assert entry.download.files or entry.download.instructions, entry.key
        assert entry.citation, entry.key
        assert entry.homepage, entry.key


def test_shipped_keys_are_unique_over_datasets_too():
    check_keys_are_unique(load_tasks(), load_registry())


def test_a_key_that_a_dataset_has_as_well_is_refused():
    tasks = load("tasks: [{key: Beans, modality: photos}, {key: peas, modality: photos}]")
    Path("datasets.yaml").write_text("datasets: [{name: AI-Lab-Makerere/beans}, {name: other/corn}]")
    with pytest.raises(UserError, match=r"have: Beans \(case does not count\)"):
        check_keys_are_unique(tasks, load_registry("datasets.yaml"))


def test_a_file_of_the_user_takes_the_place_of_the_shipped_one(monkeypatch):
    Path("mine.yaml").write_text("tasks: [{key: mine, modality: photos, path: data/mine}]")
    monkeypatch.setenv("AGML_TASKS", "mine.yaml")
    (entry,) = load_tasks().entries
    assert entry == TaskEntry(key="mine", modality="photos", path=Path.cwd() / "data/mine")
    assert (entry.display_name, entry.reader, entry.probe, entry.metric) == ("mine", "mine", "linear", "macro_f1")
    monkeypatch.setenv("AGML_TASKS", "other.yaml")
    with pytest.raises(UserError, match=r"named by \$AGML_TASKS, does not exist"):
        load_tasks()


def test_data_are_where_the_entry_or_the_environment_says(monkeypatch):
    entry = load_tasks().get("newt")
    monkeypatch.setenv("AGML_TASK_DATA", "data")
    assert entry.root() == Path.cwd() / "data/newt"
    assert entry.model_copy(update={"path": Path("/elsewhere")}).root() == Path("/elsewhere")


def test_an_unknown_task_names_those_that_look_like_it():
    with pytest.raises(UserError, match="'planktn' is not registered in .* Did you mean 'plankton'"):
        load_tasks().get("planktn")
    with pytest.raises(UserError, match="Registered are: beluga, fishnet"):
        load_tasks().get("zzz")


def test_every_wrong_entry_is_named_with_the_file():
    message = refused(
        """
tasks:
  - {key: a b, modality: photos}
  - {key: one, modality: photos, prob: knn}
  - {key: two, modality: photos, probe: forest}
  - {key: three}
  - just text
  - {key: four, modality: photos, download: {files: [{url: ftp://x, file: a}]}}
  - {key: five, modality: photos, download: {files: [{url: https://x, file: ../a}]}}
  - {key: six, modality: photos, download: {files: [{url: https://x, file: a, md5: ABC}]}}
  - {key: seven, modality: photos, download: {files: [{url: https://x, file: a, checksum: b}]}}
  - {key: eight, modality: photos, n_train: many}
  - {key: Twice, modality: photos}
  - {key: twice, modality: photos}
"""
    )
    lines = message.splitlines()
    assert str(Path.cwd() / "tasks.yaml") in lines[0]
    wanted = [
        r"entry 1 \('a b'\): `key`: 'a b' cannot be a key",
        r"entry 2 \('one'\): unknown key 'prob'. Did you mean 'probe'",
        r"entry 3 \('two'\): `probe`: Input should be 'linear', 'logistic'",
        r"entry 4 \('three'\): `modality`: is missing",
        r"entry 5: must be a mapping with a `key`",
        r"entry 6 \('four'\): `download.files.0.url`: 'ftp://x' must begin with https:// or http://",
        r"entry 7 \('five'\): `download.files.0.file`: '../a' must be a relative path",
        r"entry 8 \('six'\): `download.files.0.md5`: 'ABC' is no md5",
        r"entry 9 \('seven'\): unknown key 'checksum'. Known are url, file",
        r"entry 10 \('eight'\): `n_train`: Input should be a valid integer",
        r"two tasks have the same key, 'Twice' and 'twice'",
    ]
    assert len(lines) == 1 + len(wanted)
    for line, pattern in zip(lines[1:], wanted, strict=True):
        assert re.search(pattern, line), line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be a mapping with a list `tasks`"),
        ("- a", "must be a mapping with a list `tasks`"),
        ("task: []", "unknown key 'task'. Did you mean 'tasks'"),
        ("tasks: {}", "`tasks` must be a list of entries"),
        ("tasks: [", "line 2, is not valid YAML|line 1, is not valid YAML"),
        ("tasks: [{key: a, key: b}]", "line 1, is not valid YAML: the key 'key' is given twice"),
        ("tasks: !!python/object/apply:os.getcwd []", "is not valid YAML"),
    ],
)
def test_a_file_that_is_no_registry_is_refused(text, message):
    assert re.search(message, refused(text))


def test_a_reader_that_does_not_exist_is_named(tmp_path):
    (tmp_path / "data").mkdir()
    entry = TaskEntry(key="a", modality="photos", reader="planktn", path=tmp_path / "data")
    with pytest.raises(UserError, match="no reader 'planktn'. Did you mean 'plankton'"):
        read_task(entry)


def install(folder, module, code, name="beetles"):
    """Lay a package out as pip would, with a task among its entry points."""
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[agml_assets.tasks]\n{name} = {module}\n")


def code_of_the_docs(language):
    return re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(), re.DOTALL)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of installed packages; what is imported from it is forgotten again."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield tmp_path / "site"
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_task_is_added_in_one_file_as_the_docs_say(site, tmp_path, monkeypatch):
    code = next(code for code in code_of_the_docs("python") if "ENTRY" in code)
    (toml,) = code_of_the_docs("toml")
    assert 'beetles = "beetles_task"' in toml
    install(site, "beetles_task", code)
    entry = load_tasks().get("beetles")
    assert (entry.reader, entry.probe, entry.counts_in_mean) == ("beetles", "ridge", True)
    assert load_tasks().keys() == [*NINE, *BESIDE, "beetles"]
    monkeypatch.setenv("AGML_TASK_DATA", str(tmp_path / "data"))
    with pytest.raises(UserError, match="Ask the gardener"):
        read_task(entry)
    folder = tmp_path / "data/beetles"
    folder.mkdir(parents=True)
    (folder / "beetles.csv").write_text(
        "photo,species,year,garden\na.jpg,Carabus,2022,north\nb.jpg,Lucanus,2023,south\nc.jpg,Carabus,2024,north\n"
    )
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        Image.new("RGB", (16, 16)).save(folder / name)
    data = read_task(entry)
    assert data.class_names == ("Carabus", "Lucanus")
    assert data.examples.rows() == [
        ("a.jpg", "train", 0, ["a.jpg"], "north"),
        ("b.jpg", "train", 1, ["b.jpg"], "south"),
        ("c.jpg", "test", 0, ["c.jpg"], "north"),
    ]
    assert data.notes == ("1 class of the training split are not tested: Lucanus.",)


def test_a_folder_per_class_is_added_as_the_docs_say(tmp_path):
    (text,) = code_of_the_docs("yaml")
    for name in ("train/oak/a.jpg", "test/oak/b.jpg"):
        (tmp_path / "beetles" / name).parent.mkdir(parents=True)
        Image.new("RGB", (16, 16)).save(tmp_path / "beetles" / name)
    entry = load(text.replace("/data/beetles", str(tmp_path / "beetles"))).get("beetles")
    assert read_task(entry).examples["split"].to_list() == ["train", "test"]


def test_an_entry_of_the_file_comes_before_an_installed_one(site):
    install(site, "plugin_a", "ENTRY = {'key': 'Mine', 'modality': 'b'}\ndef read(entry, root): ...\n", "mine")
    tasks = load("tasks: [{key: mine, modality: a}]")
    assert [(entry.key, entry.modality) for entry in tasks.entries] == [("mine", "a")]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import nothing_like_it", "of the package plugin_b .* cannot be imported: ModuleNotFoundError"),
        ("x = 1", "ENTRY and read are missing"),
        ("ENTRY = {'key': 'b', 'modality': 'm'}\nread = 3", "no function"),
        ("ENTRY = {'key': 'b'}\ndef read(entry, root): ...", "`modality`: is missing"),
        ("ENTRY = 5\ndef read(entry, root): ...", "must be a mapping"),
    ],
)
def test_a_broken_installed_task_is_named(site, code, message):
    install(site, "plugin_b", code, "b")
    with pytest.raises(UserError, match=message):
        load_tasks()


def test_a_reader_that_gives_no_valid_task_is_named(site, tmp_path):
    install(
        site, "plugin_c",
        "from agml_assets.evaluation.tasks.base import TaskData, make_frame\n"
        "ENTRY = {'key': 'c', 'modality': 'm', 'path': '.'}\n"
        "def read(entry, root):\n"
        "    rows = [('x', 'train', 5, ['x'], None), ('x', 'test', -1, [], None)]\n"
        "    return TaskData(root, make_frame(rows), ('a', 'a'))\n",
        "c",
    )  # fmt: skip
    with pytest.raises(UserError) as error:
        read_task(load_tasks().get("c"))
    for part in ("named once: x", "needs an image", "labels must be -1 to 1", "class names must be unique"):
        assert part in error.value.message


def test_the_docs_list_every_task_as_it_is_registered():
    table = DOCS.read_text().split("## The tasks")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:3] == "| `"
    ]
    assert [row[0].strip("`") for row in rows] == load_tasks().keys()
    for row, entry in zip(rows, load_tasks().entries, strict=True):
        numbers = " / ".join(f"{n:,}" for n in (entry.n_train, entry.n_test) if n is not None)
        assert row[1:4] == [entry.display_name, entry.kingdom or "", entry.modality]
        assert row[4].split(",")[0] == entry.probe
        assert row[5:7] == [entry.metric, numbers]
        assert row[7].removesuffix(" traits") == (f"{entry.n_classes:,}" if entry.n_classes else "")
        assert row[9] == (entry.licence or f"ask the [source]({entry.homepage})")


def test_loading_the_registry_imports_nothing_heavy():
    code = (
        "import sys; from agml_assets.registry.tasks import load_tasks; load_tasks();"
        "from agml_assets.evaluation.tasks import read_task;"
        "print([m for m in ('torch', 'sklearn', 'datasets', 'pyarrow.parquet') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
