"""A tiny dataset, its registry, and ways to run it, shared by the tests of graph, jobs and command line."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from agml_assets.definitions import build_defs
from agml_assets.recording import asset_key
from agml_assets.registry.datasets import load_registry
from agml_assets.settings import Settings
from agml_assets.store import ArtifactStore
from agml_assets.workspace import Workspace
from resources.workspace import workspace_in_memory

CLASSES = ("blight", "healthy", "rust")
JOB = ("job", "execute", "-m", "agml_assets.definitions", "-j")
BIN = Path(sys.executable).parent


def write_images(folder: Path, per_class: int = 8, seed: int = 0) -> Path:
    """Write noise images in a folder per class; the first of `rust` is a copy of the first of `blight`."""
    rng = np.random.default_rng(seed)
    for label, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for number in range(per_class):
            pixels = rng.integers(0, 120, size=(40, 48, 3))
            pixels[..., label] += 120
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"leaf_{number:02}.png")
    (folder / "rust" / "leaf_00.png").write_bytes((folder / "blight" / "leaf_00.png").read_bytes())
    return folder


def write_registry(file: Path, folder: Path, settings: str = "", epochs: int = 1, side: int = 64) -> Path:
    """Write a registry whose one dataset is `tiny`."""
    extra = f", {settings}" if settings else ""
    file.write_text(
        f"datasets:\n  - name: tiny\n    path: {folder}\n"
        "    settings: {embed_model: efficientnet_lite0, backbone: efficientnet_lite0, "
        f"train_image_size: {side}, cartography_epochs: {epochs}{extra}}}\n"
    )
    return file


def environment(root: Path, registry: Path) -> dict[str, str]:
    """Return the environment of a run that keeps everything below `root`."""
    home = root / "dagster_home"
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    values = {k: v for k, v in os.environ.items() if not k.startswith(("AGML_", "DAGSTER_"))}
    places = {"AGML_RESULTS": root / "results", "AGML_REGISTRY": registry, "DAGSTER_HOME": home}
    return {**values, **{k: str(v) for k, v in places.items()}, "HF_HUB_OFFLINE": "1", "AGML_DATA_DIR": ""}


def dagster(*arguments: str, env: dict[str, str], timeout: float = 400) -> subprocess.CompletedProcess[str]:
    """Run the `dagster` command."""
    command = [str(BIN / "dagster"), *arguments]
    folder = Path(env["AGML_RESULTS"]).parent
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=timeout)


def open_workspace(root: Path) -> Workspace:
    """Return the workspace of what lies below `root`."""
    return Workspace(load_registry(root / "datasets.yaml"), Settings(), ArtifactStore(root / "results"))


def run_in_process(root: Path, *artifacts, job="benchmark", **resources):
    """Run a job, or some artifacts of it, on `tiny` in this process."""
    workspace = open_workspace(root)
    definitions = build_defs(
        registry=workspace.registry, resources={"workspace": workspace_in_memory(workspace), **resources}
    )
    return definitions.resolve_job_def(job).execute_in_process(
        partition_key="tiny",
        asset_selection=[asset_key(a) for a in artifacts] or None,
        raise_on_error=False,
    )


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return content and modification time of every file below `folder`."""
    files = [p for p in folder.rglob("*") if p.is_file()]
    return {p.relative_to(folder).as_posix(): (p.read_bytes(), p.stat().st_mtime_ns) for p in files}
