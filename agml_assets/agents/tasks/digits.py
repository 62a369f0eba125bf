"""A task that needs nothing but scikit-learn: its handwritten digits, to be read better than the starter does."""

import importlib.util
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import polars as pl

from agml_assets.agents.metrics import accuracy
from agml_assets.agents.tasks.stage import Made, Stage, write_arrays
from agml_assets.registry.agents import AgentTaskEntry, Submission

_ANSWERS = "sklearn/datasets/data/digits.csv.gz"  # where an installed scikit-learn keeps digits and labels
_PACKAGES = ("lib*/python*/site-packages", "lib*/python*/dist-packages")  # below an installation of Python
_INSTALLATIONS = ("", "local/", "envs/*/", "pkgs/*/")  # the last two are conda's

_TEST_SHARE = 0.4
_SEED = 20

PROBLEM = """\
Handwritten digits are to be read. `data/train.npz` holds `images` (8 x 8 pixels, 0 to 16) and their `labels`
(0 to 9); `data/test.npz` holds `images` and their `ids`, without labels. `train.py` trains a simple model and
writes `submission.csv` with the columns `id` and `label`, a row for every test image.

Improve it: the share of test images that are read correctly is your score. NumPy and scikit-learn are
installed; there is no network. Judge models on a part of the training images, and leave your best predictions
in `submission.csv`.
"""


def make_digits(entry: AgentTaskEntry, stage: Stage) -> Made:
    """Make the task: three of five labels public, the others private; order and ids tell nothing of the source."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.svm import SVC

    found = load_digits()
    images, labels = found.images.astype(np.uint8), found.target.astype(np.int64)
    train, test = train_test_split(
        np.arange(len(labels)), test_size=_TEST_SHARE, random_state=_SEED, stratify=labels
    )
    ids = np.array([f"{place:04}" for place in range(len(test))])
    data = stage.public / "data"
    data.mkdir()
    write_arrays(data / "train.npz", images=images[train], labels=labels[train])
    write_arrays(data / "test.npz", images=images[test], ids=ids)
    shutil.copyfile(Path(__file__).with_name("starters") / "digits.py", stage.env / "train.py")
    stage.write_answers(pl.DataFrame({"id": ids, "label": labels[test]}))
    # The textbook solution: a support vector machine with radial basis functions.
    good = SVC(C=10, gamma=0.001).fit(found.data[train], labels[train])
    decided = {
        "metric": "accuracy",
        "direction": "higher",
        "submission": Submission(id_column="id", columns={"label": "integer"}),
    }
    return Made(
        entry.model_copy(update=decided),
        PROBLEM,
        public=("data",),
        reference=accuracy(labels[test], good.predict(found.data[test])),
    )


def installed_digits() -> Path | None:
    """Return the file of this Python's scikit-learn that holds the digits; imports nothing."""
    found = importlib.util.find_spec("sklearn")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parents[1] / _ANSWERS


def answers_below(installations: Iterable[Path]) -> tuple[Path, ...]:
    """Return every file below some installations of Python that holds the digits with their labels."""
    found = {
        path.resolve()
        for folder in installations
        for within in _INSTALLATIONS
        for packages in _PACKAGES
        for path in folder.glob(f"{within}{packages}/{_ANSWERS}")
    }
    return tuple(sorted(found))
