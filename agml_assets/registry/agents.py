"""The registry of agents and of the tasks they work on: what a manifest of a task may say, what an agent is.

Nothing here opens a task's files, and nothing here runs an agent.
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from agml_assets.errors import UserError, did_you_mean
from agml_assets.registry.yaml_files import complaints, find_file, key_collisions, read_yaml, require_key
from agml_assets.settings import expand_path, unknown_key

SHIPPED = Path(__file__).with_name("agents.yaml")

DIGITS = "digits"
"""A task without files: scikit-learn's handwritten digits."""

GOALS = {"classifier": "Improve this classifier", "mislabelled": "Find the mislabelled images"}
"""What can be asked of every registered dataset; the task `<dataset>__<goal>`."""

_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Limits(BaseModel):
    """What a trial may use up.

    Attributes:
        steps: Actions, and then the trial ends.
        seconds: By the clock, for the whole trial.
        seconds_per_command: By the clock, for one command or script; then its processes are killed.
        memory_mb: Of all processes of a command together.
        processes: Alive at once.
        file_mb: Largest file that can be written.
        disk_mb: All files of the workspace together.
        output_kb: Of one command's output that is kept.
        tokens: Read and written by models, of all together; None means any number.
    """

    model_config = _STRICT

    steps: int = Field(50, ge=1)
    seconds: float = Field(5 * 3600, gt=0, strict=False)
    seconds_per_command: float = Field(3600, gt=0, strict=False)
    memory_mb: int = Field(8192, ge=64)
    processes: int = Field(256, ge=8)
    file_mb: int = Field(2048, ge=1)
    disk_mb: int = Field(8192, ge=1)
    output_kb: int = Field(256, ge=1)
    tokens: int | None = Field(None, ge=1)


SUBMISSION_FORMATS = (".csv", ".json", ".npz")


class Submission(BaseModel):
    """The file that is scored: a table, checked against the answers before a number is computed.

    Attributes:
        file: Relative to the workspace; `.csv`, `.json` or `.npz` (never unpickled).
        id_column: Column that names the example; None where order does.
        columns: What each further column holds. `probabilities` in place of names: one column a class.
        separator: Of a CSV file.
        max_mb: Larger files are refused unread.
    """

    model_config = _STRICT

    file: str = "submission.csv"
    id_column: str | None = None
    columns: dict[str, Literal["number", "integer", "boolean", "text"]] = Field(default_factory=dict)
    probabilities: bool = False
    separator: str = Field(",", min_length=1, max_length=1)
    max_mb: int = Field(200, ge=1)

    @field_validator("file")
    @classmethod
    def _can_be_read(cls, value: str) -> str:
        path = PurePosixPath(value)
        if path.is_absolute() or ".." in path.parts or path.suffix not in SUBMISSION_FORMATS:
            raise ValueError(
                f"{value!r} must be a path below the workspace that ends in {', '.join(SUBMISSION_FORMATS)}"
            )
        return value

    @model_validator(mode="after")
    def _holds_something(self) -> "Submission":
        if bool(self.columns) == self.probabilities:
            raise ValueError("give either `columns` or `probabilities: true`")
        return self


class Preparation(BaseModel):
    """How the data of a task comes to this machine, for `agml-assets agents prepare`.

    Attributes:
        kaggle: Competition whose files are downloaded with the account in `$KAGGLE_CONFIG_DIR`.
        fathomnet: Whether images are downloaded from a JSON list of their addresses.
        by: Name of the function that splits what was downloaded into public files and private answers.
        mounts: Folders of the task's folder that scripts and scorer look for at an absolute path, by that path;
            read-only. They are put there by the user.
        note: What the user has to do, in a sentence or two.
    """

    model_config = _STRICT

    kaggle: str | None = None
    fathomnet: bool = False
    by: str | None = None
    mounts: dict[str, str] = Field(default_factory=dict)
    note: str = ""

    @field_validator("mounts")
    @classmethod
    def _stays_inside(cls, mounts: dict[str, str]) -> dict[str, str]:
        for target, folder in mounts.items():
            if not target.startswith("/") or ".." in target.split("/"):
                raise ValueError(f"{target!r} is no absolute path")
            if folder.startswith("/") or ".." in folder.split("/"):
                raise ValueError(f"{folder!r} leads out of the task's folder")
        return mounts


class AgentTaskEntry(BaseModel):
    """The manifest of a task.

    Attributes:
        key: Partition and folder name; unique ignoring case.
        display_name: Name for people.
        folder: A folder with `env/` and `scripts/` in the old benchmark's format; variables are expanded on use,
            relative paths are relative to the registry file.
        dataset: In place of a folder: key of a registered dataset, or `digits`.
        goal: With `dataset`: one of `GOALS`.
        metric: Name of a function in `agents.metrics`; None: the folder's `eval.py` gives the score.
        direction: Whether a higher or a lower score is better.
        baseline: Score of the starter code where it cannot be measured by running it.
        baseline_guess: What was guessed for the baseline, where the starter code does not run and it is a guess's.
        reference: Score of a good solution, normalised to 1.
        valid_above: Scores that are not above it are failures of the scorer, or impossible: no scores.
        valid_below: Scores that are not below it, likewise.
        submission: The file that is scored; None with `eval.py`.
        starter: Script that the agent `starter` runs, relative to the workspace.
        scored: False for a task that nothing scores.
        limits: What a trial may use up.
        preparation: How its data comes to this machine.
        warnings: What makes its scores doubtful, for people; shown wherever they are.
        exposed: Why an agent can see the answers or make up its score; then the task is shown, and in no mean.
            Empty where it cannot.
        source: Where the task comes from.
    """

    model_config = _STRICT

    key: str
    display_name: str = ""
    folder: str | None = None
    dataset: str | None = None
    goal: Literal["classifier", "mislabelled"] | None = None
    metric: str | None = None
    direction: Literal["higher", "lower"] = "higher"
    baseline: float | None = Field(None, strict=False)
    baseline_guess: str = ""
    reference: float | None = Field(None, strict=False)
    valid_above: float | None = Field(None, strict=False)
    valid_below: float | None = Field(None, strict=False)
    submission: Submission | None = None
    starter: str = "train.py"
    scored: bool = True
    limits: Limits = Limits()
    preparation: Preparation = Preparation()
    warnings: tuple[str, ...] = Field((), strict=False)
    exposed: str = ""
    source: str = ""

    @model_validator(mode="before")
    @classmethod
    def _derive_name(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("key"), str):
            return {"display_name": values["key"], **values}
        return values

    @field_validator("key")
    @classmethod
    def _key_is_safe(cls, value: str) -> str:
        if value.lower() == "tasks":
            raise ValueError("'tasks' is the folder of prepared tasks: take another key")
        return require_key(value)

    @model_validator(mode="after")
    def _one_source(self) -> "AgentTaskEntry":
        if (self.folder is None) == (self.dataset is None):
            raise ValueError("give either `folder`, or `dataset` with its `goal`")
        if (self.dataset is not None) != (self.goal is not None):
            raise ValueError(f"`dataset` and `goal` go together; `goal` is one of {', '.join(GOALS)}")
        if self.folder is not None and (self.metric is None) != (self.submission is None):
            raise ValueError(
                "`metric` and `submission` go together; without them the folder's eval.py gives the score"
            )
        return self

    @model_validator(mode="after")
    def _some_score_is_valid(self) -> "AgentTaskEntry":
        if self.valid_above is not None and self.valid_below is not None and self.valid_above >= self.valid_below:
            raise ValueError("no score is above `valid_above` and below `valid_below`")
        if self.baseline is not None and (problem := self.invalid(self.baseline)):
            raise ValueError(f"`baseline`: {problem}")
        return self

    def invalid(self, score: float) -> str:
        """Return why a number that a scorer gave is no score of this task; an empty text where it is one."""
        if self.valid_above is not None and score <= self.valid_above:
            return f"{score:g}, which is no score: scores of this task are above {self.valid_above:g}."
        if self.valid_below is not None and score >= self.valid_below:
            return f"{score:g}, which is no score: scores of this task are below {self.valid_below:g}."
        return ""


AgentKind = Literal["starter", "scripted", "majority", "react", "research"]


class AgentEntry(BaseModel):
    """An agent, with its model where it has one.

    Attributes:
        key: Partition and folder name; unique ignoring case.
        display_name: Name for people.
        kind: `starter` runs the starter code and submits; `scripted` plays the actions of a file; `majority`
            submits the commonest answer; `react` thinks and acts; `research` plans, acts and reflects.
        model: Model by Inspect's name, such as `openai/gpt-5`, `openai-api/local/llama`; old names are translated.
        fast_model: For summaries; None means `model`.
        edit_model: For edits of scripts; None means `model`.
        script: Of a scripted agent: a JSON file, or the name of one that comes with the package.
        seeds: Trials of each task.
        model_arguments: Further arguments of the model, such as temperature; JSON values.
    """

    model_config = _STRICT

    key: str
    display_name: str = ""
    kind: AgentKind
    model: str | None = None
    fast_model: str | None = None
    edit_model: str | None = None
    script: str | None = None
    seeds: int = Field(3, ge=1)
    model_arguments: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _derive_name(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("key"), str):
            return {"display_name": values["key"], **values}
        return values

    @field_validator("key")
    @classmethod
    def _key_is_safe(cls, value: str) -> str:
        return require_key(value)

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> "AgentEntry":
        thinks = self.kind in ("react", "research")
        if thinks != (self.model is not None):
            raise ValueError(f"an agent of kind {self.kind} {'needs' if thinks else 'has no'} `model`")
        if (self.kind == "scripted") != (self.script is not None):
            raise ValueError("`script` goes with kind scripted")
        return self


@dataclass(frozen=True)
class AgentRegistry:
    """All registered agents and tasks.

    Attributes:
        agents: In the order of the file.
        tasks: In the order of the file.
        where: The file they come from.
    """

    agents: tuple[AgentEntry, ...]
    tasks: tuple[AgentTaskEntry, ...]
    where: Path = SHIPPED

    def agent(self, key: str) -> AgentEntry:
        """Return an agent; one that is not registered raises `UserError` naming those that look like it."""
        for entry in self.agents:
            if entry.key == key:
                return entry
        known = [entry.key for entry in self.agents]
        raise UserError(f"No agent {key!r} in {self.where}.{did_you_mean(key, known)}")

    def task(self, key: str) -> AgentTaskEntry:
        """Return a task.

        A key `<dataset>__<goal>` need not be registered.

        Raises:
            UserError: It is not registered and no dataset's, naming those that look like it.
        """
        for entry in self.tasks:
            if entry.key == key:
                return entry
        dataset, _, goal = key.rpartition("__")
        if dataset and goal in GOALS:
            return AgentTaskEntry(key=key, dataset=dataset, goal=goal)
        known = [entry.key for entry in self.tasks]
        raise UserError(
            f"No task {key!r} in {self.where}.{did_you_mean(key, known)} Every registered dataset has the tasks "
            f"{' and '.join(f'DATASET__{one}' for one in GOALS)}."
        )


def load_agents(path: Path | str | None = None) -> AgentRegistry:
    """Read the registry of agents and tasks.

    Args:
        path: The file; None means `$AGML_AGENTS`, else the one that comes with the package.

    Raises:
        UserError: It cannot be read, or entries are not valid; every one is named.
    """
    file, named_by = find_file(path, "AGML_AGENTS", SHIPPED)
    document = read_yaml(file, "registry of agents", "agents", named_by)
    problems = [unknown_key(key, ("agents", "tasks")) for key in document if key not in ("agents", "tasks")]
    agents = _read(document, "agents", AgentEntry, problems)
    tasks = [
        task.model_copy(update={"folder": str(_place(file, task.folder))}) if task.folder else task
        for task in _read(document, "tasks", AgentTaskEntry, problems)
    ]
    if problems:
        raise UserError(f"The registry of agents {file}{named_by} is not valid:\n- " + "\n- ".join(problems))
    return AgentRegistry(tuple(agents), tuple(tasks), file)


def task_folder(entry: AgentTaskEntry) -> Path:
    """Return the folder of a task in the old format, its variables expanded.

    Raises:
        UserError: A variable is not set, saying what the task needs.
    """
    assert entry.folder is not None
    try:
        return expand_path(entry.folder)
    except UserError as error:
        raise UserError(f"Task {entry.key!r}: {error.message} {entry.preparation.note}".strip()) from None


def _place(registry: Path, folder: str) -> Path:
    return Path(folder) if folder.startswith(("$", "~", "/")) else registry.parent / folder


def _read(document: dict[Any, Any], section: str, model: Any, problems: list[str]) -> list[Any]:
    items = document.get(section)
    if not isinstance(items, list):
        problems.append(f"`{section}` must be a list of entries, each with a `key`")
        return []
    entries = []
    for position, item in enumerate(items, start=1):
        where = f"{section}, entry {position}"
        if isinstance(item, dict) and isinstance(item.get("key"), str):
            where = f"{where} ({item['key']!r})"
        try:
            entries.append(model.model_validate(item))
        except ValidationError as error:
            problems += [f"{where}: {sentence}" for _, sentence in complaints(error, model.model_fields)]
    problems += key_collisions(entries, section)
    return entries
