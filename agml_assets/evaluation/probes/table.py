"""Every probe by the name that registries, commands and run records use.

Naming a probe imports neither scikit-learn nor PyTorch; making one does. Docs: `docs/probes.md`.
"""

import importlib
from typing import Any

from agml_assets.errors import UserError, did_you_mean

PROBES: dict[str, tuple[str, str]] = {
    "linear": ("linear", "LinearProbe"),
    "logistic": ("logistic", "LogisticProbe"),
    "ridge": ("ridge", "RidgeProbe"),
    "knn": ("nearest_neighbors", "NearestNeighborsProbe"),
    "simpleshot": ("simple_shot", "SimpleShot"),
    "simpleshot_open_set": ("open_set", "OpenSetDetector"),
    "svm": ("svm", "LinearSvm"),
    "multi_label": ("multi_label", "MultiLabelHead"),
}
"""Name of a probe -> module of this package, and class."""

DEFAULT_SEED = 17
"""BioBench's `seed`."""


def make_probe(name: str, *, seed: int = DEFAULT_SEED, device: str = "cpu", **settings: Any) -> Any:
    """Return a new, unfitted probe.

    Args:
        name: One of `PROBES`.
        seed: Becomes `random_state` where the probe draws anything.
        device: Where the probe trains, `cpu` or `cuda`, if it can use a GPU; the others ignore it. Holding the
            GPU against other processes (`agml_assets.device.use_device`) is the caller's part.
        **settings: Further parameters of that probe.

    Returns:
        A scikit-learn estimator: `fit(X, y)`, `predict(X)`, `get_params()`.

    Raises:
        UserError: There is no probe or no parameter of that name; the nearest ones are named.
    """
    if name not in PROBES:
        raise UserError(
            f"There is no probe {name!r}.{did_you_mean(name, PROBES)} Probes are: {', '.join(PROBES)}."
        )
    module, class_name = PROBES[name]
    probe = getattr(importlib.import_module(f"agml_assets.evaluation.probes.{module}"), class_name)()
    known = probe.get_params(deep=False)
    for setting in settings:
        if setting not in known:
            raise UserError(
                f"Probe {name!r} has no parameter {setting!r}.{did_you_mean(setting, known)} "
                f"Its parameters are: {', '.join(known) or 'none'}."
            )
    common = {"random_state": seed, "device": device}
    return probe.set_params(**{key: value for key, value in common.items() if key in known} | settings)
