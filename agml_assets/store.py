"""The artifact store: files under one root, written atomically, each with a sidecar.

Knows paths and formats, nothing of what an artifact means (`lineage`) nor of Dagster. Works on a
local folder and on any fsspec file system; arrays of a remote store are staged under `$AGML_SCRATCH`.
"""

import io
import json
import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from blake3 import blake3
from pydantic import TypeAdapter
from upath import UPath

from agml_assets.disk import named_when_full
from agml_assets.errors import UserError
from agml_assets.locks import UNFINISHED, Unfinished, remove_unfinished
from agml_assets.settings import expand_path, refuse_password

logger = logging.getLogger(__name__)

PLATFORM = "_platform"
"""Folder of everything that belongs to no dataset; no registry key can be called so."""

_HASH_CHUNK = 1 << 24


@dataclass(frozen=True)
class Sidecar:
    """What is known about one stored artifact.

    Attributes:
        artifact: Artifact key, such as `dataset/splits`.
        digest: BLAKE3 of the file, hexadecimal.
        bytes: Size of the file.
        code_version: Version of the code that made it.
        inputs: Digest of every upstream artifact it was made from.
        settings: Values of the settings that it depends on.
        source_digest: Identity of the source, for artifacts made from the source itself; else null.
        info: Facts for the report (resolved revision, fallbacks, device ...), JSON values.
        finished_at: UTC time, ISO 8601.
        duration_s: Seconds that it took.
        removed: Whether the file was removed on purpose; the sidecar goes on vouching for what was made from it.
    """

    artifact: str
    digest: str
    bytes: int
    code_version: str
    inputs: Mapping[str, str]
    settings: Mapping[str, Any]
    source_digest: str | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    finished_at: str = ""
    duration_s: float = 0.0
    removed: bool = False


_SIDECAR = TypeAdapter(Sidecar)


class ArtifactStore:
    """Files of artifacts under `root`.

    Args:
        root: Results root, a local folder or an fsspec location.
        scratch: Local folder for staged arrays, locks and unfinished work of remote roots;
            `$AGML_SCRATCH`, or a folder of the user's under the system's temporary folder.
    """

    def __init__(self, root: UPath | Path | str, scratch: Path | None = None) -> None:
        self.root = UPath(root)
        self.is_local = self.root.protocol in ("", "file", "local")
        if self.is_local:
            self.root = UPath(Path(self.root.path).absolute())
        else:
            refuse_password(str(self.root))
            # Another process may write there: a listing that was right a minute ago is not.
            self.root = UPath(root, **{**self.root.storage_options, "use_listings_cache": False})
        self._scratch = scratch
        self._reached = False

    @property
    def is_shared(self) -> bool:
        """Whether other processes see what this one writes."""
        return self.root.protocol != "memory"

    @property
    def scratch(self) -> Path:
        """Local folder for staged arrays and unfinished work of a remote store."""
        if self._scratch is not None:
            return self._scratch
        named = os.environ.get("AGML_SCRATCH")
        if named:
            return expand_path(named).absolute()
        return _default_scratch()

    def path(self, dataset: str, file: str) -> UPath:
        """Return where `file` (`room/name.ext`, or `result.json`) of `dataset` lies, existing or not."""
        parts = (dataset, *file.split("/"))
        outside = any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts)
        if outside or "/" in dataset:
            raise UserError(f"{dataset!r}: {file!r} is not a place inside the results root.")
        return self.root.joinpath(*parts)

    def local_folder(self, dataset: str, name: str) -> Path:
        """Return a local folder, created, for unfinished work and locks of `dataset`."""
        self.path(dataset, name)  # refuses what would leave the root
        folder = self._local_base / dataset / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def _local_base(self) -> Path:
        return Path(self.root.path) if self.is_local else self._made_scratch() / _slug(str(self.root))

    def _made_scratch(self) -> Path:
        """Return the scratch folder, made; refuse one under a guessable name that is another user's."""
        self.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.scratch == _default_scratch() and self.scratch.stat().st_uid != os.getuid():
            raise UserError(f"{self.scratch} is another user's. Let $AGML_SCRATCH name a folder of yours.")
        return self.scratch

    def require_access(self) -> None:
        """Refuse a remote root that cannot be written to, before hours of work are done for it.

        Raises:
            UserError: The bucket does not exist, or its server, the credentials or the permission is lacking.
        """
        if self.is_local or self._reached:
            return
        probe = self.root / PLATFORM / ".access"
        try:
            probe.fs.pipe_file(probe.path, b"")
            with suppress(FileNotFoundError):  # another process asks the same
                probe.fs.rm_file(probe.path)
        except Exception as error:  # whatever the driver raises
            raise self._out_of_reach(error) from error
        self._reached = True

    def _out_of_reach(self, error: Exception) -> UserError:
        reason = str(error) or type(error).__name__
        return UserError(
            f"The results root {self.root} cannot be used: {reason.rstrip('.')}. Check that the bucket exists, "
            "that its server answers, and that the environment has credentials that may read and write there "
            "(for S3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL)."
        )

    def remove_leftovers(self, dataset: str) -> None:
        """Remove what killed processes left unfinished among the files of `dataset` and of the platform.

        Safe at any time: a file that a living process is writing stays.
        """
        if self.is_local:
            folders = [self._local_base / name for name in (dataset, PLATFORM)]
            found = [file for folder in folders for file in folder.rglob(UNFINISHED)]
        else:
            found = list(self.scratch.glob(UNFINISHED))
        for file in remove_unfinished(found):
            logger.info("Removing %s, which a killed run has left.", file)
            if not self.is_local:
                shutil.rmtree(_staging_beside(file), ignore_errors=True)

    def sidecar(self, dataset: str, file: str) -> Sidecar | None:
        """Return the sidecar of a finished artifact; None when it is absent or unfinished."""
        path = self.path(dataset, file)
        try:
            sidecar = _SIDECAR.validate_json(_beside(path, ".meta.json").read_bytes(), strict=True)
            complete = sidecar.removed or path.stat().st_size == sidecar.bytes
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        except PermissionError as error:
            raise (self.refusal(error) if self.is_local else self._out_of_reach(error)) from None
        return sidecar if complete else None

    def refusal(self, error: OSError) -> UserError:
        """Return what to tell a user whose local folders gave this error."""
        what, where, by = "results root", str(self.root), "$AGML_RESULTS (or the setting output_dir)"
        if not self.is_local:
            what, where, by = "scratch folder", str(self.scratch), "$AGML_SCRATCH"
        return UserError(
            f"The {what} {where} cannot be used: {error.strerror or error} ({error.filename}). "
            f"Let {by} name a folder that you may write to."
        )

    def write(self, dataset: str, file: str, value: Any, sidecar: Mapping[str, Any]) -> Sidecar:
        """Write `value` in the format of the file's suffix, atomically, then its sidecar.

        Args:
            dataset: Dataset key.
            file: `room/name.ext`; the suffix is one of .parquet, .npy, .npz, .json, .html.
            value: A Polars frame, an array, a mapping of arrays, JSON values or text. A `Path` of a
                finished local file is moved into place; it stays where it is if that fails.
            sidecar: Fields of `Sidecar`, without those that are known only now.

        Returns:
            The complete sidecar.
        """
        path = self.path(dataset, file)
        note = _beside(path, ".meta.json")
        with ExitStack() as stack:
            stage, note_stage = (stack.enter_context(self._new_file(one)) for one in (path, note))
            finished = stage
            if not isinstance(value, Path):
                _dump(value, stage, path.suffix)
            elif value.stat().st_dev == stage.stat().st_dev:
                finished = value
            else:
                shutil.copyfile(value, stage)
            complete = Sidecar(
                **{**sidecar, "digest": file_digest(finished), "bytes": finished.stat().st_size},
                finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
            )
            note_stage.write_text(dump_json(asdict(complete)), encoding="utf-8")
            # Without its sidecar an artifact counts as absent: a crash between these lines leaves no lie.
            note.unlink(missing_ok=True)
            self._put(finished, path)
            self._put(note_stage, note)
            if isinstance(value, Path) and not self.is_local:
                finished.replace(self._staged(path, complete))  # the next step reads it
        if isinstance(value, Path):
            value.unlink(missing_ok=True)
        self.clear_failure(dataset, file)
        return complete

    def read(self, dataset: str, file: str) -> Any:
        """Read an artifact: a frame, a (memory-mapped) array, a dict of arrays, JSON values or text."""
        path = self.path(dataset, file)
        if path.suffix == ".json":
            return json.loads(path.read_text(encoding="utf-8"))
        if path.suffix == ".html":
            return path.read_text(encoding="utf-8")
        local = self._local_copy(path, dataset, file)
        if path.suffix == ".parquet":
            return pl.read_parquet(local)
        if path.suffix == ".npy":
            return np.load(local, mmap_mode="r", allow_pickle=False)
        with np.load(local, allow_pickle=False) as arrays:
            return dict(arrays)

    def local_file(self, dataset: str, file: str) -> Path:
        """Return an artifact as a local file, for formats that other libraries read; not to be changed."""
        return self._local_copy(self.path(dataset, file), dataset, file)

    def read_intact(self, dataset: str, file: str) -> Any:
        """Read an array whole, or None where it is absent or not, byte for byte, what was written.

        Nothing stays staged: for the many small files of a cache.
        """
        sidecar = self.sidecar(dataset, file)
        if sidecar is None or sidecar.removed:
            return None
        path = self.path(dataset, file)
        if self.is_local:
            local = Path(path.path)
            return np.load(local, allow_pickle=False) if file_digest(local) == sidecar.digest else None
        content = path.read_bytes()
        if blake3(content).hexdigest() != sidecar.digest:
            return None
        return np.load(io.BytesIO(content), allow_pickle=False)

    def is_intact(self, dataset: str, file: str) -> bool:
        """Return whether an artifact is there and its content is, byte for byte, what was written."""
        sidecar = self.sidecar(dataset, file)
        if sidecar is None or sidecar.removed:
            return False
        return file_digest(self._local_copy(self.path(dataset, file), dataset, file)) == sidecar.digest

    def remove(self, dataset: str, file: str) -> None:
        """Remove an artifact's file to save space; its sidecar stays, and says so."""
        sidecar = self.sidecar(dataset, file)
        if sidecar is not None and not sidecar.removed:
            path = self.path(dataset, file)
            self.write_text(_beside(path, ".meta.json"), dump_json(asdict(replace(sidecar, removed=True))))
            path.unlink(missing_ok=True)
            if not self.is_local:
                self._staged(path, sidecar).unlink(missing_ok=True)

    def write_text(self, path: UPath, text: str) -> None:
        """Write a small text file atomically."""
        with self._new_file(path) as stage:
            stage.write_text(text, encoding="utf-8")
            self._put(stage, path)

    def record_failure(self, dataset: str, file: str, *, error: str, run_id: str) -> None:
        """Note beside the artifact that the last try to make it failed, and why."""
        note = {"error": error, "run_id": run_id, "at": datetime.now(UTC).isoformat(timespec="seconds")}
        self.write_text(_beside(self.path(dataset, file), ".failed.json"), dump_json(note))

    def failure(self, dataset: str, file: str) -> dict[str, str] | None:
        """Return the note of a failed last try (`error`, `run_id`, `at`), or None."""
        try:
            text = _beside(self.path(dataset, file), ".failed.json").read_text(encoding="utf-8")
            note: dict[str, str] = json.loads(text)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        return note

    def clear_failure(self, dataset: str, file: str) -> None:
        """Forget a failed try."""
        _beside(self.path(dataset, file), ".failed.json").unlink(missing_ok=True)

    @contextmanager
    def _new_file(self, path: UPath) -> Iterator[Path]:
        """Give a local file for what shall become `path`; it is gone afterwards, if it is still there."""
        folder = Path(path.parent.path) if self.is_local else self._staging
        with named_when_full(folder, str(path)), Unfinished(folder, path.name) as stage:
            stage.chmod(0o666 & ~_umask())
            yield stage

    def _put(self, finished: Path, path: UPath) -> None:
        if self.is_local:
            with finished.open("rb") as handle:
                os.fsync(handle.fileno())
            finished.replace(path.path)
        else:
            # An object of a bucket is there as a whole or not at all, however the upload ends.
            path.fs.put_file(str(finished), path.path)

    def _local_copy(self, path: UPath, dataset: str, file: str) -> Path:
        if self.is_local:
            return Path(path.path)
        sidecar = self.sidecar(dataset, file)
        if sidecar is None or sidecar.removed:
            raise FileNotFoundError(str(path))
        local = self._staged(path, sidecar)
        if not local.exists():
            with self._new_file(path) as stage:
                path.fs.get_file(path.path, str(stage))
                stage.replace(local)
        return local

    def _staged(self, path: UPath, sidecar: Sidecar) -> Path:
        return self._staging / f"{sidecar.digest}{path.suffix}"

    def discard_staged(self) -> None:
        """Remove the copies of remote arrays; those in use stay readable, others are fetched again when read."""
        if "_staging" in self.__dict__:
            self._discard()
            del self._staging

    @cached_property
    def _staging(self) -> Path:
        """Folder of this store alone for copies of remote arrays; it goes with the store or its process."""
        marker = Unfinished(self._made_scratch(), "staged")
        folder = _staging_beside(marker.path)
        folder.mkdir()
        self._discard = weakref.finalize(self, _discard, marker, folder)
        return folder


def _default_scratch() -> Path:
    return Path(tempfile.gettempdir()) / f"agml-assets-{os.getuid()}"


def _staging_beside(marker: Path) -> Path:
    return marker.with_name(marker.name.strip(".").removesuffix(".tmp"))


def _discard(marker: Unfinished, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    marker.close()


def dump_json(value: Any) -> str:
    """Return strict JSON, indented by two; NaN, infinity and unknown types are errors."""
    return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def file_digest(path: Path) -> str:
    """Return the BLAKE3 of a local file, hexadecimal."""
    digest = blake3(max_threads=blake3.AUTO)
    with path.open("rb") as handle:
        while chunk := handle.read(_HASH_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _dump(value: Any, stage: Path, suffix: str) -> None:
    if suffix == ".parquet":
        value.write_parquet(stage)
        return
    if suffix in (".json", ".html"):
        stage.write_text(dump_json(value) if suffix == ".json" else value, encoding="utf-8")
        return
    with stage.open("wb") as handle:
        if suffix == ".npy":
            np.save(handle, value, allow_pickle=False)
        elif suffix == ".npz":
            np.savez(handle, **value)
        else:
            raise ValueError(f"no format for {suffix!r}")


def _beside(path: UPath, ending: str) -> UPath:
    return path.with_name(path.name + ending)


def _slug(text: str) -> str:
    """Return a name for a folder that is this text's alone."""
    readable = "".join(c if c.isascii() and c.isalnum() else "-" for c in text)
    return f"{readable[:60]}-{blake3(text.encode()).hexdigest()[:16]}"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
