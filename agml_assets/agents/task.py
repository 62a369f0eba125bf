"""A task that is ready to be worked on: what the agent sees, what it never sees, how it is judged.

What a manifest may say is in `registry.agents`; where tasks come from is in `tasks`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agml_assets.registry.agents import AgentTaskEntry


@dataclass(frozen=True)
class AgentTask:
    """A task with its files in place. Everything an agent may see lies apart from what it may not.

    Attributes:
        entry: The manifest.
        problem: What the agent is told to do.
        env: Folder of the starter files, copied to the workspace of every run.
        read_only: Patterns (`fnmatch`) of files of the workspace that the agent may not change, against paths of
            the form `./name` at the top and `folder/name` below it, as in the old benchmark.
        public: Files and folders that appear read-only in the workspace, by their path relative to it.
        mounts: Folders that scripts and scorer see, read-only, by the absolute path at which they do.
        private: Folder of the answers and of `eval.py`; never in a sandbox of an agent.
        hidden: Installed files and folders that would give answers away; empty in the sandbox.
        reference: Score of a good solution, where it was measured when the task was prepared; else the manifest's.
        digest: Identity of all of it: two runs compare only where it is the same.
    """

    entry: AgentTaskEntry
    problem: str
    env: Path
    private: Path
    digest: str
    read_only: tuple[str, ...] = ()
    public: Mapping[str, Path] = field(default_factory=dict)
    mounts: Mapping[str, Path] = field(default_factory=dict)
    hidden: tuple[Path, ...] = ()
    reference: float | None = None

    @property
    def key(self) -> str:
        """The task's registry key."""
        return self.entry.key


@dataclass(frozen=True)
class Verdict:
    """What a submission is worth.

    Attributes:
        score: In the metric of the task; None where there is none.
        reason: Why there is none, in a sentence for the agent's author; empty where there is one.
    """

    score: float | None
    reason: str = ""
