"""Settings: defaults of the published pipeline, where they are looked up, what is refused and how."""

import json
from pathlib import Path

import pytest
from upath import UPath

from agml_assets.errors import UserError
from agml_assets.settings import (
    Settings,
    absolute_places,
    expand_path,
    load_settings,
    parse_settings,
    results_root,
    setting_problems,
)


@pytest.fixture(autouse=True)
def empty_place(tmp_path, monkeypatch):
    """A working directory without settings, and an environment that names none."""
    monkeypatch.chdir(tmp_path)
    for name in ("AGML_CONFIG", "AGML_RESULTS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def write(path, values):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    return path


def refusal(action, *arguments):
    with pytest.raises(UserError) as caught:
        action(*arguments)
    return caught.value.message


def test_defaults_are_those_of_agmls_pipeline_but_for_two_keys():
    settings = Settings()
    published = {
        "split_seed": 42, "train_ratio": 0.70, "val_ratio": 0.15, "embed_model": "facebook/dinov2-base",
        "embed_batch_size": 64, "near_dup_threshold": 0.98, "max_silhouette_samples": 10000,
        "backbone": "resnet18", "cartography_epochs": 30, "cartography_lr": 1e-3, "cv_folds": 5,
    }  # fmt: skip
    assert {key: getattr(settings, key) for key in published} == published
    assert settings.test_ratio == 0.15
    assert settings.faiss_ivf_threshold is None
    assert settings.output_dir == "./benchmark_results"


def test_a_complete_config_of_agmls_pipeline_is_accepted():
    write("config.json", {
        "split_seed": 42, "train_ratio": 0.7, "val_ratio": 0.15, "output_dir": "/group/results",
        "embed_model": "facebook/dinov2-base", "embed_batch_size": 64, "near_dup_threshold": 0.98,
        "faiss_ivf_threshold": 100000, "max_silhouette_samples": 10000, "backbone": "resnet18",
        "cartography_epochs": 30, "cartography_lr": 0.001, "cv_folds": 5,
    })  # fmt: skip
    settings = load_settings()
    assert settings.faiss_ivf_threshold == 100000
    assert settings.output_dir == "/group/results"


def test_without_any_file_the_defaults_hold():
    assert load_settings() == Settings()


def test_settings_are_looked_up_in_order(monkeypatch):
    write("config.json", {"split_seed": 1})
    assert load_settings().split_seed == 1
    write("benchmark/config.json", {"split_seed": 2})
    assert load_settings().split_seed == 2
    monkeypatch.setenv("AGML_CONFIG", str(write("elsewhere/mine.json", {"split_seed": 3})))
    assert load_settings().split_seed == 3
    assert load_settings(write("explicit.json", {"split_seed": 4})).split_seed == 4


def test_files_are_not_merged():
    write("config.json", {"split_seed": 1, "cv_folds": 3})
    write("benchmark/config.json", {"split_seed": 2})
    assert load_settings().cv_folds == 5


def test_an_empty_agml_config_counts_as_unset(monkeypatch):
    monkeypatch.setenv("AGML_CONFIG", "")
    assert load_settings() == Settings()


def test_home_and_variables_expand_in_the_name_of_the_file(monkeypatch, tmp_path):
    write("home/mine.json", {"split_seed": 7})
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PLACE", "~")
    assert load_settings("~/mine.json").split_seed == 7
    assert load_settings("${HOME}/mine.json").split_seed == 7
    monkeypatch.setenv("AGML_CONFIG", "$PLACE/mine.json")
    assert load_settings().split_seed == 7


def test_a_named_file_that_is_absent_is_refused_by_name(monkeypatch):
    assert "absent.json" in refusal(load_settings, "absent.json")
    monkeypatch.setenv("AGML_CONFIG", "absent.json")
    message = refusal(load_settings)
    assert "absent.json" in message and "$AGML_CONFIG" in message


def test_a_folder_in_place_of_the_file_is_refused():
    Path("config").mkdir()
    assert "config" in refusal(load_settings, "config")


def test_bad_json_is_refused_with_file_and_line():
    message = refusal(load_settings, write("bad.json", '{\n  "split_seed": 1,\n  "cv_folds": \n}'))
    assert "bad.json" in message and "line 4" in message


@pytest.mark.parametrize("text", ["[]", "3", "null", '"text"'])
def test_json_that_is_no_object_is_refused(text):
    message = refusal(load_settings, write("bad.json", text))
    assert "bad.json" in message and "object" in message


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00", b"[" * 200_000, b"", b'{"split_seed": ' + b"9" * 5000 + b"}"]
)
def test_hostile_files_are_refused_without_a_stack_trace(content):
    Path("bad.json").write_bytes(content)
    assert "bad.json" in refusal(load_settings, "bad.json")


def test_a_byte_order_mark_does_no_harm():
    Path("bom.json").write_bytes(b'\xef\xbb\xbf{"split_seed": 5}')
    assert load_settings("bom.json").split_seed == 5


def test_a_key_given_twice_is_refused():
    message = refusal(load_settings, write("bad.json", '{"cv_folds": 3, "cv_folds": 4}'))
    assert "'cv_folds'" in message and "twice" in message


def test_an_unknown_key_is_refused_with_the_nearest_known_one():
    message = refusal(load_settings, write("config.json", {"splt_seed": 1}))
    assert "config.json" in message and "'splt_seed'" in message and "'split_seed'" in message


def test_a_config_of_something_else_in_the_working_directory_is_refused():
    write("config.json", {"architectures": ["Dinov2Model"]})
    message = refusal(load_settings)
    assert "'architectures'" in message and "split_seed" in message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("split_seed", True),
        ("split_seed", "42"),
        ("split_seed", 42.0),
        ("split_seed", -1),
        ("split_seed", 2**32),  # beyond what scikit-learn and NumPy's RandomState take
        ("train_ratio", True),
        ("train_ratio", "0.7"),
        ("train_ratio", 0),
        ("train_ratio", None),
        ("near_dup_threshold", 1.01),
        ("near_dup_threshold", float("nan")),
        ("cartography_lr", float("inf")),
        ("cv_folds", 1),
        ("embed_model", ""),
        ("embed_model", ["a"]),
        ("output_dir", ""),
        ("split_recipe", "random"),
        ("keep_pixels", 1),
    ],
)
def test_a_wrong_type_or_value_is_refused_by_its_key(key, value):
    message = refusal(parse_settings, {key: value}, "my settings")
    assert "my settings" in message and repr(key) in message


def test_a_whole_number_is_taken_where_a_fraction_is_meant():
    assert load_settings(write("c.json", '{"near_dup_threshold": 1}')).near_dup_threshold == 1.0


def test_several_problems_are_reported_together():
    message = refusal(parse_settings, {"cv_fold": 3, "split_seed": "x", 5: 1}, "it")
    assert "'cv_fold'" in message and "'split_seed'" in message and "5" in message


def test_ratios_that_leave_no_test_split_are_refused():
    message = refusal(parse_settings, {"train_ratio": 0.8, "val_ratio": 0.2}, "it")
    assert "train_ratio + val_ratio" in message


def test_a_dataset_may_set_one_ratio_before_the_other_is_known():
    assert setting_problems({"train_ratio": 0.9}) == []
    assert len(setting_problems({"train_ratio": 0.9, "val_ratio": 0.2})) == 1
    assert Settings(val_ratio=0.05).override({"train_ratio": 0.9}, "an entry").train_ratio == 0.9
    assert "an entry" in refusal(Settings().override, {"train_ratio": 0.9}, "an entry")


def test_overrides_keep_the_other_settings():
    changed = Settings(split_seed=7).override({"cv_folds": 3}, "an entry")
    assert (changed.split_seed, changed.cv_folds) == (7, 3)


def test_a_huge_value_is_not_repeated_in_full():
    assert len(refusal(parse_settings, {"split_seed": ["x" * 1000] * 1000}, "it")) < 500


@pytest.mark.parametrize("key", ["embed_model", "backbone"])
def test_local_models_expand_and_names_on_the_hub_do_not(key, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("MODELS", "/models")
    assert getattr(parse_settings({key: "~/vit"}, "it"), key) == "/home/me/vit"
    assert getattr(parse_settings({key: "$MODELS/vit"}, "it"), key) == "/models/vit"
    assert getattr(parse_settings({key: "owner/vit"}, "it"), key) == "owner/vit"
    monkeypatch.delenv("MODELS")
    message = refusal(parse_settings, {key: "$MODELS/vit"}, "it")
    assert repr(key) in message and "'MODELS'" in message


def test_the_results_root_is_looked_up_in_order(tmp_path, monkeypatch):
    assert results_root(None, Settings()) == UPath(tmp_path / "benchmark_results")
    assert results_root(None, Settings(output_dir="set")) == UPath(tmp_path / "set")
    monkeypatch.setenv("AGML_RESULTS", "from_env")
    assert results_root(None, Settings(output_dir="set")) == UPath(tmp_path / "from_env")
    assert results_root("given", Settings(output_dir="set")) == UPath(tmp_path / "given")
    assert results_root(tmp_path / "given", Settings()) == UPath(tmp_path / "given")
    monkeypatch.setenv("AGML_RESULTS", "")
    assert results_root("", Settings(output_dir="set")) == UPath(tmp_path / "set")


def test_the_results_root_expands_wherever_it_comes_from(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PART", "x")
    assert results_root("~/$PART", Settings()) == UPath(tmp_path / "x")
    assert results_root(None, Settings(output_dir="~/${PART}")) == UPath(tmp_path / "x")
    monkeypatch.setenv("AGML_RESULTS", "$HOME/$PART")
    assert results_root(None, Settings()) == UPath(tmp_path / "x")
    assert str(results_root("memory://bucket/$PART", Settings())) == "memory://bucket/x"


def test_an_unset_variable_is_named_with_where_it_stands(monkeypatch):
    monkeypatch.delenv("NOWHERE", raising=False)
    message = refusal(results_root, None, Settings(output_dir="/data/$NOWHERE"))
    assert "'NOWHERE'" in message and "output_dir" in message
    # A setting that is not used does no harm.
    assert results_root("given", Settings(output_dir="/data/$NOWHERE")).name == "given"


def test_other_file_systems_are_kept_and_unknown_ones_refused():
    root = results_root("memory://bucket/runs", Settings())
    assert root.protocol == "memory" and str(root) == "memory://bucket/runs"
    assert "'nonsense://x'" in refusal(results_root, "nonsense://x", Settings())


def test_places_become_absolute_and_other_file_systems_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATA", str(tmp_path / "data"))
    given = {"AGML_RESULTS": "s3://bucket/x", "AGML_MODELS": "m.yaml", "AGML_TASKS": "", "PATH": "."}
    assert absolute_places(given | {"AGML_TASK_DATA": "$DATA/tasks"}) == {
        "AGML_RESULTS": "s3://bucket/x",
        "AGML_MODELS": str(tmp_path / "m.yaml"),
        "AGML_TASK_DATA": str(tmp_path / "data/tasks"),
    }
    monkeypatch.delenv("DATA")
    with pytest.raises(
        UserError, match=r"path in \$AGML_MODELS '\$DATA/m.yaml' names the environment variable 'DATA'"
    ):
        absolute_places({"AGML_MODELS": "$DATA/m.yaml"})


def test_a_dollar_sign_that_is_no_variable_stays():
    assert expand_path("/data/5$") == Path("/data/5$")
    assert "no_such_user" in refusal(expand_path, "~no_such_user/x")
