"""Downloads from Kaggle, by a command that stands in for the real one."""

import json
import os
import stat
import sys
import zipfile

import pytest

from agml_assets.agents.tasks.kaggle import download_competition, extract
from agml_assets.errors import UserError

FAKE = """#!{python}
import json, os, pathlib, sys, zipfile
assert sys.argv[1:4] == ["competitions", "download", "-c"], sys.argv
name, folder = sys.argv[4], pathlib.Path(sys.argv[6])
log = pathlib.Path({log!r})
log.write_text(log.read_text() + name + "\\n" if log.exists() else name + "\\n")
account = json.loads(pathlib.Path(os.environ["KAGGLE_CONFIG_DIR"], "kaggle.json").read_text())
if account["username"] == "new":
    sys.exit("403 - Forbidden - You must accept this competition's rules before you can continue")
if account["username"] == "wrong":
    sys.exit("401 - Unauthorized")
if account["username"] == "cut":
    (folder / (name + ".zip")).write_bytes(b"PK half")
    sys.exit(0)
if account["username"] == "gone":
    sys.exit("404 - Not Found")
with zipfile.ZipFile(folder / (name + ".zip"), "w") as archive:
    archive.writestr("train.csv", "Id,SalePrice\\n1,2\\n")
    archive.writestr("../outside.txt", "x")
"""


@pytest.fixture
def kaggle(tmp_path, monkeypatch):
    """Give a function that sets the account's name, with the fake command on the path."""
    command = tmp_path / "bin" / "kaggle"
    command.parent.mkdir()
    command.write_text(FAKE.format(python=sys.executable, log=str(tmp_path / "log")))
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("KAGGLE_CONFIG_DIR", str(tmp_path / "account"))
    (tmp_path / "account").mkdir()

    def log_in(name):
        (tmp_path / "account" / "kaggle.json").write_text(json.dumps({"username": name, "key": "s3cret"}))

    return log_in


def test_an_archive_is_downloaded_once(kaggle, tmp_path):
    kaggle("good")
    archive = download_competition("houses", tmp_path / "downloads")
    assert zipfile.is_zipfile(archive)
    assert download_competition("houses", tmp_path / "downloads") == archive
    assert (tmp_path / "log").read_text() == "houses\n"
    archive.write_bytes(archive.read_bytes()[:-1] + b"x")
    download_competition("houses", tmp_path / "downloads")
    assert (tmp_path / "log").read_text() == "houses\nhouses\n"


@pytest.mark.parametrize(
    ("account", "said"),
    [
        ("new", "accept its rules on https://www.kaggle.com/competitions/houses/rules"),
        ("wrong", "does not know the account"),
        ("cut", "no zip archive; it was removed"),
        ("gone", "has no competition 'houses'"),
    ],
)
def test_a_refusal_says_what_to_do_and_nothing_of_the_key(kaggle, tmp_path, account, said):
    kaggle(account)
    with pytest.raises(UserError, match=said) as error:
        download_competition("houses", tmp_path / "downloads")
    assert "s3cret" not in error.value.message
    assert not (tmp_path / "downloads" / "houses.zip").exists()


def test_without_an_account_it_says_how_to_get_one(kaggle, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"there is no kaggle.json in .*account"):
        download_competition("houses", tmp_path)
    monkeypatch.delenv("KAGGLE_CONFIG_DIR")
    with pytest.raises(UserError, match=r"\$KAGGLE_CONFIG_DIR is not set. Make a token on"):
        download_competition("houses", tmp_path)


def test_without_the_command_it_says_how_to_install_it(kaggle, tmp_path, monkeypatch):
    kaggle("good")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="pip install kaggle"):
        download_competition("houses", tmp_path)


def test_nothing_is_extracted_outside_the_target(kaggle, tmp_path):
    kaggle("good")
    archive = download_competition("houses", tmp_path / "downloads")
    extract(archive, tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b" / "train.csv").is_file()
    assert not (tmp_path / "a" / "outside.txt").exists()
    extract(archive, tmp_path / "c", lambda name: name == "train.csv")
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["train.csv"]
