"""NeuCo-Bench's configuration: keys of `config.yaml`, older and newer, checked before anything is computed."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from agml_assets.errors import UserError, did_you_mean

ITERATIONS = 50
"""Settings that the SVM probe tries unless `opt_params` says `n_iter`: scikit-optimize's default."""
SEED = 42
"""Of splits and draws, as published."""

_FLAT = ("batch_size", "epochs", "learning_rate")
_FLAGS = {
    "standardize_embeddings": True,
    "normalize_labels": True,
    "enable_plots": True,
    "update_leaderboard": False,
    "output_fold_results": False,
    "store_probes": False,
}
_KEYS = ("k_folds", "probe_type", "probe_params", "embedding_dim", "task_filter", "device", *_FLAGS, *_FLAT)
_SVM_KEYS = (
    "C_start_end",
    "kernel_degree_list",
    "kernel_gamma_start_end",
    "kernel_coef0_start_end",
    "epsilon_list",
    "opt_params",
)
_OPTIONS = ("n_iter", "n_jobs", "random_state")
_OPTIONS_WITHOUT_EFFECT = ("n_points", "optimizer_kwargs", "verbose", "pre_dispatch", "iid", "error_score",
                           "return_train_score", "fit_params", "scoring", "refit")  # fmt: skip
_PROBES = ("linear", "svm")


@dataclass(frozen=True)
class LinearParams:
    """How the linear probe is trained.

    Attributes:
        batch_size: Samples a step, 1 or more.
        epochs: Passes over the training samples, 1 or more.
        learning_rate: Of AdamW, above 0.
        device: `auto`, `cpu`, `gpu` or a torch device such as `cuda:0`.
    """

    batch_size: int
    epochs: int
    learning_rate: float
    device: str = "auto"


@dataclass(frozen=True)
class SvmParams:
    """What the SVM probe draws its settings from.

    Attributes:
        c: Range of C, log-uniform.
        degrees: Degrees of the polynomial kernel.
        gamma: Range of gamma, log-uniform; null means scikit-learn's `scale`.
        coef0: Range of the kernel's constant, uniform; null means 0.
        epsilons: Widths of a regression's tube.
        n_iter: Settings tried.
        n_jobs: Folds fitted at once.
        random_state: Seed of the draws.
        without_effect: Keys of `opt_params` that belong to another search and change nothing here.
    """

    c: tuple[float, float]
    degrees: tuple[int, ...]
    gamma: tuple[float, float] | None = None
    coef0: tuple[float, float] | None = None
    epsilons: tuple[float, ...] = (0.1,)
    n_iter: int = ITERATIONS
    n_jobs: int = 1
    random_state: int = SEED
    without_effect: tuple[str, ...] = ()


@dataclass(frozen=True)
class Config:
    """A checked configuration.

    Attributes:
        k_folds: Random splits, 1 or more.
        probe_type: `linear` or `svm`.
        probe_params: Of that probe.
        embedding_dim: Dimensions to which embeddings are padded; null means those of the file.
        standardize_embeddings: Whether the whole matrix is shifted and scaled by its one mean and deviation.
        normalize_labels: Whether labels are brought to [0, 1].
        enable_plots: Whether each fold's predictions are drawn.
        update_leaderboard: Whether the phase is ranked afterwards.
        output_fold_results: Whether the folds' scores are written.
        store_probes: Whether a probe fitted on all samples is written.
        task_filter: Tasks to evaluate; null means all.
        given: The configuration as it was given.
    """

    k_folds: int
    probe_type: Literal["linear", "svm"]
    probe_params: LinearParams | SvmParams
    embedding_dim: int | None = None
    standardize_embeddings: bool = True
    normalize_labels: bool = True
    enable_plots: bool = True
    update_leaderboard: bool = False
    output_fold_results: bool = False
    store_probes: bool = False
    task_filter: tuple[str, ...] | None = None
    given: Mapping[str, Any] = field(default_factory=dict)


def load_config(file: str | Path) -> Config:
    """Read and check a YAML file.

    Raises:
        UserError: It is absent, no YAML mapping, or not valid.
    """
    file = Path(file)
    try:
        value = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{file}: the configuration cannot be read: {error.strerror}.") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{file}: the configuration is no valid YAML: {error}") from None
    return check_config(value, str(file))


def check_config(value: Any, where: str = "config") -> Config:
    """Check a configuration of either form.

    The newer form has `probe_type` and `probe_params`; the older one has `batch_size`, `epochs` and
    `learning_rate` beside `k_folds` and means the linear probe. A key of the linear probe may stand in either
    place, not in both with different values. Numbers written as text, as YAML reads `1e-3`, are numbers.

    Args:
        value: What the YAML file holds.
        where: How messages name it.

    Raises:
        UserError: A key is not known, missing, of another type or out of range.
    """
    if not isinstance(value, Mapping):
        raise UserError(f"{where}: the configuration is a mapping of keys to values, not {type(value).__name__}.")
    read = _Reader(where, value)
    read.refuse_unknown(_KEYS)
    probe_type = value.get("probe_type", "linear" if any(key in value for key in _FLAT) else None)
    if probe_type not in _PROBES:
        raise read.error("probe_type", f"must be one of {', '.join(_PROBES)}")
    params = value.get("probe_params")
    if params is not None and not isinstance(params, Mapping):
        raise read.error("probe_params", "must be a mapping of keys to values")
    make = _linear if probe_type == "linear" else _svm
    tasks = value.get("task_filter")
    if tasks is not None and not (
        isinstance(tasks, list) and tasks and all(isinstance(one, str) for one in tasks)
    ):
        raise read.error("task_filter", "must be null or a list of names of tasks")
    try:
        given = json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: the configuration holds what JSON cannot: {error}.") from None
    return Config(
        k_folds=read.whole("k_folds"),
        probe_type=probe_type,
        probe_params=make(read, params or {}),
        embedding_dim=None if value.get("embedding_dim") is None else read.whole("embedding_dim"),
        **{flag: read.flag(flag, default) for flag, default in _FLAGS.items()},
        task_filter=None if tasks is None else tuple(tasks),
        given=given,
    )


def _linear(read: "_Reader", params: Mapping[str, Any]) -> LinearParams:
    known = (*_FLAT, "device")
    inner = _Reader(f"{read.where}: probe_params", params)
    inner.refuse_unknown(known)
    for key in known:
        if key in params and key in read.values and params[key] != read.values[key]:
            raise read.error(key, f"differs from probe_params.{key}, {params[key]!r}; keep one of them")
    merged = _Reader(read.where, {**{key: read.values[key] for key in known if key in read.values}, **params})
    device = merged.values.get("device", "auto")
    if not isinstance(device, str):
        raise merged.error("device", "must be auto, cpu, gpu, or a torch device such as cuda:0")
    return LinearParams(
        merged.whole("batch_size"), merged.whole("epochs"), merged.number("learning_rate", 0.0), device
    )


def _svm(read: "_Reader", params: Mapping[str, Any]) -> SvmParams:
    for key in _FLAT:
        if key in read.values:
            raise read.error(key, "is of the linear probe; the SVM probe's settings are in probe_params")
    inner = _Reader(f"{read.where}: probe_params", params)
    inner.refuse_unknown(_SVM_KEYS)
    degrees = tuple(inner.wholes("kernel_degree_list"))
    gamma = inner.span("kernel_gamma_start_end", above=0.0) if "kernel_gamma_start_end" in params else None
    coef0 = inner.span("kernel_coef0_start_end") if "kernel_coef0_start_end" in params else None
    if 1 in degrees and (gamma or coef0):
        key = "kernel_gamma_start_end" if gamma else "kernel_coef0_start_end"
        raise inner.error(key, "is of kernels of degree 2 or more; kernel_degree_list has 1")
    epsilons = tuple(inner.positives("epsilon_list")) if "epsilon_list" in params else (0.1,)
    options = params.get("opt_params") or {}
    if not isinstance(options, Mapping):
        raise inner.error("opt_params", "must be a mapping of keys to values")
    if "cv" in options:
        raise inner.error("opt_params", "must not hold cv: the splits are those of k_folds")
    search = _Reader(f"{inner.where}: opt_params", options)
    search.refuse_unknown((*_OPTIONS, *_OPTIONS_WITHOUT_EFFECT))
    return SvmParams(
        c=inner.span("C_start_end", above=0.0),
        degrees=degrees,
        gamma=gamma,
        coef0=coef0,
        epsilons=epsilons,
        n_iter=search.whole("n_iter") if "n_iter" in options else ITERATIONS,
        n_jobs=search.jobs() if "n_jobs" in options else 1,
        random_state=search.whole("random_state", least=0) if options.get("random_state") is not None else SEED,
        without_effect=tuple(key for key in options if key in _OPTIONS_WITHOUT_EFFECT),
    )


@dataclass(frozen=True)
class _Reader:
    """Values of a mapping, of the types that are asked for."""

    where: str
    values: Mapping[str, Any]

    def error(self, key: str, problem: str) -> UserError:
        found = f"it is {self.values[key]!r}" if key in self.values else "it is missing"
        return UserError(f"{self.where}: {key} {problem}; {found}.")

    def refuse_unknown(self, known: Iterable[str]) -> None:
        known = tuple(known)
        for key in self.values:
            if key not in known:
                raise UserError(
                    f"{self.where}: there is no key {key!r}.{did_you_mean(str(key), known)} "
                    f"Keys are {', '.join(known)}."
                )

    def whole(self, key: str, least: int = 1) -> int:
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.error(key, f"must be a whole number, {least} or more")
        return value

    def jobs(self) -> int:
        value = self.values["n_jobs"]
        if value is None:
            return 1
        if isinstance(value, bool) or not isinstance(value, int) or value == 0:
            raise self.error("n_jobs", "must be a whole number other than 0; -1 means all cores")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, "must be true or false")
        return value

    def number(self, key: str, above: float = -math.inf) -> float:
        found = _as_number(self.values.get(key))
        if found is None or not found > above:
            raise self.error(key, "must be a finite number" + (f" above {above:g}" if above > -math.inf else ""))
        return found

    def span(self, key: str, above: float = -math.inf) -> tuple[float, float]:
        value = self.values.get(key)
        ends = [_as_number(one) for one in value] if isinstance(value, list) and len(value) == 2 else []
        if not ends or ends[0] is None or ends[1] is None or not above < ends[0] < ends[1]:
            lower = f", both above {above:g}" if above > -math.inf else ""
            raise self.error(key, f"must be a list of two numbers, the smaller first{lower}")
        return ends[0], ends[1]

    def wholes(self, key: str) -> list[int]:
        value = self.values.get(key)
        several = value if isinstance(value, list) else [value]
        found = [one for one in several if isinstance(one, int) and not isinstance(one, bool) and one >= 1]
        if not several or len(found) < len(several):
            raise self.error(key, "must be a whole number, 1 or more, or a list of such")
        return found

    def positives(self, key: str) -> list[float]:
        value = self.values.get(key)
        several = [_as_number(one) for one in (value if isinstance(value, list) else [value])]
        found = [one for one in several if one is not None and one > 0]
        if not several or len(found) < len(several):
            raise self.error(key, "must be a number above 0, or a list of such")
        return found


def _as_number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
