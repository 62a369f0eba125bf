"""Files of Kaggle competitions, downloaded with the user's own account by the `kaggle` command.

The account is in `$KAGGLE_CONFIG_DIR`; nothing of it is read, logged or kept here.
"""

import json
import logging
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

from agml_assets.errors import UserError
from agml_assets.store import file_digest

logger = logging.getLogger(__name__)

ACCOUNT = "KAGGLE_CONFIG_DIR"
_ACCOUNT_FILES = ("kaggle.json", "access_token")


def download_competition(competition: str, folder: Path) -> Path:
    """Return the archive of a competition's files, downloaded into a folder unless it is there already, whole.

    Raises:
        UserError: There is no account, no `kaggle` command, the rules were not accepted, or the download
            fails; it says what to do.
    """
    archive, receipt = folder / f"{competition}.zip", folder / f"{competition}.json"
    if _is_whole(archive, receipt):
        return archive
    account = _require_account(competition)
    command = shutil.which("kaggle")
    if command is None:
        raise UserError(
            f"The files of the Kaggle competition {competition!r} are downloaded by the `kaggle` command, which "
            "is not installed: pip install kaggle"
        )
    folder.mkdir(parents=True, exist_ok=True)
    logger.info("Downloading the files of the Kaggle competition %s to %s.", competition, folder)
    done = subprocess.run(  # noqa: S603 - no shell, and the name comes from a manifest
        [command, "competitions", "download", "-c", competition, "-p", str(folder)],
        env={**os.environ, ACCOUNT: str(account)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode or not archive.is_file():
        raise UserError(_explain(competition, f"{done.stdout}\n{done.stderr}"))
    if not zipfile.is_zipfile(archive):
        archive.unlink()
        raise UserError(f"What Kaggle sent for {competition!r} is no zip archive; it was removed. Try again.")
    receipt.write_text(json.dumps({"bytes": archive.stat().st_size, "blake3": file_digest(archive)}))
    return archive


def extract(archive: Path, target: Path, wanted: Callable[[str], bool] = lambda name: True) -> None:
    """Extract members of an archive whose names are wanted; none leaves the target.

    Raises:
        UserError: The archive is damaged.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            for member in opened.namelist():
                if wanted(member):
                    opened.extract(member, target)
    except (zipfile.BadZipFile, EOFError) as error:
        raise UserError(f"{archive} is damaged: {error}. Remove it and prepare the task again.") from None


def _is_whole(archive: Path, receipt: Path) -> bool:
    try:
        expected = json.loads(receipt.read_text())
        return archive.stat().st_size == expected["bytes"] and file_digest(archive) == expected["blake3"]
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _require_account(competition: str) -> Path:
    page = f"https://www.kaggle.com/competitions/{competition}/rules"
    steps = (
        "Make a token on https://www.kaggle.com/settings, put its kaggle.json into a folder of its own, let "
        f"${ACCOUNT} name the folder, and accept the rules on {page}."
    )
    named = os.environ.get(ACCOUNT)
    if not named:
        raise UserError(f"The Kaggle competition {competition!r} needs an account: ${ACCOUNT} is not set. {steps}")
    account = Path(named).expanduser().absolute()
    if not any((account / name).is_file() for name in _ACCOUNT_FILES):
        raise UserError(
            f"The Kaggle competition {competition!r} needs an account: there is no kaggle.json in {account}, "
            f"which ${ACCOUNT} names. {steps}"
        )
    return account


def _explain(competition: str, said: str) -> str:
    page = f"https://www.kaggle.com/competitions/{competition}"
    lower = said.lower()
    if "403" in said or "forbidden" in lower or "accept" in lower:
        return f"Kaggle refuses the files of {competition!r}: accept its rules on {page}/rules, then try again."
    if "401" in said or "unauthorized" in lower:
        return (
            f"Kaggle does not know the account in ${ACCOUNT}: make a new token on https://www.kaggle.com/settings."
        )
    if "404" in said or "not found" in lower:
        return f"Kaggle has no competition {competition!r} at {page}, or no files of it any more."
    last = [line.strip() for line in said.splitlines() if line.strip()][-1:] or ["it said nothing"]
    return (
        f"The files of the Kaggle competition {competition!r} could not be downloaded: {last[0][:300]}. Try again."
    )
