"""What a dataset, a registry or a name could do to the machine or to a reader; and that it cannot."""

import ast
import contextlib
import json
import os
import stat
import zipfile
from pathlib import Path

import datasets
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import agml_assets
from agml_assets.dataset.sources import hf, open_source
from agml_assets.errors import UserError
from agml_assets.registry.datasets import DatasetEntry
from agml_assets.store import ArtifactStore
from tests.dataset.test_sources_hf import examples, imagefolder, offline, png, source  # noqa: F401
from tests.hostile.faked import Faked, unit_vectors

ROOT = Path(agml_assets.__file__).parent.parent
SOURCES = sorted(file for folder in ("agml_assets", "jobs", "resources") for file in (ROOT / folder).rglob("*.py"))

# --- nothing from outside is executed or unpickled ------------------------------------------------

OUR_OWN_PIPES = {("agml_assets/dataset/decode_pool.py", "pickle.load")}
"""Between a process and its own child, over a pipe that nothing else can write to."""

FORBIDDEN = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "hash",  # salted for each process: equal contents would differ
    "pickle.load",
    "pickle.loads",
    "pickle.Unpickler",
    "dill.load",
    "dill.loads",
    "cloudpickle.load",
    "cloudpickle.loads",
    "joblib.load",
    "marshal.load",
    "marshal.loads",
    "shelve.open",
    "pandas.read_pickle",
    "pd.read_pickle",
    "yaml.unsafe_load",
    "yaml.full_load",
    "yaml.load_all",
    "os.system",
    "os.popen",
    "tempfile.mktemp",
}


def violations(code: str, file: str = "x.py") -> list[str]:
    """Return the calls of a module that could execute what they are given."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        said = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        bad = name in FORBIDDEN and (file, name) not in OUR_OWN_PIPES
        bad |= name == "torch.load" and said.get("weights_only") != "True"
        bad |= name in ("np.load", "numpy.load") and said.get("allow_pickle") != "False"
        bad |= (
            name == "yaml.load" and "Strict" not in said.get("Loader", "") and "Safe" not in said.get("Loader", "")
        )
        bad |= said.get("shell", "False") != "False"
        bad |= said.get("trust_remote_code", "False") != "False"
        bad |= name.endswith(("from_pretrained", "torch.hub.load")) and "torch.hub" in name
        bad |= name.endswith(".extractall")
        if bad:
            found.append(f"{file}:{node.lineno}: {ast.unparse(node)}")
    return found


def test_no_module_executes_or_unpickles_what_it_reads():
    assert len(SOURCES) > 80
    found = [v for file in SOURCES for v in violations(file.read_text("utf-8"), file.relative_to(ROOT).as_posix())]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "pickle.load(f)",
        "torch.load(f)",
        "torch.load(f, weights_only=False)",
        "np.load(f)",
        "np.load(f, allow_pickle=True)",
        "yaml.load(f)",
        "yaml.load(f, Loader=yaml.Loader)",
        "subprocess.run(c, shell=True)",
        "AutoModel.from_pretrained(n, trust_remote_code=True)",
        "eval(text)",
        "archive.extractall(folder)",
        "hash(content)",
    ],
)
def test_the_check_sees_each_of_them(code):
    assert violations(code)


def test_the_yaml_loader_makes_no_python_objects():
    tree = ast.parse((ROOT / "agml_assets" / "registry" / "yaml_files.py").read_text("utf-8"))
    (loader,) = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == "StrictLoader"]
    assert [ast.unparse(base) for base in loader.bases] == ["yaml.SafeLoader"]


# --- paths stay inside ----------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(
    st.text(alphabet=st.sampled_from("ab./\\\0~$- _%é"), max_size=12), st.text(alphabet="ab./\\\0 ", max_size=12)
)
def test_no_key_and_no_file_name_leads_out_of_the_results_root(key, file):
    store = ArtifactStore("/results/root")
    try:
        entry = DatasetEntry(name="owner/name", key=key)
        path = store.path(entry.key, file)
    except (UserError, ValueError):
        return
    assert Path(path.path).is_relative_to(f"/results/root/{entry.key}")
    assert ".." not in Path(path.path).parts


@pytest.mark.parametrize("name", ["../secret/1.png", "a/../../secret/1.png", "/etc/hostname"])
def test_metadata_of_an_image_folder_cannot_name_a_file_outside(tmp_path, name):
    imagefolder(tmp_path / "secret", "1.png")
    folder = imagefolder(tmp_path / "d", "a.png")
    rows = [{"file_name": "a.png", "kind": "x"}, {"file_name": name, "kind": "y"}]
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    try:
        found = examples(folder, label_col="kind")
    except UserError as error:
        assert "cannot be loaded" in error.message
        return  # the library refuses names that lead outside
    assert all(example.image is None for example in found if example.file != "a.png")


def test_an_archive_writes_nothing_outside_of_the_cache(tmp_path, offline, monkeypatch):  # noqa: F811
    monkeypatch.setattr(datasets.config, "EXTRACTED_DATASETS_PATH", offline / "extracted")
    (tmp_path / "d").mkdir()
    with zipfile.ZipFile(tmp_path / "d" / "all.zip", "w") as archive:
        archive.writestr("rust/leaf.png", png(3))
        archive.writestr("blight/leaf.png", png(4))
        archive.writestr("../../../../escaped.png", png(1))
        archive.writestr("/escaped.png", png(2))
    with contextlib.suppress(UserError):  # the library finds no image in it that it may read
        examples(tmp_path / "d")
    outside = [p for p in tmp_path.parent.parent.rglob("escaped.png") if not p.is_relative_to(offline)]
    assert outside == []
    assert not Path("/escaped.png").exists()


def test_an_archive_member_without_end_is_not_read(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(hf, "_MOST_BYTES", 10_000)
    with zipfile.ZipFile(tmp_path / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.png", bytes(10_000_000))
        archive.writestr("leaf.png", png(3))
    assert hf._fetch(f"zip://bomb.png::{tmp_path}/all.zip") is None
    assert "more than 10000 bytes" in caplog.text
    assert hf._fetch(f"zip://leaf.png::{tmp_path}/all.zip") == png(3)


def test_links_among_class_folders_that_lead_in_circles_end(tmp_path):
    imagefolder(tmp_path / "d", "rust/1.png", "blight/1.png")
    (tmp_path / "d" / "rust" / "again").symlink_to(tmp_path / "d")
    with pytest.raises(UserError, match="rust/again"):
        open_source(DatasetEntry(name="d", source="folder", path=tmp_path / "d")).info()


def test_files_that_are_no_files_are_left_alone(tmp_path):
    imagefolder(tmp_path / "d", "rust/1.png")
    os.mkfifo(tmp_path / "d" / "rust" / "pipe.png")  # reading it would wait for ever
    found = open_source(DatasetEntry(name="d", source="folder", path=tmp_path / "d"))
    assert stat.S_ISFIFO((tmp_path / "d" / "rust" / "pipe.png").stat().st_mode)
    assert [example.file for example in found.examples()] == ["rust/1.png"]


# --- pages escape every name ----------------------------------------------------------------------

SCRIPT = "</script><script>alert(1)</script>"
NAME = f"{SCRIPT}\"'`\u2028\u202e&lt;"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """The report of a dataset all of whose names, columns and values are hostile."""
    columns = {f"meta.{NAME}": [f"{NAME} {i % 3}" for i in range(30)]}
    labels = np.arange(30) % 3
    classes = tuple(f"{NAME} {i}" for i in range(3))
    vectors = unit_vectors(30, 8)
    vectors[29] = vectors[0]
    pixels = np.r_[:29, 0]
    faked = Faked(labels, classes, vectors, pixels, name=f"owner/{NAME}", file=NAME + "{row}", columns=columns)
    # Its key is chosen: a name like that gives none.
    return faked.report(tmp_path_factory.mktemp("hostile"), key="hostile")


def test_the_card_of_hostile_names_columns_and_values_runs_only_its_own_scripts(hostile):
    page = hostile.store.read(hostile.key, "report/card.html")
    assert "alert(1)" in page
    assert SCRIPT not in page
    assert "<script>alert" not in page
    assert not {"\u2028", "\u202e"} & set(page)
    ours = page.count("<script")
    assert ours == page.count("</script>")


def test_croissant_and_result_are_strict_json_with_hostile_names_as_they_are(hostile):
    croissant = hostile.store.read(hostile.key, "report/croissant.json")
    classes = next(r["data"] for r in croissant["recordSet"] if r["@id"] == "classes")
    assert [one["classes/name"] for one in classes] == [f"{NAME} {i}" for i in range(3)]
    ids = [f["@id"] for r in croissant["recordSet"] for f in r["field"]]
    assert len(ids) == len(set(ids))
    assert not [one for one in ids if set(one) & set("<>\"'` \u2028")]
    value = hostile.store.read(hostile.key, "result.json")
    assert value["dataset"] == f"owner/{NAME}"
    assert value["metrics"]["metadata_coverage"]["metadata_columns"] == [NAME]


def test_pictures_in_the_ui_carry_no_name():
    from agml_assets.recording import picture

    text = picture(Image.new("RGB", (4, 4)), "images by class").md_str
    assert text.startswith("![images by class](data:image/jpeg;base64,")
