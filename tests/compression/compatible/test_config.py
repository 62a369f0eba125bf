"""Configurations of both forms, and what is refused before anything is computed."""

import pytest

from agml_assets.compression.compatible.config import LinearParams, SvmParams, check_config, load_config
from agml_assets.errors import UserError

OLD = {"batch_size": 64, "epochs": 20, "learning_rate": 0.001, "k_folds": 40}
LINEAR = {
    "k_folds": 40,
    "probe_type": "linear",
    "probe_params": {"batch_size": 64, "epochs": 10, "learning_rate": 0.001, "device": "auto"},
}
SVM_PARAMS = {
    "C_start_end": [1e-3, 1e3],
    "epsilon_list": [0.01, 0.05, 0.1, 0.5],
    "kernel_degree_list": [2, 3],
    "kernel_gamma_start_end": [1e-4, 10],
    "kernel_coef0_start_end": [-1, 2],
    "opt_params": {"n_iter": 50, "n_jobs": 1, "n_points": 1, "optimizer_kwargs": {"base_estimator": "RF"}},
}
SVM = {"k_folds": 40, "probe_type": "svm", "probe_params": SVM_PARAMS}


def test_the_newer_form_is_read_with_the_published_defaults():
    found = check_config(LINEAR)
    assert found.probe_params == LinearParams(64, 10, 0.001, "auto")
    assert (found.standardize_embeddings, found.normalize_labels, found.enable_plots) == (True, True, True)
    assert (found.update_leaderboard, found.output_fold_results, found.store_probes) == (False, False, False)
    assert (found.k_folds, found.embedding_dim, found.task_filter) == (40, None, None)
    assert found.given == LINEAR


def test_the_older_flat_form_is_the_linear_probe():
    found = check_config({**OLD, "embedding_dim": 1024, "device": "cpu", "task_filter": ["a"]})
    assert (found.probe_type, found.probe_params) == ("linear", LinearParams(64, 20, 0.001, "cpu"))
    assert (found.embedding_dim, found.task_filter) == (1024, ("a",))


def test_a_key_in_both_places_must_be_the_same():
    assert check_config({**LINEAR, "epochs": 10}).probe_params.epochs == 10
    with pytest.raises(UserError, match="epochs differs from probe_params.epochs, 10; keep one"):
        check_config({**LINEAR, "epochs": 11})


def test_the_svm_probe_is_read():
    found = check_config(SVM).probe_params
    assert found == SvmParams(
        (1e-3, 1e3),
        (2, 3),
        (1e-4, 10),
        (-1, 2),
        (0.01, 0.05, 0.1, 0.5),
        without_effect=("n_points", "optimizer_kwargs"),
    )
    found = check_config({**SVM, "probe_params": {"C_start_end": [1, 2], "kernel_degree_list": 1}}).probe_params
    assert found == SvmParams((1, 2), (1,))


def test_a_file_is_read_and_its_numbers_with_exponents_are_numbers(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("k_folds: 4\nepochs: 2\nbatch_size: 8\nlearning_rate: 1e-3\n")
    assert load_config(path).probe_params.learning_rate == 1e-3
    path.write_text("k_folds: [")
    with pytest.raises(UserError, match="config.yaml: the configuration is no valid YAML"):
        load_config(path)
    path.write_text("")
    with pytest.raises(UserError, match="a mapping of keys to values, not NoneType"):
        load_config(path)
    with pytest.raises(UserError, match="cannot be read: No such file"):
        load_config(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({**LINEAR, "k_folds": "x"}, "k_folds must be a whole number, 1 or more; it is 'x'"),
        ({**LINEAR, "k_folds": True}, "k_folds must be a whole number"),
        ({**LINEAR, "k_folds": 0}, "k_folds must be a whole number"),
        ({"probe_type": "linear", "probe_params": LINEAR["probe_params"]}, "k_folds .* it is missing"),
        ({"k_folds": 3}, "probe_type must be one of linear, svm; it is missing"),
        ({**LINEAR, "probe_type": "mlp"}, "probe_type must be one of linear, svm; it is 'mlp'"),
        ({**LINEAR, "probe_params": 3}, "probe_params must be a mapping"),
        ({**LINEAR, "enable_plot": True}, "no key 'enable_plot'. Did you mean 'enable_plots'"),
        ({**LINEAR, "enable_plots": "yes"}, "enable_plots must be true or false; it is 'yes'"),
        ({**LINEAR, "embedding_dim": -1}, "embedding_dim must be a whole number"),
        ({**LINEAR, "task_filter": "a"}, "task_filter must be null or a list"),
        ({**LINEAR, "task_filter": []}, "task_filter must be null or a list"),
        ({**OLD, "learning_rate": 0}, "learning_rate must be a finite number above 0; it is 0"),
        ({**OLD, "learning_rate": ".nan"}, "learning_rate must be a finite number"),
        ({**OLD, "epochs": 1.5}, "epochs must be a whole number"),
        ({**OLD, "device": 0}, "device must be auto, cpu, gpu"),
        ({**LINEAR, "probe_params": {**LINEAR["probe_params"], "momentum": 1}}, "probe_params: there is no key"),
        ({**SVM, "epochs": 3}, "epochs is of the linear probe"),
        ({**SVM, "probe_params": {}}, "kernel_degree_list must be a whole number"),
        (
            {**SVM, "probe_params": {**SVM_PARAMS, "kernel_degree_list": [1, 2]}},
            "gamma_start_end is of kernels of",
        ),
        ({**SVM, "probe_params": {**SVM_PARAMS, "C_start_end": [1, 1]}}, "C_start_end must be a list of two"),
        ({**SVM, "probe_params": {**SVM_PARAMS, "C_start_end": [0, 1]}}, "both above 0"),
        (
            {**SVM, "probe_params": {**SVM_PARAMS, "epsilon_list": [0.1, -1]}},
            "epsilon_list must be a number above 0",
        ),
        ({**SVM, "probe_params": {**SVM_PARAMS, "opt_params": {"cv": 3}}}, "must not hold cv"),
        ({**SVM, "probe_params": {**SVM_PARAMS, "opt_params": {"n_jobs": 0}}}, "n_jobs must be"),
    ],
)
def test_a_configuration_that_cannot_be_followed_is_refused(value, says):
    with pytest.raises(UserError, match=says):
        check_config(value)
