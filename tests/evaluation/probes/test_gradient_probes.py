"""The probes trained by gradient steps: the published steps, by hand, and what was mended of them."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from agml_assets.errors import UserError
from agml_assets.evaluation.probes.linear import LinearProbe
from agml_assets.evaluation.probes.multi_label import MultiLabelHead
from agml_assets.evaluation.probes.training_loop import learning_rate_after

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # of Adam, as published and in PyTorch


def adamw_by_hand(X, codes, weight, bias, n_steps, rate, decay):
    """Return the folded weights and intercepts after full-batch steps, in float64."""
    n, d = X.shape
    normal = (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(1, keepdims=True) + 1e-5)
    targets = np.eye(len(bias))[codes]
    values = {"weight": weight, "bias": bias, "scale": np.ones(d), "shift": np.zeros(d)}
    first = {name: np.zeros_like(value) for name, value in values.items()}
    second = {name: np.zeros_like(value) for name, value in values.items()}
    now = rate
    for t in range(1, n_steps + 1):
        inputs = normal * values["scale"] + values["shift"]
        logits = inputs @ values["weight"].T + values["bias"]
        shares = np.exp(logits - logits.max(1, keepdims=True))
        errors = (shares / shares.sum(1, keepdims=True) - targets) / n
        back = errors @ values["weight"]
        slopes = {
            "weight": errors.T @ inputs,
            "bias": errors.sum(0),
            "scale": (back * normal).sum(0),
            "shift": back.sum(0),
        }
        for name, slope in slopes.items():
            if name == "weight":
                values[name] = values[name] * (1 - now * decay)
            first[name] = BETA_1 * first[name] + (1 - BETA_1) * slope
            second[name] = BETA_2 * second[name] + (1 - BETA_2) * slope**2
            step = (first[name] / (1 - BETA_1**t)) / (np.sqrt(second[name] / (1 - BETA_2**t)) + EPSILON)
            values[name] = values[name] - now * step
        last = rate / 100
        now = last + 0.5 * (rate - last) * (1 + math.cos(math.pi * t / n_steps))
    return values["weight"] * values["scale"], values["bias"] + values["weight"] @ values["shift"]


def test_linear_probe_takes_the_published_steps(digits):
    X, y = digits
    settings = {"n_steps": 12, "batch_size": len(X), "weight_decay": 0.5}
    start = LinearProbe(learning_rate=0.0, **settings).fit(X, y)  # does not move
    ours = LinearProbe(learning_rate=0.02, **settings).fit(X, y)
    coef, intercept = adamw_by_hand(
        X, y - 10, start.coef_.astype(float), start.intercept_.astype(float), 12, 0.02, 0.5
    )
    assert np.abs(coef - start.coef_).max() > 0.1
    np.testing.assert_allclose(ours.coef_, coef, atol=2e-4)
    np.testing.assert_allclose(ours.intercept_, intercept, atol=2e-4)


def test_linear_probe_has_the_published_settings():
    assert LinearProbe().get_params() == {
        "n_steps": 10_000,
        "batch_size": 2048,
        "learning_rate": 3e-4,
        "weight_decay": 1e-2,
        "device": "cpu",
        "random_state": 17,
    }


def test_the_rate_falls_by_a_cosine_from_3e_4_to_3e_6():
    assert learning_rate_after(5_000, 10_000, 3e-4) == pytest.approx((3e-4 + 3e-6) / 2, rel=1e-12)
    assert learning_rate_after(10_000, 10_000, 3e-4) == pytest.approx(3e-6, rel=1e-9)
    rates = [learning_rate_after(step, 100, 1.0) for step in range(101)]
    assert rates[0] == 1.0
    assert sorted(rates, reverse=True) == rates


def test_linear_probe_probabilities_are_those_of_pytorch_layers(digits):
    X, y = digits
    ours = LinearProbe(n_steps=20, learning_rate=0.01).fit(X, y)
    normal = torch.nn.functional.layer_norm(torch.from_numpy(X), (64,))
    logits = normal @ torch.from_numpy(ours.coef_).double().T + torch.from_numpy(ours.intercept_)
    np.testing.assert_allclose(ours.predict_proba(X), torch.softmax(logits, 1).numpy(), rtol=1e-6)


def test_every_example_is_seen_once_a_pass_the_last_short_batch_too(digits, monkeypatch):
    X, y = digits
    seen = []
    cross_entropy = torch.nn.functional.cross_entropy
    monkeypatch.setattr(
        torch.nn.functional, "cross_entropy", lambda out, y: seen.append(len(y)) or cross_entropy(out, y)
    )
    LinearProbe(n_steps=6, batch_size=250).fit(X, y)
    assert seen == [250, 250, 100] * 2


@pytest.mark.parametrize(
    "probe", [LinearProbe(n_steps=30, batch_size=64), MultiLabelHead(n_steps=30, batch_size=64)]
)
def test_a_seed_repeats_a_probe_and_another_does_not(digits, probe):
    X, y = digits
    targets = y if isinstance(probe, LinearProbe) else np.eye(10, dtype=int)[y - 10]
    before = torch.random.get_rng_state()
    first = probe.fit(X, targets).coef_
    np.testing.assert_array_equal(first, probe.fit(X, targets).coef_)
    assert (before == torch.random.get_rng_state()).all()
    other = type(probe)(n_steps=30, batch_size=64, random_state=18).fit(X, targets)
    assert np.abs(other.coef_ - first).max() > 1e-3


def test_linear_probe_generalises_like_logistic_regression_on_the_same_normalised_vectors(digits):
    X, y = digits
    normal = torch.nn.functional.layer_norm(torch.from_numpy(X), (64,)).numpy()
    theirs = LogisticRegression(max_iter=5_000).fit(normal[:400], y[:400]).score(normal[400:], y[400:])
    ours = LinearProbe(n_steps=400, batch_size=128, learning_rate=1e-2).fit(X[:400], y[:400])
    assert theirs > 0.8
    assert ours.score(X[400:], y[400:]) == pytest.approx(theirs, abs=0.04)


def test_multi_label_head_answers_like_a_logistic_regression_for_each_label(digits):
    X, y = digits[0] / 16, digits[1]
    traits = np.c_[y % 2 == 0, y >= 15, y == 17].astype(int)
    theirs = np.stack(
        [
            LogisticRegression(C=1e3, max_iter=5_000).fit(X[:400], trait).predict(X[400:])
            for trait in traits[:400].T
        ],
        1,
    )
    ours = (
        MultiLabelHead(n_steps=800, batch_size=128, learning_rate=1e-3).fit(X[:400], traits[:400]).predict(X[400:])
    )
    assert ours.shape == (200, 3)

    def mean_f1(predicted):
        return np.mean([f1_score(traits[400:, t], predicted[:, t], average="macro") for t in range(3)])

    assert mean_f1(theirs) > 0.8
    assert mean_f1(ours) > mean_f1(theirs) - 0.03


def test_multi_label_head_has_the_published_settings_and_a_rate_that_lives():
    assert MultiLabelHead().get_params() == {
        "n_steps": 30_000,
        "batch_size": 1024,
        "learning_rate": 3e-4,
        "device": "cpu",
        "random_state": 17,
    }
    # StepLR(20, 0.5) at every step: all rates together are 40 of the first.
    assert sum(learning_rate_after(step, 30_000, 1.0) for step in range(30_000)) > 15_000


def test_multi_label_head_answers_alike_every_time_with_all_units(digits):
    """By the loop's own layers: with dropout active the outputs would be random, and not the layers' product."""
    X, y = digits
    head = MultiLabelHead(n_steps=5).fit(X, np.eye(10, dtype=int)[y - 10])
    np.testing.assert_array_equal(head.predict_proba(X), head.predict_proba(X))
    torch.manual_seed(0)
    rate_zero = MultiLabelHead(n_steps=1, learning_rate=0.0, random_state=3).fit(X, np.eye(10, dtype=int)[y - 10])
    torch.manual_seed(np.random.RandomState(3).randint(2**31))
    layers = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Linear(512, 10))
    expected = torch.sigmoid(layers(torch.from_numpy(X).float())).detach().numpy()
    np.testing.assert_allclose(rate_zero.predict_proba(X), expected, atol=1e-5)


def test_a_label_is_given_from_a_probability_of_one_half(digits):
    X, y = digits
    head = MultiLabelHead(n_steps=20, batch_size=64).fit(X, (y % 2)[:, None])
    probabilities = head.predict_proba(X)
    assert ((probabilities > 0.5) & (probabilities < 0.622)).any()
    np.testing.assert_array_equal(head.predict(X), probabilities > 0.5)


def test_what_cannot_be_trained_is_refused_in_words(digits):
    X, y = digits
    with pytest.raises(UserError, match="device 'tpu'"):
        LinearProbe(device="tpu").fit(X, y)
    with pytest.raises(UserError, match="diverged"):
        MultiLabelHead(n_steps=3, learning_rate=1e30).fit(X, np.eye(10, dtype=int)[y - 10])
    with pytest.raises(ValueError, match="1 or more"):
        LinearProbe(n_steps=0).fit(X, y)
    with pytest.raises(ValueError, match="zeros and ones"):
        MultiLabelHead().fit(X, np.c_[y, y])
