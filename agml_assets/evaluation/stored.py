"""Where the results of models lie, and what the report and the pages call those who stand in one list.

Results of three kinds stand side by side for each model and dataset or task; what is in the files is `evaluate`'s.
"""

from agml_assets.evaluation.ways import FROZEN, KINDS, kind_of
from agml_assets.store import ArtifactStore

FILES = {
    "features": "features.npy",
    "predictions": "predictions.parquet",
    "scores": "scores.json",
    "run_record": "run_record.json",
}
"""The artifacts of an evaluation, each made from the one before."""

_SUFFIXES = {"zero_shot": " (zero-shot)", "fine_tune": " (fine-tuned)"}


def contender(model: str, kind: str) -> str:
    """Return what a model is called that answers in one way: its key, followed by `/` and the kind if not frozen.

    It is also the folder of its results below `evaluation/`. No key of a model holds a `/`.
    """
    return model if kind == FROZEN else f"{model}/{kind}"


def model_and_kind(name: str) -> tuple[str, str]:
    """Return the key of the model, and the kind, of a contender."""
    model, _, kind = name.partition("/")
    return model, kind or FROZEN


def shown_contender(display_name: str, kind: str) -> str:
    """Return the name of a contender for people, such as `CLIP ViT-B/32 (zero-shot)`."""
    return display_name + _SUFFIXES.get(kind, "")


def file_of(name: str, step: str) -> str:
    """Return the path of a contender's artifact in the folder of the dataset or task.

    Features are the model's own, whatever is made of them.
    """
    folder = model_and_kind(name)[0] if step == "features" else name
    return f"evaluation/{folder}/{FILES[step]}"


def find_results(store: ArtifactStore, subject: str, model: str, step: str) -> dict[str, str]:
    """Return the contenders of a model that have an artifact, each with the contender in whose place it lies.

    These differ in stores of before each kind had a place of its own: there the last one asked for lies in the
    place of the frozen model. It counts as what it is, until there is one in the right place.

    Args:
        store: Artifact store.
        subject: Key of the dataset or task.
        model: Key of the model.
        step: One of `FILES` but `features`.
    """
    found = {}
    for kind in KINDS:
        place = contender(model, kind)
        sidecar = store.sidecar(subject, file_of(place, step))
        if sidecar is not None:
            found[contender(model, kind_of(str(sidecar.settings.get("probe"))))] = place
    return found
