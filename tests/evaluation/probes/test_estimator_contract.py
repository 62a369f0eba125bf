"""Every probe keeps scikit-learn's contract for estimators."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from agml_assets.evaluation.probes.table import PROBES, make_probe

# Few steps and penalties: the checks' data are small, and easy.
QUICK = {
    "linear": {"n_steps": 60, "batch_size": 64, "learning_rate": 0.1},
    "logistic": {"Cs": (0.1, 1.0), "cv": 2},
    "multi_label": {"n_steps": 5, "batch_size": 64},
}
NOT_A_TABLE = "the check's labels are one column of other values; this head takes a table of zeros and ones"
ONE_COLUMN_OUT = "the check wants predictions of one dimension; those of a table of labels have two"
EXPECTED_FAILURES = {
    "LinearProbe": {
        "check_classifiers_train": "of the two features of the check's data LayerNorm leaves which is larger"
    },
    "MultiLabelHead": {
        "check_estimators_dtypes": NOT_A_TABLE,
        "check_classifier_data_not_an_array": NOT_A_TABLE,
        "check_classifiers_classes": NOT_A_TABLE,
        "check_fit2d_1feature": NOT_A_TABLE,
        "check_classifiers_train": ONE_COLUMN_OUT,
    },
}


@parametrize_with_checks(
    [make_probe(name, **QUICK.get(name, {})) for name in PROBES],
    expected_failed_checks=lambda probe: EXPECTED_FAILURES.get(type(probe).__name__, {}),
)
def test_probe_keeps_the_contract_of_estimators(estimator, check):
    check(estimator)
