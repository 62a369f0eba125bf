"""What a heavy step is, so that the same function runs in an asset, in a subprocess and in a job of a cluster.

The steps themselves are in the rooms' `steps` modules; who runs them where is in `resources.compute` and
`payload`. No Dagster here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agml_assets.lineage import Artifact
from agml_assets.progress import Progress
from agml_assets.settings import Settings
from agml_assets.store import Sidecar
from agml_assets.workspace import DatasetWorkspace

STEP_NAMES = ("embeddings", "reference_training", "leak_safe_training", "out_of_fold", "out_of_fold_grouped")
"""Every heavy step, in the order of the graph; `payload.STEPS` holds their functions."""


class Work(Protocol):
    """One artifact being made: its dataset, its inputs, and where its progress is told."""

    @property
    def dataset(self) -> DatasetWorkspace:
        """The dataset at work."""
        ...

    def read(self, upstream: Artifact) -> Any:
        """Read one of the artifact's declared inputs."""
        ...

    def progress(self, what: str) -> Progress:
        """Return a progress reporter."""
        ...


@dataclass(frozen=True)
class Made:
    """What a heavy step has made of one artifact.

    Attributes:
        artifact: Which one.
        value: What is to be stored; None where it is stored already.
        facts: Headline numbers and words for people; JSON values.
        info: Facts that the sidecar keeps.
        sidecar: The sidecar, where the artifact is stored already.
    """

    artifact: Artifact
    value: Any
    facts: Mapping[str, Any]
    info: Mapping[str, Any] | None = None
    sidecar: Sidecar | None = None


Make = Callable[[Mapping[Artifact, Work]], Iterator[Made]]
"""Makes the artifacts that it is given works for. The caller stores each before it asks for the next: what an
unfinished step keeps for its next try is removed after the last."""


@dataclass(frozen=True)
class HeavyStep:
    """One heavy step.

    Attributes:
        name: Its name in profiles and commands.
        artifacts: What it can make.
        reads: The artifacts that these are made from.
        make: How.
        models: Returns the models of the hub that it loads, each with its revision.
    """

    name: str
    artifacts: tuple[Artifact, ...]
    reads: tuple[Artifact, ...]
    make: Make
    models: Callable[[Settings], Sequence[tuple[str, str | None]]] = lambda _settings: ()
