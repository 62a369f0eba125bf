"""Files of labels: types by name, what is read, groups, and what is refused in words."""

import numpy as np
import pytest

from agml_assets.compression.labels import block_groups, choose_tasks, list_label_files, read_ids, read_labels
from agml_assets.errors import UserError


@pytest.fixture
def folder(tmp_path):
    return tmp_path


def write(folder, name, text):
    (folder / name).write_text(text)
    return next(file for file in list_label_files(folder) if file.path.name == name)


@pytest.mark.parametrize(
    ("name", "task", "kind"),
    [
        ("biomass__regression.csv", "biomass", "regression"),
        ("a_b__REGR.csv", "a_b", "regression"),
        ("x__cls.csv", "x", "classification"),
        ("x__Classification.csv", "x", "classification"),
    ],
)
def test_the_type_is_in_the_files_name(folder, name, task, kind):
    found = read_labels(write(folder, name, "id,label\na,0\nb,1\n"))
    assert (found.name, found.kind) == (task, kind)


def test_a_type_that_is_not_known_or_not_told_is_refused(folder):
    write(folder, "a__regresion.csv", "id,label\na,0\n")
    with pytest.raises(UserError, match="no type of task 'regresion'. Did you mean 'regression'"):
        choose_tasks(list_label_files(folder), None)
    (folder / "landcover_regr.csv").write_text("id,label\na,0\n")
    with pytest.raises(UserError, match="landcover_regr.csv: a file of labels is called <task>__<type>.csv"):
        list_label_files(folder)


def test_the_first_double_underscore_counts(folder):
    file = write(folder, "a__b__regr.csv", "id,label\na,0\n")
    assert (file.name, file.type_name) == ("a", "b__regr")


def test_tasks_come_by_name_and_only_chosen_ones_are_checked(folder):
    for name in ("b__regr.csv", "a__cls.csv", "c__strange.csv"):
        (folder / name).write_text("id,label\na,0\n")
    (folder / ".hidden.csv").write_text("")
    files = list_label_files(folder)
    assert [file.name for file in files] == ["a", "b", "c"]
    assert [file.name for file in choose_tasks(files, ["b", "a"])] == ["a", "b"]
    with pytest.raises(UserError, match="no task 'bb' among the labels. Did you mean 'b'"):
        choose_tasks(files, ["bb"])


def test_folders_without_labels_and_tasks_that_stand_twice_are_refused(folder):
    with pytest.raises(UserError, match="no such folder"):
        list_label_files(folder / "absent")
    with pytest.raises(UserError, match="it has no labels; add a file"):
        list_label_files(folder)
    for name in ("a__regr.csv", "a__cls.csv"):
        (folder / name).write_text("id,label\na,0\n")
    with pytest.raises(UserError, match="a__cls.csv is of task 'a' as well"):
        list_label_files(folder)


def test_rows_without_a_label_are_left_out_and_counted(folder):
    file = write(folder, "a__regr.csv", "id,label\n0001,1.5\nb,\nc,nan\nd, -2e1 \n\n")
    found = read_labels(file)
    assert (found.ids, found.targets.tolist(), found.unlabelled) == (("0001", "d"), [1.5, -20], 2)
    assert found.sentences() == ("Task 'a': 2 rows of a__regr.csv have no label and are left out.",)
    assert read_ids(file) == ["0001", "d"]


def test_ids_are_cleaned_unless_asked_not_to(folder):
    file = write(folder, "a__regr.csv", "id,label\na.zarr.zip,1\n")
    assert read_labels(file).ids == ("a",)
    assert read_labels(file, clean_ids=False).ids == ("a.zarr.zip",)


def test_several_label_columns_are_several_outputs(folder):
    found = read_labels(write(folder, "a__regr.csv", "id,label_x,label_y,other\na,1,2,z\nb,3,,z\n"))
    assert (found.outputs, found.targets.tolist(), found.unlabelled) == (("label_x", "label_y"), [[1, 2]], 1)
    with pytest.raises(UserError, match="a classification has one column of labels; it has label_x, label_y"):
        read_labels(write(folder, "b__cls.csv", "id,label_x,label_y\na,1,2\n"))


def test_classes_are_numbers_where_all_are_and_else_names(folder):
    found = read_labels(write(folder, "a__cls.csv", "id,label\na,10\nb,2\nc,2.0\nd,0.5\n"))
    assert (found.class_names, found.targets.tolist()) == (("0.5", "2", "10"), [2, 1, 1, 0])
    assert found.targets.dtype == np.int64
    found = read_labels(write(folder, "b__cls.csv", "id,label\na,maize\nb,10\nc,None\nd,maize\n"))
    assert (found.class_names, found.targets.tolist()) == (("10", "None", "maize"), [2, 0, 1, 2])


def test_codes_with_underscores_are_names_and_no_numbers(folder):
    found = read_labels(write(folder, "a__cls.csv", "id,label\na,1_0\nb,10\nc,1_0\n"))
    assert (found.class_names, found.targets.tolist()) == (("10", "1_0"), [1, 0, 1])


def test_groups_are_numbered(folder):
    found = read_labels(
        write(
            folder, "a__regr.csv", "id,label,group\na,1,north\nb,2,\nc,,x\nd,3,north\n".replace("b,2,", "b,2,east")
        )
    )
    assert found.group.tolist() == [1, 0, 1]
    with pytest.raises(UserError, match="row 2 has no group"):
        read_labels(write(folder, "b__regr.csv", "id,label,group\na,1,x\nb,2,\n"))


def test_places_in_one_block_are_one_group(folder):
    text = (
        "id,label,latitude,longitude\na,1,52.0,13.0\nb,2,52.01,13.01\nc,3,-52,13\n"
        "d,4,52.0,-179.999\ne,5,52.0,179.999\n"
    )
    file = write(folder, "a__regr.csv", text)
    assert read_labels(file).group is None
    group = read_labels(file, block_km=50).group
    assert group[0] == group[1]
    assert len(set(group.tolist())) == 4
    with pytest.raises(UserError, match="row 1: latitude 91 is not within -90 and 90"):
        read_labels(write(folder, "b__regr.csv", "id,label,latitude,longitude\na,1,91,0\n"), block_km=5)
    with pytest.raises(UserError, match="no column 'latitude'"):
        read_labels(write(folder, "c__regr.csv", "id,label\na,1\n"), block_km=5)
    with pytest.raises(UserError, match="block_km is 0"):
        read_labels(file, block_km=0)


def test_blocks_smaller_than_any_distance_leave_every_place_to_itself():
    places = np.arange(6.0)
    assert len(set(block_groups(places, places, 1e-17).tolist())) == 6


def test_blocks_are_about_as_wide_and_as_high_as_asked():
    # Great-circle distances (haversine, sphere of 6371 km) within a block stay below its diagonal and a margin.
    rng = np.random.default_rng(0)
    latitude, longitude = np.degrees(np.arcsin(rng.uniform(-0.99, 0.99, 4000))), rng.uniform(-180, 180, 4000)
    groups = block_groups(latitude, longitude, 1000)
    phi, lam = np.radians(latitude), np.radians(longitude)
    along = np.cos(phi[:, None]) * np.cos(phi) * np.sin((lam[:, None] - lam) / 2) ** 2
    h = np.sin((phi[:, None] - phi) / 2) ** 2 + along
    distance = 2 * 6371 * np.arcsin(np.sqrt(np.clip(h, 0, 1)))
    same = groups[:, None] == groups
    assert distance[same].max() < 1.2 * 1000 * np.sqrt(2)
    # As many blocks as the area holds: 4 pi r^2 / side^2 = 510, and 0.99 of the sphere's height is drawn from.
    assert 0.9 * 510 < len(np.unique(groups)) < 1.1 * 510


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is empty"),
        ("id,label\n", "it has no rows"),
        ("id,label\na,\n", "no row has a label"),
        ("name,label\na,1\n", "no column 'id'"),
        ("id,value\na,1\n", "no column 'label'"),
        ("id,label\na,1\n,2\n", "row 2 has no id"),
        ("id,label\na,1\nb,high\n", r"row 2 \(id b\): label 'high' is no finite number"),
        ("id,label\na,inf\n", r"row 1 \(id a\): label 'inf' is no finite number"),
        ("id,label\na,1,2\n", r"row 1 \(line 2\) has 3 fields"),
        ("version https://git-lfs.github.com/spec/v1\nsize 10\n", "Git LFS pointer"),
    ],
)
def test_a_file_without_labels_is_refused_in_words(folder, text, says):
    with pytest.raises(UserError, match=says) as caught:
        read_labels(write(folder, "a__regr.csv", text))
    assert "a__regr.csv" in caught.value.message
