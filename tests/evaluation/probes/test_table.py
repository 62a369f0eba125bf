"""Probes by name: cheap to name, clear when mistaken."""

import subprocess
import sys

import pytest

from agml_assets.errors import UserError
from agml_assets.evaluation.probes.table import PROBES, make_probe


def test_naming_probes_imports_neither_scikit_learn_nor_pytorch():
    code = (
        "import sys, agml_assets.evaluation.probes.table, agml_assets.evaluation.probes.few_shot; "
        "assert not {'sklearn', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_seed_and_device_reach_the_probes_that_take_them():
    linear = make_probe("linear", seed=3, device="cuda", n_steps=7)
    assert (linear.random_state, linear.device, linear.n_steps) == (3, "cuda", 7)
    assert make_probe("logistic", seed=3, device="cuda").random_state == 3
    assert make_probe("knn", seed=3, device="cuda").get_params() == {"n_neighbors": 5}


@pytest.mark.parametrize("name", PROBES)
def test_every_probe_can_be_made_and_is_unfitted(name):
    probe = make_probe(name)
    assert not hasattr(probe, "classes_")
    assert probe is not make_probe(name)


def test_a_mistyped_probe_or_parameter_names_the_nearest():
    with pytest.raises(UserError, match="no probe 'rigde'. Did you mean 'ridge'"):
        make_probe("rigde")
    with pytest.raises(UserError, match="no parameter 'alpha'. Did you mean 'alphas'"):
        make_probe("ridge", alpha=1)
    with pytest.raises(UserError, match="Its parameters are: none"):
        make_probe("simpleshot", k=1)
