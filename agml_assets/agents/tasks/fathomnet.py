"""Images of a list in COCO's JSON format, downloaded from their addresses: whole, once, again after a failure.

What the images are used for is `splits`.
"""

import http.client
import json
import logging
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3

from agml_assets.errors import UserError
from agml_assets.locks import Unfinished
from agml_assets.store import file_digest

logger = logging.getLogger(__name__)

SUMS = "checksums.json"
"""Beside the images: the BLAKE3 of each, by name."""

_AT_ONCE = 4  # few: the server belongs to a research institute
_TRIES = 5
_FIRST_PAUSE_S = 1.0
_TIMEOUT_S = 60.0
_CHUNK = 1 << 20
_LARGEST = 1 << 30  # bytes of an image
_FOR_NOW = (408, 425, 429, 500, 502, 503, 504)  # answers that may be another the next time: RFC 9110, RFC 6585


@dataclass(frozen=True)
class Downloaded:
    """What a download did.

    Attributes:
        new: Images that were fetched.
        kept: Images that were there already, whole.
    """

    new: int
    kept: int


def download_images(dataset: Path, outpath: Path, pause_s: float = _FIRST_PAUSE_S) -> Downloaded:
    """Download the images of a list into a folder, a few at once.

    Run it again after a break: what is there and has its checksum stays; what is half there is fetched anew.

    Args:
        dataset: JSON with a list `images`, each with `file_name` and `coco_url`.
        outpath: Folder for the images; made where it is not there.
        pause_s: Seconds before the second try of an image; doubled before each further one.

    Raises:
        UserError: The list is no such file, or images could not be fetched; the first are named.
    """
    wanted = _read_list(dataset)
    outpath.mkdir(parents=True, exist_ok=True)
    sums = _read_sums(outpath / SUMS)
    todo = {name: url for name, url in wanted.items() if not _is_whole(outpath / name, sums.get(name))}
    failed: dict[str, str] = {}

    def fetch(item: tuple[str, str]) -> None:
        name, url = item
        try:
            sums[name] = _fetch(url, outpath / name, pause_s)
        except (OSError, http.client.HTTPException, ValueError) as error:
            failed[name] = str(error) or type(error).__name__

    logger.info("%s of %s images are to be downloaded to %s.", f"{len(todo):,}", f"{len(wanted):,}", outpath)
    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for done, _ in enumerate(pool.map(fetch, todo.items()), start=1):
                if done % 1000 == 0:
                    _write_sums(outpath / SUMS, sums)
    finally:
        _write_sums(outpath / SUMS, sums)
    if failed:
        shown = "; ".join(f"{name}: {reason}" for name, reason in sorted(failed.items())[:3])
        raise UserError(
            f"{len(failed)} of {len(wanted)} images of {dataset} could not be downloaded ({shown}). "
            "Run the same again: what is there stays."
        )
    return Downloaded(len(todo), len(wanted) - len(todo))


def _read_list(dataset: Path) -> Mapping[str, str]:
    """Return the address of each image, by its file's name."""
    try:
        document = json.loads(dataset.read_text(encoding="utf-8-sig"))
        images = [(image["file_name"], image["coco_url"]) for image in document["images"]]
    except FileNotFoundError:
        raise UserError(f"The list of images {dataset} does not exist.") from None
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise UserError(
            f"The list of images {dataset} must be JSON with `images`, each with `file_name` and "
            f"`coco_url` ({error})."
        ) from None
    for name, url in images:
        if not isinstance(name, str) or not name or Path(name).name != name or name in (".", "..", SUMS):
            raise UserError(f"The list of images {dataset} names the file {name!r}; a plain file name is due.")
        if not isinstance(url, str) or urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise UserError(
                f"The list of images {dataset} has the address {url!r} for {name}; it must be http or https."
            )
    return dict(images)


def _fetch(url: str, file: Path, pause_s: float) -> str:
    """Download one image and return its BLAKE3; an answer that breaks off, or an error for now, is tried again."""
    for tries_left in reversed(range(_TRIES)):
        try:
            return _fetch_once(url, file)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code not in _FOR_NOW or not tries_left:
                raise
        except (OSError, http.client.HTTPException):
            if not tries_left:
                raise
        time.sleep(pause_s)
        pause_s *= 2
    raise AssertionError("unreachable")


def _fetch_once(url: str, file: Path) -> str:
    digest, received = blake3(), 0
    request = urllib.request.Request(url, headers={"User-Agent": "agml-assets"})  # noqa: S310 - http and https alone
    with (
        urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer,  # noqa: S310
        Unfinished(file.parent, file.name) as stage,
        stage.open("wb") as handle,
    ):
        while chunk := answer.read(_CHUNK):
            received += len(chunk)
            if received > _LARGEST:
                raise ValueError(f"larger than {_LARGEST >> 20} MiB")
            digest.update(chunk)
            handle.write(chunk)
        announced = answer.headers.get("Content-Length")
        if announced is not None and announced.isdecimal() and int(announced) != received:
            raise http.client.IncompleteRead(b"", int(announced) - received)
        if not received:
            raise OSError("the answer is empty")
        handle.flush()
        os.fsync(handle.fileno())
        stage.chmod(0o644)
        stage.replace(file)
    return digest.hexdigest()


def _is_whole(file: Path, expected: str | None) -> bool:
    return expected is not None and file.is_file() and file_digest(file) == expected


def _read_sums(file: Path) -> dict[str, str]:
    try:
        found: Any = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return {str(name): str(digest) for name, digest in found.items()} if isinstance(found, dict) else {}


def _write_sums(file: Path, sums: dict[str, str]) -> None:
    with Unfinished(file.parent, file.name) as stage:
        stage.write_text(json.dumps(dict(sorted(sums.copy().items())), indent=0))
        stage.chmod(0o644)
        stage.replace(file)
