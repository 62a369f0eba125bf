"""How the data of known tasks is split: what the agent sees, and the answers that it does not.

Each split takes what was downloaded, or what a task's own `prepare.py` made, and is the old benchmark's, so
that its scores stay comparable. Downloads are in `kaggle` and `fathomnet`.
"""

import gzip
import json
import pickletools
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from blake3 import blake3
from jaxtyping import Int, Shaped

from agml_assets.agents.metrics import MOST_CATEGORIES, find_metric, read_categories, write_mask
from agml_assets.agents.tasks.fathomnet import download_images
from agml_assets.agents.tasks.kaggle import download_competition, extract
from agml_assets.agents.tasks.stage import Stage, link_or_copy
from agml_assets.errors import UserError
from agml_assets.registry.agents import AgentTaskEntry

ESSAY_SCORES = ("cohesion", "syntax", "vocabulary", "phraseology", "grammar", "conventions")

MOST_VALUES = 50
"""Different texts in a column that is still one of categories."""

_SEED = 42  # of every random split of the old benchmark
_LAST_VISIT = 108  # months: Kaggle's predictions of Parkinson's go no further
_WAITS = (0, 6, 12, 24)  # months ahead
_SCALES = (1, 2, 3, 4)  # parts of the UPDRS
_MASKS = "human_pixel_masks.npy"
_CIFAR_TESTED = 10_000
_GRAPH_PARTS = ("mapping", "raw", "split")  # of OGB's folder, beside what its loader processed


@dataclass(frozen=True)
class Published:
    """What a split made.

    Attributes:
        parts: Public files and folders, by their path in the workspace.
        note: A sentence that is added to what the agent is told.
        baseline: Score of a guess where the starter code does not run; None where it does.
        guess: What is guessed for it.
        reference: Score of a good solution that was measured on this split.
    """

    parts: list[str]
    note: str = ""
    baseline: float | None = None
    guess: str = ""
    reference: float | None = None


@dataclass(frozen=True)
class Split:
    """How a task's data is split.

    Attributes:
        make: Takes the manifest, the copy of `env/` and the stage; writes public files and answers.
        after_prepare: Whether it needs what the folder's own `prepare.py` makes.
    """

    make: Callable[[AgentTaskEntry, Path, Stage], Published]
    after_prepare: bool = False


@dataclass(frozen=True)
class Parts:
    """A table split in two: what to learn from, what to predict, and its answers."""

    train: pl.DataFrame
    test: pl.DataFrame
    answers: pl.DataFrame


def split_tail(frame: pl.DataFrame, share: float, answers: Sequence[str], id_column: str | None) -> Parts:
    """Split off the last rows of a table.

    Args:
        frame: All of it.
        share: Of the rows that stay for training, rounded down.
        answers: Columns that the test part lacks.
        id_column: Column that the answers keep beside them.
    """
    cut = int(frame.height * share)
    test = frame[cut:]
    kept = [*([id_column] if id_column is not None else []), *answers]
    return Parts(frame[:cut], test.drop(answers), test.select(kept))


def shuffled(n: int) -> Int[np.ndarray, " n"]:
    """Return the order of rows that pandas draws by `sample(frac=1, random_state=42)`."""
    return np.random.RandomState(_SEED).permutation(n)  # the old draw


def draw_patients(patients: Sequence[str]) -> list[str]:
    """Return the two patients that are held out, of all in the order of their first visit."""
    return random.Random(_SEED).sample(list(patients), 2)  # noqa: S311 - the old benchmark's draw


def read_table(file: Path) -> pl.DataFrame:
    """Read a CSV, every value as it is written."""
    try:
        return pl.read_csv(file, infer_schema=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UserError(f"{file} is no CSV: {str(error).partition(chr(10))[0]}") from None


def read_pickled_labels(content: bytes) -> list[int]:
    """Return the list of small integers that follows the text `labels` in a pickle, which is not unpickled.

    Its instructions are listed and none is carried out.

    Raises:
        ValueError: There is no such list.
    """
    labels: list[int] = []
    seen = False
    passing = {"BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE", "EMPTY_LIST", "MARK", "APPENDS", "APPEND", "LIST"}
    for opcode, argument, _ in pickletools.genops(content):
        if not seen:
            seen = argument in ("labels", b"labels")
        elif isinstance(argument, int) and opcode.name in ("BININT1", "BININT2", "BININT", "INT"):
            labels.append(argument)
        elif opcode.name not in passing:
            break
    if not labels:
        raise ValueError("no list of labels")
    return labels


def parkinsons_tables(tables: dict[str, pl.DataFrame]) -> tuple[dict[str, pl.DataFrame], pl.DataFrame]:
    """Hold two patients out of the tables of Kaggle's AMP Parkinson's Disease Progression Prediction.

    Patients of the supplement that are in no other table stay for training; the old benchmark lost them all.

    Args:
        tables: `train_proteins`, `train_clinical_data`, `train_peptides`, `supplemental_clinical_data`, as text.

    Returns:
        Public tables by path without suffix, and the answers: `prediction_id` and `rating`.
    """
    clinical = tables["train_clinical_data"]
    tested = draw_patients(clinical["patient_id"].unique(maintain_order=True).to_list())
    held_out = pl.col("patient_id").is_in(tested)
    public = {name: table.filter(~held_out) for name, table in tables.items()}
    for name in ("proteins", "peptides"):
        public[f"example_test_files/test_{name}"] = tables[f"train_{name}"].filter(held_out)
    visits = clinical.filter(held_out)
    rows = pl.concat(
        visits.select(
            "visit_id",
            "patient_id",
            "visit_month",
            pl.format("{}_{}_updrs_{}", "patient_id", "visit_month", pl.lit(scale)).alias("row_id"),
            pl.lit(f"updrs_{scale}").alias("updrs_test"),
        )
        for scale in _SCALES
    )
    public["example_test_files/test"] = rows
    ratings = visits.unpivot(
        [f"updrs_{scale}" for scale in _SCALES],
        index=["patient_id", "visit_month"],
        variable_name="updrs_test",
        value_name="rating",
    ).with_columns(pl.col("visit_month").cast(pl.Int64).alias("then"))
    asked = pl.concat(
        rows.select(
            "patient_id",
            "visit_month",
            "updrs_test",
            (pl.col("visit_month").cast(pl.Int64) + wait).alias("then"),
            pl.format("{}_plus_{}_months", "row_id", pl.lit(wait)).alias("prediction_id"),
        )
        for wait in _WAITS
    ).filter(pl.col("then") <= _LAST_VISIT)
    known = asked.join(ratings.drop("visit_month"), on=["patient_id", "updrs_test", "then"], how="inner").filter(
        pl.col("rating").is_not_null()
    )
    sample = known.select("prediction_id", pl.lit(0).alias("rating"), "visit_month")
    public["example_test_files/sample_submission"] = sample
    return public, known.select("prediction_id", pl.col("rating").cast(pl.Float64))


def split_coco(
    document: dict[str, Any], blank: dict[str, Any], tested: set[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a list of images in COCO's format; ids are numbered anew from 1.

    Args:
        document: Images and annotations.
        blank: The list of test images as the competition has it, whose images are replaced.
        tested: Names of test images, without suffix.

    Returns:
        Images to learn from, with their annotations; and test images, without.
    """
    train = [image for image in document["images"] if Path(image["file_name"]).stem not in tested]
    test = [image for image in document["images"] if Path(image["file_name"]).stem in tested]
    number = {image["id"]: place for place, image in enumerate(train, start=1)}
    annotations = [one for one in document["annotations"] if one["image_id"] in number]
    return (
        {
            **document,
            "images": [{**image, "id": number[image["id"]]} for image in train],
            "annotations": [
                {**one, "id": place, "image_id": number[one["image_id"]]}
                for place, one in enumerate(annotations, start=1)
            ],
        },
        {
            **{key: value for key, value in blank.items() if key != "annotations"},
            "images": [{**image, "id": place} for place, image in enumerate(test, start=1)],
        },
    )


# --- The splits -----------------------------------------------------------------------------------


def _extracted(entry: AgentTaskEntry, stage: Stage, wanted: Callable[[str], bool] = lambda name: True) -> Path:
    """Return a folder with the files of the task's competition, which is part of the stage."""
    assert entry.preparation.kaggle is not None
    archive = download_competition(entry.preparation.kaggle, stage.downloads / "kaggle")
    target = stage.folder / "work" / "extracted"
    extract(archive, target, wanted)
    return target


def _publish(stage: Stage, tables: dict[str, pl.DataFrame]) -> None:
    for name, table in tables.items():
        file = stage.public / f"{name}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        table.write_csv(file)


def _move(source: Path, stage: Stage, name: str) -> None:
    if not source.exists():
        raise UserError(
            f"The archive of the competition has no {source.name}; its files are not those this split knows."
        )
    (stage.public / name).parent.mkdir(parents=True, exist_ok=True)
    source.rename(stage.public / name)


def _make_table(
    entry: AgentTaskEntry, env: Path, stage: Stage, *, id_column: str, target: str, kind: Any, described: bool
) -> Published:
    """Hold out the last fifth of a competition's training table."""
    found = _extracted(entry, stage)
    parts = split_tail(read_table(found / "train.csv"), 0.8, [target], id_column)
    _publish(stage, {"train": parts.train, "test": parts.test})
    typed = pl.col(target).str.to_lowercase() == "true" if kind == pl.Boolean else pl.col(target).cast(kind)
    answers = parts.answers.with_columns(typed.alias(target))
    stage.write_answers(answers)
    if described:
        _move(found / "data_description.txt", stage, "data_description.txt")
    known = parts.train.select(typed.alias(target)).to_series()
    guess = known.median() if kind == pl.Float64 else known.mode().sort()[0]
    boosted = boosted_trees(parts.train.drop(id_column, target), known.to_numpy(), parts.test.drop(id_column))
    return Published(
        ["train.csv", "test.csv", *(["data_description.txt"] if described else [])],
        baseline=_score(entry, answers.select(target), pl.DataFrame({target: [guess] * answers.height})),
        guess="the median of the training examples for all"
        if kind == pl.Float64
        else "the commonest class of the training examples for all",
        reference=_score(entry, answers.select(target), pl.DataFrame({target: boosted})),
    )


def _score(entry: AgentTaskEntry, answers: pl.DataFrame, given: pl.DataFrame) -> float:
    assert entry.metric is not None
    return find_metric(entry.metric, entry.key).measure(answers, given)


def boosted_trees(
    train: pl.DataFrame, known: Shaped[np.ndarray, " n"], test: pl.DataFrame
) -> Shaped[np.ndarray, " m"]:
    """Return what gradient-boosted trees predict: the good solution that a table's scores are held against.

    A column is of numbers, where all its values are; else of categories, and left out where there are more than
    `MOST_VALUES` of them, as names and numbers of cabins are. `NA` and nothing are missing.

    Args:
        train: Training examples, as text, without id and answer.
        known: Their answers: truths, or numbers, of which the absolute error is made small.
        test: Examples to predict.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    columns, categorical = [], []
    for name in train.columns:
        texts = [table[name].replace({"NA": None, "": None}) for table in (train, test)]
        numbers = [text.cast(pl.Float64, strict=False) for text in texts]
        if is_text := numbers[0].null_count() > texts[0].null_count():
            values = texts[0].drop_nulls().unique().sort().to_list()
            if len(values) > MOST_VALUES:
                continue
            codes = {value: float(place) for place, value in enumerate(values)}
            numbers = [text.replace_strict(codes, default=None, return_dtype=pl.Float64) for text in texts]
        elif numbers[0].drop_nulls().n_unique() < 2:  # tells nothing, and scikit-learn cannot bin it
            continue
        columns.append([column.fill_null(np.nan).to_numpy() for column in numbers])
        categorical.append(is_text)
    learned, asked = (np.stack(part, axis=1) for part in zip(*columns, strict=True))
    settings = {"categorical_features": categorical, "random_state": _SEED}
    if known.dtype == bool:
        return HistGradientBoostingClassifier(**settings).fit(learned, known).predict(asked)
    return HistGradientBoostingRegressor(loss="absolute_error", **settings).fit(learned, known).predict(asked)


def _make_parkinsons(entry: AgentTaskEntry, env: Path, stage: Stage) -> Published:
    found = _extracted(entry, stage)
    names = ("train_proteins", "train_clinical_data", "train_peptides", "supplemental_clinical_data")
    public, answers = parkinsons_tables({name: read_table(found / f"{name}.csv") for name in names})
    _publish(stage, public)
    stage.write_answers(answers)
    return Published([*(f"{name}.csv" for name in names), "example_test_files"])


def _make_feedback(entry: AgentTaskEntry, env: Path, stage: Stage) -> Published:
    essays = read_table(_extracted(entry, stage) / "train.csv")
    parts = split_tail(essays[shuffled(essays.height)], 0.98, ESSAY_SCORES, None)
    _publish(stage, {"train": parts.train, "test": parts.test})
    stage.write_answers(parts.answers.cast(pl.Float64))
    note = "The rows of `submission.csv` stand in the order of `test.csv`."
    return Published(["train.csv", "test.csv"], note)


def _make_fathomnet(entry: AgentTaskEntry, env: Path, stage: Stage) -> Published:
    found = _extracted(entry, stage)
    listed = read_table(found / "multilabel_classification" / "train.csv")
    cut = int(listed.height * 0.98)
    order = shuffled(listed.height)
    train, test = listed[order[:cut]], listed[order[cut:]]
    boxes = found / "object_detection"
    download_images(boxes / "train.json", stage.images)
    document = json.loads((boxes / "train.json").read_text())
    known, asked = split_coco(document, json.loads((boxes / "eval.json").read_text()), set(test["id"]))
    _publish(stage, {"multilabel_classification/train": train})
    for name, content in (("train", known), ("eval", asked)):
        file = stage.public / "object_detection" / f"{name}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(content))
    (stage.public / "images").mkdir()
    for image in document["images"]:
        link_or_copy(stage.images / image["file_name"], stage.public / "images" / image["file_name"])
    _move(found / "category_key.csv", stage, "category_key.csv")
    # Images of the training set: none of them is out of sample.
    answers = test.select("id", "categories", pl.lit(0.0).alias("osd"))
    stage.write_answers(answers)
    counts = Counter(one for text in train["categories"] for one in set(read_categories(text)))
    commonest = sorted(counts, key=lambda one: (-counts[one], one))[:MOST_CATEGORIES]
    guess = pl.DataFrame({"categories": [" ".join(map(str, commonest))] * test.height, "osd": [0.5] * test.height})
    note = "All test images come from the competition's training set, so `osd` does not count; give any number."
    return Published(
        ["multilabel_classification", "object_detection", "images", "category_key.csv"],
        note,
        baseline=_score(entry, answers.drop("id"), guess),
        guess=f"the {MOST_CATEGORIES} commonest categories of the training images for all",
    )


def _make_contrails(entry: AgentTaskEntry, env: Path, stage: Stage) -> Published:
    wanted = ("train/", "validation/", "train_metadata.json", "validation_metadata.json")
    found = _extracted(entry, stage, lambda name: name.startswith(wanted))
    records = sorted(path for path in (found / "validation").iterdir() if path.is_dir())
    masks = [write_mask(_read_mask(record / _MASKS)) for record in records]
    answers = pl.DataFrame({"record_id": [record.name for record in records], "encoded_pixels": masks})
    for record in records:
        for file in record.glob("human_*"):
            file.unlink()
    for name, public in (
        ("train", "train"),
        ("validation", "test"),
        ("train_metadata.json", "train_metadata.json"),
    ):
        _move(found / name, stage, public)
    _move(found / "validation_metadata.json", stage, "validation_metadata.json")
    _publish(stage, {"sample_submission": answers.with_columns(encoded_pixels=pl.lit("-"))})
    stage.write_answers(answers)
    metadata = ("train_metadata.json", "validation_metadata.json")
    return Published(["train", "test", *metadata, "sample_submission.csv"])


def _read_mask(file: Path) -> np.ndarray:
    mask = np.load(file, allow_pickle=False)
    return np.asarray(mask.reshape(mask.shape[:2]) > 0).T.reshape(-1)  # the encoding runs down the columns


def _make_cifar10(entry: AgentTaskEntry, env: Path, stage: Stage) -> Published:
    batch = env / "data" / "cifar-10-batches-py" / "test_batch"
    try:
        labels = read_pickled_labels(batch.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"Task {entry.key!r}: {batch} has no labels ({error}). {entry.preparation.note}") from None
    if len(labels) != _CIFAR_TESTED or set(labels) != set(range(10)):
        raise UserError(
            f"Task {entry.key!r}: {batch} holds {len(labels)} labels, not {_CIFAR_TESTED} of ten classes."
        )
    stage.write_answers(pl.DataFrame({"": [str(place) for place in range(len(labels))], "label": labels}))
    shutil.move(env / "data", stage.public / "data")
    return Published(["data"])


def _make_imdb(entry: AgentTaskEntry, env: Path, stage: Stage) -> Published:
    from datasets import load_dataset

    try:
        reviews = load_dataset("stanfordnlp/imdb")
    except Exception as error:  # whatever the hub's client raises
        raise UserError(
            f"Task {entry.key!r}: the hub's data set stanfordnlp/imdb cannot be read: {error}"
        ) from None
    tables = {
        part: pl.DataFrame({n: list(reviews[part][n]) for n in ("text", "label")}) for part in ("train", "test")
    }
    return publish_reviews(tables["train"], tables["test"], stage)


def publish_reviews(train: pl.DataFrame, test: pl.DataFrame, stage: Stage) -> Published:
    """Write reviews: `text` and `label` to learn from, `text` and `idx` to predict, whose labels are private.

    Both are put into another order first: the hub lists them by label, so that their numbers would tell it.
    """
    (stage.public / "data").mkdir()
    train[_order_by_content(train)].write_parquet(stage.public / "data" / "train.parquet")
    mixed = test[_order_by_content(test)]
    numbered = mixed.with_row_index("idx").with_columns(pl.col("idx").cast(pl.String))
    numbered.select("idx", "text").write_parquet(stage.public / "data" / "test.parquet")
    stage.write_answers(numbered.select("idx", pl.col("label").cast(pl.Int64)))
    note = (
        "There is no network: read the reviews from `data/train.parquet` (`text`, `label`) and "
        "`data/test.parquet` (`idx`, `text`) in place of the hub."
    )
    return Published(["data"], note)


def _order_by_content(table: pl.DataFrame) -> Int[np.ndarray, " n"]:
    """Return an order of rows drawn from all that a table holds: who lacks its labels cannot draw it again."""
    content = blake3(json.dumps(table.to_dict(as_series=False), sort_keys=True).encode()).hexdigest()
    return np.random.default_rng(int(content[:16], 16)).permutation(table.height)


def _make_arxiv(entry: AgentTaskEntry, env: Path, stage: Stage) -> Published:
    """Publish raw data and split alone, labels of test nodes overwritten.

    The copy that OGB's loader has processed holds all labels, so it is left out. The loader makes it anew beside
    the read-only parts: their folder, with the note of the release that it asks for, is part of the workspace.
    """
    folder = env / "networks" / "ogbn_arxiv"
    label_file = folder / "raw" / "node-label.csv.gz"
    try:
        labels = pl.read_csv(label_file, has_header=False).to_series(0).cast(pl.Int64).to_numpy().copy()
        trained, tested = (
            pl.read_csv(folder / "split" / "time" / f"{part}.csv.gz", has_header=False).to_series(0).to_numpy()
            for part in ("train", "test")
        )
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UserError(
            f"Task {entry.key!r}: {folder} lacks labels or split ({error}). {entry.preparation.note}"
        ) from None
    stage.write_answers(pl.DataFrame({"0": labels[tested]}))
    commonest = int(np.bincount(labels[trained]).argmax())
    labels[tested] = commonest
    # Without the time of writing: the same labels make the same task.
    label_file.write_bytes(gzip.compress("".join(f"{label}\n" for label in labels).encode(), mtime=0))
    public = [f"networks/ogbn_arxiv/{part}" for part in _GRAPH_PARTS if (folder / part).is_dir()]
    for part in public:
        (stage.public / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(env / part, stage.public / part)
    releases = {file.name: file.read_bytes() for file in folder.glob("RELEASE_*.txt")}
    shutil.rmtree(env / "networks")
    folder.mkdir(parents=True)
    for name, content in releases.items():
        (folder / name).write_bytes(content)
    note = (
        "The rows of `submission.csv` stand in the order of the data set's test nodes. Their labels are unknown: "
        f"in the label file each of them is {commonest}, the commonest of the training nodes. An accuracy on test "
        "nodes that is computed from it means nothing; use the validation nodes."
    )
    return Published(public, note)


SPLITS: dict[str, Split] = {
    "house_price": Split(
        partial(_make_table, id_column="Id", target="SalePrice", kind=pl.Float64, described=True)
    ),
    "spaceship_titanic": Split(
        partial(_make_table, id_column="PassengerId", target="Transported", kind=pl.Boolean, described=False)
    ),
    "parkinsons": Split(_make_parkinsons),
    "feedback": Split(_make_feedback),
    "fathomnet": Split(_make_fathomnet),
    "contrails": Split(_make_contrails),
    "imdb": Split(_make_imdb),
    "cifar10": Split(_make_cifar10, after_prepare=True),
    "ogbn_arxiv": Split(_make_arxiv, after_prepare=True),
}
"""By the names that manifests use in `preparation.by`."""
