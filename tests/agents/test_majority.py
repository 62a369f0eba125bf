"""The commonest answer, by what the public files hold and the manifest declares."""

import dataclasses

import numpy as np
import pytest

from agml_assets.agents.solvers.majority import commonest_answers, require_table
from agml_assets.errors import UserError
from agml_assets.registry.agents import Submission
from tests.agents.tiny_task import make_task


@pytest.fixture
def task(tmp_path):
    return make_task(tmp_path / "task")


def test_a_number_is_the_median_and_a_tie_of_labels_the_first_by_name(task):
    assert (
        commonest_answers(task, Submission(id_column="id", columns={"label": "number"})).splitlines()[1] == "a,2.0"
    )
    (task.public["data"] / "train.csv").write_text("id,label\nx,5\ny,2\n")
    assert (
        commonest_answers(task, Submission(id_column="id", columns={"label": "integer"})).splitlines()[1] == "a,2"
    )


def test_without_a_template_ids_come_from_the_examples_without_answers(task):
    (task.public["data"] / "sample_submission.csv").unlink()
    np.savez(task.public["data"] / "test.npz", ids=np.array(["0001", "0002"]))
    np.savez(task.public["data"] / "train.npz", labels=np.array([3, 1, 3]))
    (task.public["data"] / "train.csv").unlink()
    declared = Submission(id_column="id", columns={"label": "integer"})
    assert commonest_answers(task, declared) == "id,label\n0001,3\n0002,3\n"


def test_probabilities_are_the_shares_of_the_classes(task):
    np.savez(task.public["data"] / "train.npz", labels=np.array([0, 1, 1, 1]))
    (task.public["data"] / "sample_submission.csv").write_text("id,cat,dog\nk,0.5,0.5\n")
    assert commonest_answers(task, Submission(id_column="id", probabilities=True)) == "id,cat,dog\nk,0.25,0.75\n"


def test_what_nothing_public_tells_is_a_constant(task):
    declared = Submission(id_column="id", columns={"suspicion": "number"})
    assert commonest_answers(task, declared) == "id,suspicion\na,0\nb,0\nc,0\n"


def test_a_task_without_a_table_is_refused(task):
    entry = task.entry.model_copy(update={"submission": None, "metric": None})
    with pytest.raises(UserError, match="declares no CSV"):
        require_table(dataclasses.replace(task, entry=entry))
