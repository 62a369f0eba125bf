"""What an artifact is made from, and whether the stored one is still what today would make.

Each room lists its artifacts as `Artifact` values; Dagster's dependencies and the judgement of what is
stale come from the same list, so they cannot disagree. No Dagster here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from agml_assets.settings import Settings
from agml_assets.store import ArtifactStore, Sidecar


@dataclass(frozen=True)
class Artifact:
    """One kind of file of a dataset.

    Attributes:
        key: `room/name`, or a bare name for files at the top of a dataset's folder.
        suffix: File suffix with its dot.
        inputs: Keys of the artifacts that are read to make it.
        settings: Names of the settings that change its content.
        code_version: Changed whenever the code would make other content from the same inputs.
        reads_source: Whether it is made from the images themselves.
    """

    key: str
    suffix: str
    inputs: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    code_version: str = "1"
    reads_source: bool = False

    @property
    def file(self) -> str:
        """Path of the artifact inside a dataset's folder."""
        return self.key + self.suffix

    @property
    def name(self) -> str:
        """The key without its room."""
        return self.key.rpartition("/")[2]


State = Literal["current", "stale", "failed", "missing"]


@dataclass(frozen=True)
class Verdict:
    """Whether a stored artifact is what today's inputs, settings and code would make, and why not."""

    state: State
    reason: str = ""


def judge(
    store: ArtifactStore,
    dataset: str,
    artifacts: Mapping[str, Artifact],
    settings: Settings,
    source_digest: Callable[[], str],
) -> dict[str, Verdict]:
    """Judge every artifact of a dataset by content: code version, settings, inputs and source.

    Args:
        store: Where the artifacts lie.
        dataset: Dataset key.
        artifacts: Artifacts by key, each after its inputs.
        settings: The dataset's settings today.
        source_digest: Returns the identity of the source today; called at most once.

    Returns:
        A verdict for each key of `artifacts`.
    """
    verdicts: dict[str, Verdict] = {}
    source: str | None = None
    for key, artifact in artifacts.items():
        if artifact.reads_source and source is None:
            source = source_digest()
        verdicts[key] = _judge_one(store, dataset, artifact, settings, source, artifacts, verdicts)
    return verdicts


def _judge_one(
    store: ArtifactStore,
    dataset: str,
    artifact: Artifact,
    settings: Settings,
    source: str | None,
    artifacts: Mapping[str, Artifact],
    verdicts: Mapping[str, Verdict],
) -> Verdict:
    failure = store.failure(dataset, artifact.file)
    if failure:
        return Verdict("failed", failure["error"])
    made = store.sidecar(dataset, artifact.file)
    if made is None:
        return Verdict("missing", "not made yet")
    if reason := _differs(store, dataset, artifact, made, settings, source):
        return Verdict("stale", reason)
    for name in artifact.inputs:
        if verdicts[name].state != "current":
            return Verdict("stale", f"{name} is {verdicts[name].state}")
        upstream = store.sidecar(dataset, artifacts[name].file)
        if upstream is None or made.inputs.get(name) != upstream.digest:
            return Verdict("stale", f"{name} has changed since")
    return Verdict("current")


def _differs(
    store: ArtifactStore, dataset: str, artifact: Artifact, made: Sidecar, settings: Settings, source: str | None
) -> str | None:
    """Return in what a stored artifact differs from today's, its inputs apart; None where in nothing."""
    # Arrays and tables are too large to be read for this; what reports are made from is not.
    read = artifact.suffix == ".json" and store.is_local and not made.removed
    if read and not store.is_intact(dataset, artifact.file):
        return "the file is not the one that was written"
    if made.code_version != artifact.code_version:
        return f"made by code version {made.code_version}, now {artifact.code_version}"
    for name, value in settings.used(artifact.settings).items():
        if made.settings.get(name) != value:
            return f"made with {name} = {made.settings.get(name)!r}, now {value!r}"
    if artifact.reads_source and made.source_digest != source:
        return "the source has changed"
    return None
