"""The profile of a Slurm cluster: how it is reached, and what each heavy step asks it for. A YAML file.

What becomes of it in a job's script is in `slurm_script`.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agml_assets.errors import UserError, did_you_mean
from agml_assets.heavy import STEP_NAMES
from agml_assets.settings import expand_path, unknown_key

WHOLE = "whole"
"""Name, among the steps, of a job that runs whole datasets: what `agml-assets slurm submit` submits."""

_CPU_STEPS = ("out_of_fold", "out_of_fold_grouped")  # regressions on vectors; nothing in them uses a GPU
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")
_MEMORY = re.compile(r"[1-9]\d*[KMGT]?")
# These become words of a shell command.
_WORD = re.compile(r"[A-Za-z0-9][\w.,/+@:=-]*")
_NODES = re.compile(r"[A-Za-z0-9][\w.,\[\]-]*")
_CONSTRAINT = re.compile(r"[A-Za-z0-9(\[][\w.,&|()\[\]*-]*")
_GPUS = re.compile(r"[A-Za-z][\w.-]*:[1-9]\d*")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")

_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True)


class Sizing(BaseModel):
    """What a job asks the cluster for.

    Attributes:
        cpus: Processors; also the threads that the job computes with.
        memory: Main memory, such as `64G`; as Slurm takes it.
        gpus: GPUs, a number or `type:number`; 0 asks for none, also where a partition gives one unasked.
        time: Longest wall time: minutes, `hours:minutes:seconds` or `days-hours:minutes:seconds`.
        partition: Partition, or several by commas; None means the cluster's default.
        account: Account that is charged.
        qos: Quality of service.
        constraint: Features that nodes must have.
        exclude: Nodes that are not taken.
        modules: Environment modules that are loaded first.
    """

    model_config = _STRICT

    cpus: int = Field(4, ge=1)
    memory: str = "16G"
    gpus: int | str = 0
    time: str = "04:00:00"
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    exclude: str | None = None
    modules: tuple[str, ...] = ()

    @field_validator("modules", mode="before")
    @classmethod
    def _take_lists(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("time", mode="before")
    @classmethod
    def _time_is_slurms(cls, value: object) -> object:
        return _slurm_time(value)

    @field_validator("time")
    @classmethod
    def _time_is_some(cls, value: str) -> str:
        if time_seconds(value) == 0:  # no limit, to Slurm; no patience, to whoever waits for the job
            raise ValueError("must be more than zero")
        return value

    @field_validator("memory")
    @classmethod
    def _memory_is_slurms(cls, value: str) -> str:
        return _matching(_MEMORY, value, "a number with K, M, G or T, such as 64G")

    @field_validator("gpus")
    @classmethod
    def _gpus_are_slurms(cls, value: int | str) -> int | str:
        if isinstance(value, str):
            return _matching(_GPUS, value, "a number, or type:number, such as a100:1")
        if value < 0:
            raise ValueError("must not be negative")
        return value

    @field_validator("partition", "account", "qos")
    @classmethod
    def _is_a_word(cls, value: str | None) -> str | None:
        return value and _matching(_WORD, value, "one word")

    @field_validator("exclude")
    @classmethod
    def _is_a_list_of_nodes(cls, value: str | None) -> str | None:
        return value and _matching(_NODES, value, "a list of nodes, such as node-[1-3],node-7")

    @field_validator("constraint")
    @classmethod
    def _is_a_constraint(cls, value: str | None) -> str | None:
        return value and _matching(_CONSTRAINT, value, "features of nodes joined by & or |")

    @field_validator("modules")
    @classmethod
    def _are_words(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_matching(_WORD, name, "the name of a module, such as cuda/12") for name in value)

    @property
    def seconds(self) -> int:
        """The wall time in seconds."""
        return time_seconds(self.time)


class Login(BaseModel):
    """How the node that jobs are submitted on is reached, by OpenSSH with a key.

    Attributes:
        host: Host name; `localhost` on the login node itself.
        port: Port.
        user: Name there; None means the name here.
        key: Private key; None leaves it to OpenSSH's own configuration.
        known_hosts: File with the host's key; None means OpenSSH's own.
    """

    model_config = _STRICT

    host: str = "localhost"
    port: int = Field(22, ge=1, le=65535)
    user: str | None = None
    key: str | None = None
    known_hosts: str | None = None


class Profile(BaseModel):
    """A cluster.

    Attributes:
        login: How it is reached.
        environment: Python environment on the shared file system; None means the one that submits.
        queue_allowance: How long a job may wait before it starts, as `Sizing.time`; after wall time and this a
            job is given up.
        requeue: Whether the scheduler may start a job again after preemption or the loss of its node.
        offline: Whether jobs do without the hub: compute nodes of most clusters have no network.
        env: Environment variables of jobs; `$VAR` in them is expanded when the profile is read.
        defaults: What every job asks for.
        steps: Where a heavy step differs, by its name; `whole` is the job of `agml-assets slurm submit`.
    """

    model_config = _STRICT

    login: Login = Login()
    environment: str | None = None
    queue_allowance: str = "1-00:00:00"
    requeue: bool = True
    offline: bool = True
    env: dict[str, str] = Field(default_factory=dict)
    defaults: dict[str, Any] = Field(default_factory=dict)
    steps: dict[str, dict[str, Any]] = Field(default_factory=dict)

    @field_validator("queue_allowance", mode="before")
    @classmethod
    def _time_is_slurms(cls, value: object) -> object:
        return _slurm_time(value)

    @field_validator("environment")
    @classmethod
    def _environment_is_absolute(cls, value: str | None) -> str | None:
        if value is not None and not Path(value).is_absolute():
            raise ValueError("must be an absolute path: a job starts in another folder")
        return value

    @field_validator("env")
    @classmethod
    def _names_are_variables(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            _matching(_VARIABLE, name, "the name of an environment variable")
        return value

    @property
    def python_environment(self) -> Path:
        """The Python environment of jobs."""
        return Path(self.environment) if self.environment else Path(sys.prefix)

    def require_environment(self) -> None:
        """Refuse a Python environment that is not there."""
        python = self.python_environment / "bin" / "python"
        if not python.is_file():
            raise UserError(
                f"The environment of the cluster's profile has no Python: {python} does not exist. Let "
                "`environment` name a virtual environment on a file system that the nodes share."
            )

    def sizing(self, step: str, changes: Mapping[str, Mapping[str, Any]] | None = None) -> Sizing:
        """Return what a step asks for: the defaults, then the step's own, then `changes` for this run.

        Steps that use no GPU ask for none, whatever the defaults say; only their own entry can differ.
        """
        no_gpu = {"gpus": 0} if step in _CPU_STEPS else {}
        values = {**self.defaults, **no_gpu, **self.steps.get(step, {}), **(changes or {}).get(step, {})}
        return Sizing.model_validate(values)

    def check_sizing(self, changes: Mapping[str, Mapping[str, Any]]) -> None:
        """Refuse changes for this run that are not valid; `UserError` names every one."""
        if problems := _sizing_problems(self, changes):
            raise UserError("The sizing of this run is not valid:\n" + "\n".join(f"  {p}" for p in problems))


def load_profile(named: str | Path | None = None) -> Profile:
    """Read the profile of a cluster: `named`, else `$AGML_SLURM_PROFILE`; a YAML file, or the name of a ready one.

    Raises:
        UserError: None is named, it cannot be read, or something in it is not valid.
    """
    name = str(named or os.environ.get("AGML_SLURM_PROFILE") or "")
    if not name:
        raise UserError(
            "No cluster is named. Let $AGML_SLURM_PROFILE name a profile: a YAML file, or one that comes with the "
            f"package ({', '.join(ready_profiles())}). docs/slurm.md goes through it."
        )
    file = ready_profiles().get(name) or expand_path(name, "profile of the cluster")
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        hint = did_you_mean(name, ready_profiles())
        raise UserError(f"The profile of the cluster {str(file)!r} does not exist.{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The profile of the cluster {str(file)!r} cannot be read: {error}.") from None
    except yaml.YAMLError as error:
        raise UserError(f"The profile of the cluster {file} is not YAML: {error}") from None
    return parse_profile(values if values is not None else {}, str(file))


def parse_profile(values: Any, where: str) -> Profile:
    """Validate the values of a profile; `UserError` names `where` and everything that is wrong."""
    if not isinstance(values, dict):
        raise UserError(f"The profile of the cluster {where} must hold keys and values, such as `defaults:`.")
    known = Profile.model_fields
    problems = [unknown_key(key, known) for key in values if key not in known]
    try:
        profile = Profile.model_validate({k: _expanded(v) for k, v in values.items() if k in known})
    except ValidationError as error:
        problems += _described(error, "")
    else:
        problems += _sizing_problems(profile, {})
        if not problems:
            return profile
    raise UserError(f"The profile of the cluster {where} is not valid:\n" + "\n".join(f"  {p}" for p in problems))


def ready_profiles() -> dict[str, Path]:
    """Return the profiles that come with the package, by name."""
    folder = Path(str(files("agml_assets.registry") / "slurm_profiles"))
    return {file.stem: file for file in sorted(folder.glob("*.yaml"))}


def time_seconds(text: str) -> int:
    """Return a time in Slurm's notation in seconds; `ValueError` where it is none.

    `5` is five minutes, `1:30` minutes and seconds, `2-12` two days and twelve hours (sbatch, option --time).
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a time such as 48:00:00 or 2-00:00:00")
    first, second, third = (int(found[name] or 0) for name in ("first", "second", "third"))
    if found["days"] is not None:
        return int(found["days"]) * 86400 + first * 3600 + second * 60 + third
    if found["third"] is not None:
        return first * 3600 + second * 60 + third
    return first * 60 + second


def _sizing_problems(profile: Profile, changes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    known: Sequence[str] = (*STEP_NAMES, WHOLE)
    problems = [f"{unknown_key(step, known)}" for step in (*profile.steps, *changes) if step not in known]
    for where, values in (("defaults", profile.defaults), *profile.steps.items(), *changes.items()):
        if not isinstance(values, Mapping):
            problems.append(f"{where}: must hold keys and values")
            continue
        problems += [
            f"{where}: {unknown_key(k, Sizing.model_fields)}" for k in values if k not in Sizing.model_fields
        ]
        try:
            Sizing.model_validate({k: v for k, v in values.items() if k in Sizing.model_fields})
        except ValidationError as error:
            problems += _described(error, f"{where}: ")
    return problems


def _described(error: ValidationError, where: str) -> list[str]:
    return [
        f"{where}{'.'.join(map(str, issue['loc']))}: {issue['msg'].removeprefix('Value error, ')} "
        f"(got {issue['input']!r})"
        for issue in error.errors()
    ]


def _slurm_time(value: object) -> object:
    if isinstance(value, int):
        raise ValueError("put it in quotes, as in '48:00:00': without, YAML reads a number")
    if isinstance(value, str):
        time_seconds(value)
    return value


def _matching(pattern: re.Pattern[str], value: str, what: str) -> str:
    if not pattern.fullmatch(value):
        raise ValueError(f"must be {what}")
    return value


def _expanded(value: Any) -> Any:
    """Return a value with `~` and `$VAR` expanded in the texts of a mapping."""
    if isinstance(value, str):
        return str(expand_path(value, "value in the profile of the cluster")) if value[:1] in "~$" else value
    if isinstance(value, dict):
        return {key: _expanded(one) for key, one in value.items()}
    return value
