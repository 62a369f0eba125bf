"""The graph: what it holds, what it costs to load, and that its lineage is true."""

import subprocess
import sys

import dagster as dg
import pytest

from agml_assets.definitions import build_defs
from agml_assets.quality.summary import MEASURED
from agml_assets.recording import asset_key
from agml_assets.registry.datasets import DatasetEntry, DatasetRegistry
from tests.tiny import BIN

HEAVY = ("torch", "transformers", "datasets", "faiss", "umap", "cleanlab", "sklearn", "agml", "matplotlib")

DEPENDENCIES = {
    "dataset/image_index": set(),
    "dataset/pixel_hashes": set(),
    "dataset/pixels": set(),
    "dataset/splits": {"dataset/image_index"},
    "dataset/image_statistics": {"dataset/pixels"},
    "embeddings/embeddings": {"dataset/image_index", "dataset/pixel_hashes", "dataset/pixels"},
    "embeddings/labels": {"dataset/image_index"},
    "embeddings/neighbors": {"embeddings/embeddings"},
    "embeddings/duplicate_groups": {"dataset/pixel_hashes", "embeddings/neighbors"},
    "embeddings/umap_projection": {
        "dataset/image_index",
        "dataset/splits",
        "embeddings/embeddings",
        "embeddings/neighbors",
    },
    "embeddings/umap_3d": {
        "dataset/image_index",
        "dataset/splits",
        "embeddings/embeddings",
        "embeddings/neighbors",
    },
    "training/grouped_splits": {"dataset/image_index", "embeddings/duplicate_groups"},
    "training/dynamics": {"dataset/image_index", "dataset/pixels", "dataset/splits"},
    "training/test_predictions": {"dataset/image_index", "dataset/pixels", "dataset/splits"},
    "training/test_predictions_grouped": {
        "dataset/image_index",
        "dataset/pixels",
        "dataset/splits",
        "embeddings/duplicate_groups",
        "training/grouped_splits",
        "training/test_predictions",
    },
    "training/out_of_fold": {"dataset/image_index", "embeddings/embeddings", "embeddings/labels"},
    "training/out_of_fold_grouped": {
        "dataset/image_index",
        "embeddings/embeddings",
        "embeddings/labels",
        "training/grouped_splits",
    },
    "training/noise_calibration": {
        "dataset/image_index",
        "embeddings/embeddings",
        "embeddings/labels",
        "embeddings/duplicate_groups",
        "training/grouped_splits",
    },
    "quality/class_imbalance": {"dataset/image_index", "dataset/splits"},
    "quality/exact_duplicate": {"dataset/image_index", "dataset/pixel_hashes", "dataset/splits"},
    "quality/resolution_consistency": {"dataset/image_index"},
    "quality/metadata_coverage": {"dataset/image_index"},
    "quality/near_duplicate": {
        "dataset/image_index",
        "dataset/splits",
        "embeddings/neighbors",
        "embeddings/duplicate_groups",
    },
    "quality/feature_separability": {
        "dataset/image_index",
        "embeddings/duplicate_groups",
        "embeddings/embeddings",
        "embeddings/labels",
    },
    "quality/intra_class_diversity": {
        "dataset/image_index",
        "embeddings/duplicate_groups",
        "embeddings/embeddings",
        "embeddings/labels",
    },
    "quality/dataset_cartography": {"dataset/image_index", "training/dynamics", "embeddings/duplicate_groups"},
    "quality/class_confusability": {
        "dataset/image_index",
        "training/test_predictions",
        "embeddings/duplicate_groups",
    },
    "quality/label_noise": {
        "dataset/image_index",
        "embeddings/labels",
        "embeddings/duplicate_groups",
        "training/out_of_fold",
        "training/out_of_fold_grouped",
        "training/noise_calibration",
    },
    "quality/image_health": {
        "dataset/image_index",
        "dataset/image_statistics",
        "embeddings/neighbors",
        "embeddings/labels",
    },
    "quality/leakage": {
        "dataset/image_index",
        "dataset/splits",
        "embeddings/embeddings",
        "embeddings/duplicate_groups",
        "training/grouped_splits",
        "training/test_predictions",
        "training/test_predictions_grouped",
    },
}

BEHIND_THE_SCORE = {
    "dataset/image_index",
    "embeddings/embeddings",
    "embeddings/duplicate_groups",
    "training/dynamics",
    "training/test_predictions",
    "training/test_predictions_grouped",
    "training/out_of_fold",
    "training/out_of_fold_grouped",
}
"""What the intervals of the score are drawn from."""

REPORT = {"config_used", "result", "report/issues", "report/croissant", "report/card"}

SITE = {
    "site/results": {"result"},
    "site/umap": {"embeddings/umap_projection", "embeddings/umap_3d"},
    "site/shared_images": {"dataset/image_index", "dataset/pixel_hashes"},
    "site/pages": {
        "report/card",
        "site/results",
        "evaluation/report",
        "compression/leaderboard",
        "agents/leaderboard",
        *(f"leaderboard/{name}" for name in ("board", "run_records")),
    },
}

LEADERBOARD = {
    "leaderboard/run_records": set(),
    **{f"leaderboard/{name}": {"leaderboard/run_records"} for name in ("index", "global", "board")},
}

READ_OF_A_DATASET = {
    "dataset/image_index",
    "dataset/pixel_hashes",
    "dataset/pixels",
    "dataset/splits",
    "embeddings/duplicate_groups",
    "training/grouped_splits",
}

EVALUATION = {
    "evaluation/features": READ_OF_A_DATASET,
    "evaluation/predictions": {"evaluation/features"},
    "evaluation/scores": {"evaluation/predictions"},
    "evaluation/run_record": {"evaluation/scores"},
}

MODEL_REPORT = {"evaluation/report": {"evaluation/run_record"}}

COMPRESSION = {
    "compression/submission": {"embeddings/embeddings", "embeddings/duplicate_groups"},
    "compression/task_scores": {"compression/submission"},
    "compression/summary": {"compression/task_scores"},
}

COMPARED = {"compression/leaderboard": {"compression/summary"}}

AGENTS = {
    "agents/run": {
        "dataset/image_index",
        "dataset/pixels",
        "embeddings/embeddings",
        "embeddings/duplicate_groups",
    },
    "agents/evaluation": {"agents/run"},
}

AGENTS_COMPARED = {"agents/leaderboard": {"agents/evaluation"}}

CHECKS = {
    ("dataset/image_index", "images_are_readable", True),
    ("dataset/splits", "split_recipes_were_followed", False),
    ("embeddings/embeddings", "embeddings_are_finite", True),
    ("training/grouped_splits", "no_copy_straddles_the_leak_safe_split", True),
    ("training/grouped_splits", "leak_safe_split_takes_every_class", False),
    ("quality/score", "metrics_agree", False),
    ("leaderboard/run_records", "every_record_is_accepted", False),
    ("leaderboard/run_records", "no_record_has_a_warning", False),
    *(
        (f"quality/{name}", "nothing_to_look_into", False)
        for name in (
            "class_imbalance",
            "exact_duplicate",
            "near_duplicate",
            "feature_separability",
            "label_noise",
            "image_health",
            "leakage",
        )
    ),
}


@pytest.fixture(scope="module")
def specs():
    entries = (DatasetEntry(name="a/small", num_images=10), DatasetEntry(name="a/large", num_images=1000))
    definitions = build_defs(registry=DatasetRegistry(entries=entries, where="a test"))
    return {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}


def test_loading_the_definitions_imports_no_heavy_library_and_takes_less_than_three_seconds():
    # Processor time: what others do on this machine does not count.
    code = (
        "import os, sys, agml_assets.definitions as d; d.defs(); "
        f"print([m for m in {HEAVY!r} if m in sys.modules], sum(os.times()[:2]) < 3.0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] True"


def test_loading_the_definitions_warns_of_nothing():
    # Dagster's own use of a deprecated attribute of pydantic is not ours to mend.
    code = (
        "import warnings; warnings.simplefilter('error'); "
        "warnings.filterwarnings('ignore', message='The `__fields__` attribute'); "
        "import agml_assets.definitions as d; d.defs()"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_workspace_file_loads():
    command = [str(BIN / "dagster"), "definitions", "validate", "-w", "workspace.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_graph_has_these_assets_and_dependencies(specs):
    found = {key: {dep.asset_key.to_user_string() for dep in spec.deps} for key, spec in specs.items()}
    scored = BEHIND_THE_SCORE | {key for key in DEPENDENCIES if key.startswith("quality/")}
    reported = {*DEPENDENCIES, "quality/score"}
    assert found == {
        **DEPENDENCIES,
        "quality/score": scored,
        **dict.fromkeys(REPORT, reported),
        "report/croissant": reported | {"report/issues"},
        **EVALUATION,
        **MODEL_REPORT,
        **COMPRESSION,
        **COMPARED,
        **AGENTS,
        **AGENTS_COMPARED,
        **LEADERBOARD,
        **SITE,
    }


def test_an_asset_stands_in_the_group_of_its_room(specs):
    rooms = {key: spec.group_name for key, spec in specs.items()}
    assert {key: room for key, room in rooms.items() if key.partition("/")[0] != room} == {
        "result": "report",
        "config_used": "report",
        "evaluation/report": "model_report",  # of all pairs, in its own job
        "compression/leaderboard": "compression_leaderboard",  # of all submissions, in its own job
        "agents/leaderboard": "agents_leaderboard",  # of all agents, in its own job
    }


def test_every_asset_says_what_it_is_and_which_version_made_it(specs):
    for key, spec in specs.items():
        assert spec.code_version and spec.description and spec.kinds and spec.owners and spec.group_name, key


def test_every_check_has_its_partition_and_blocks_only_where_a_number_would_be_false():
    entries = (DatasetEntry(name="a/b"),)
    definitions = build_defs(registry=DatasetRegistry(entries=entries, where="a test"))
    checks = [
        spec
        for asset in definitions.assets or []
        if isinstance(asset, dg.AssetsDefinition)
        for spec in asset.check_specs
    ]
    assert {(c.asset_key.to_user_string(), c.name, c.blocking) for c in checks} == CHECKS
    partitioned = {check.asset_key.to_user_string() for check in checks if check.partitions_def is not None}
    assert partitioned == {key for key, _, _ in CHECKS} - LEADERBOARD.keys()


def test_the_heaviest_dataset_comes_first(specs):
    partitions = specs["dataset/image_index"].partitions_def
    assert partitions.get_partition_keys() == ["large", "small"]
    whole = SITE.keys() | LEADERBOARD.keys() | MODEL_REPORT.keys() | COMPARED.keys() | AGENTS_COMPARED.keys()
    of_pairs, of_submissions, of_agents = EVALUATION.keys(), COMPRESSION.keys(), AGENTS.keys()
    others = whole | of_pairs | of_submissions | of_agents
    assert all(spec.partitions_def == partitions for key, spec in specs.items() if key not in others)
    [submissions] = {specs[key].partitions_def for key in of_submissions}
    assert {"digits-all", "sample-pca-16"} <= set(submissions.get_partition_keys())
    assert all(specs[key].partitions_def is None for key in whole)
    [trials] = {specs[key].partitions_def for key in of_agents}
    sides = {one.name: set(one.partitions_def.get_partition_keys()) for one in trials.partitions_defs}
    assert {"starter", "majority", "scripted"} <= sides["agent"]
    assert {"digits", "sample"} <= sides["task"]
    pairs = {specs[key].partitions_def for key in of_pairs}
    assert len(pairs) == 1
    [dimensions] = ({one.name: one.partitions_def for one in pair.partitions_defs} for pair in pairs)
    assert dimensions["dataset"].get_partition_keys()[:2] == ["large", "small"]
    assert {"plantnet", "beluga"} <= set(dimensions["dataset"].get_partition_keys())
    assert "efficientnet_lite0" in dimensions["model"].get_partition_keys()


def test_each_job_holds_what_its_name_says():
    entries = (DatasetEntry(name="a/b"),)
    definitions = build_defs(registry=DatasetRegistry(entries=entries, where="a test"))
    selected = {
        name: {key.to_user_string() for key in definitions.resolve_job_def(name).asset_layer.selected_asset_keys}
        for name in (
            "benchmark",
            "structural_quality",
            "embedding_quality",
            "training_quality",
            "evaluate_models",
            "model_report",
            "compression",
            "compression_leaderboard",
            "agents",
            "agents_leaderboard",
            "leaderboard",
            "site_files",
        )
    }
    report = {"quality/score", *REPORT}
    structure = {key for key in DEPENDENCIES if key.startswith("dataset/")}
    vectors = {key for key in DEPENDENCIES if key.startswith("embeddings/")}
    phase_1 = {
        f"quality/{name}"
        for name in ("class_imbalance", "exact_duplicate", "resolution_consistency", "metadata_coverage")
    }
    trained = {key for key in DEPENDENCIES if key.startswith("training/")}
    phase_3 = {
        f"quality/{name}" for name in ("dataset_cartography", "class_confusability", "label_noise", "leakage")
    }
    phase_2 = {key for key in DEPENDENCIES if key.startswith("quality/")} - phase_1 - phase_3
    assert selected["benchmark"] == {*DEPENDENCIES, *report}
    assert selected["structural_quality"] == structure | phase_1 | report
    assert selected["embedding_quality"] == vectors | phase_2 | report
    assert selected["training_quality"] == trained | phase_3 | report
    assert selected["evaluate_models"] == set(EVALUATION)
    assert selected["model_report"] == set(MODEL_REPORT)
    assert selected["compression"] == set(COMPRESSION)
    assert selected["compression_leaderboard"] == set(COMPARED)
    assert selected["agents"] == set(AGENTS)
    assert selected["agents_leaderboard"] == set(AGENTS_COMPARED)
    assert selected["leaderboard"] == set(LEADERBOARD)
    assert selected["site_files"] == set(SITE)


def test_every_artifact_comes_after_its_inputs():
    seen = set()
    for key, artifact in MEASURED.items():
        assert set(artifact.inputs) <= seen, key
        assert asset_key(artifact).to_user_string() == key
        seen.add(key)
