"""Files of embeddings: what is read of them, and what is refused in words."""

import gzip

import numpy as np
import polars as pl
import pytest

from agml_assets.compression.submissions import read_submission
from agml_assets.errors import UserError

POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    "size 132979712\n"
)


@pytest.fixture
def written(tmp_path):
    def write(text, name="method.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_columns_of_digits_are_the_dimensions_in_numerical_order(written):
    found = read_submission(written("10,id,2,note,1\n3,a,2,x,1\n6,b,5,y,4\n"))
    assert found.columns == ("1", "2", "10")
    assert found.vectors.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert found.vectors.dtype == np.float32
    assert found.issues.ignored_columns == ("note",)
    assert "'note'" in found.issues.sentences()[0]
    assert found.method == "method"


def test_without_columns_of_digits_all_others_are_dimensions_in_their_order(written):
    found = read_submission(written("z,id,a\n1,x,2\n"), method="mine")
    assert (found.columns, found.vectors.tolist(), found.method) == (("z", "a"), [[1, 2]], "mine")


def test_ids_stay_text_and_lose_the_suffixes_of_archives(written):
    found = read_submission(written("id,0\n0001,1\n1e5,2\na.zarr.zip,3\nb.zarr,4\nc.zarr.zip.zarrx,5\n"))
    assert found.ids == ("0001", "1e5", "a", "b", "cx")


def test_missing_values_and_texts_are_nan_infinities_stay_and_texts_are_counted(written):
    found = read_submission(written('id,0,1\na,," 2 "\nb,x,inf\nc,nan,-inf\nd,1e60,3\n'))
    np.testing.assert_array_equal(found.vectors, [[np.nan, 2], [np.nan, np.inf], [np.nan, -np.inf], [np.inf, 3]])
    assert (found.issues.not_numbers, found.issues.first_not_numbers) == (1, ("b",))
    assert "1 value of the submission no number, first in the rows of b." in found.issues.sentences()


def test_values_are_those_that_numpy_reads(written):
    values = np.random.default_rng(0).normal(size=(50, 7)) * 10.0 ** np.arange(-3, 4)
    rows = [f"s{row}," + ",".join(repr(float(one)) for one in values[row]) for row in range(50)]
    found = read_submission(written("id,0,1,2,3,4,5,6\n" + "\n".join(rows) + "\n"))
    np.testing.assert_array_equal(found.vectors, values.astype(np.float32))


def test_a_byte_order_mark_windows_line_ends_and_blank_lines_do_not_matter(written):
    found = read_submission(written(b"\xef\xbb\xbfid,0\r\na,1\r\n\r\nb,2\r\n"))
    assert (found.ids, found.vectors.tolist()) == (("a", "b"), [[1], [2]])


def test_rows_without_an_id_are_left_out_and_counted(written):
    found = read_submission(written('id,0\na,1\n,2\n"",3\n'))
    assert (found.ids, found.issues.rows_without_id) == (("a",), 2)
    assert found.vectors.tolist() == [[1]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is empty"),
        ("id,0\n", "no rows with an id"),
        ("id\na\n", "no dimensions"),
        ("ID,0\na,1\n", "no column 'id'. Did you mean 'ID'?"),
        ("id;0;1\na;1;2\n", "no column 'id'.*columns are 'id;0;1'"),
        ("id,0,0\na,1,2\n", "columns stand twice in its header: '0'"),
        ("id,0\na,1\nb,1,2\n", r"row 2 \(line 3\) has 3 fields, the header 2"),
        ('id,0\n"a,1\nb,2\n', "no valid CSV"),
        (b"id,0\n\xff\xfe,1\n", "no CSV in UTF-8"),
        (b"\xff\xfe\x00,1\n", "UTF-8"),
        (POINTER, r"Git LFS pointer, not the file itself \(133.0 MB\).*git lfs pull --include method.csv"),
    ],
)
def test_a_csv_that_is_no_submission_is_refused_in_words(written, text, says):
    with pytest.raises(UserError, match=says) as caught:
        read_submission(written(text))
    assert "method.csv" in caught.value.message


def test_other_files_are_refused(tmp_path, written):
    with pytest.raises(UserError, match="no such file"):
        read_submission(tmp_path / "absent.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(UserError, match="it is no file"):
        read_submission(tmp_path / "folder.csv")
    with pytest.raises(UserError, match=r"\.csv, \.parquet, \.npy, not \.gz"):
        read_submission(written(gzip.compress(b"id,0\na,1\n"), "method.csv.gz"))
    with pytest.raises(UserError, match="no valid Parquet"):
        read_submission(written("id,0\na,1\n", "method.parquet"))
    with pytest.raises(UserError, match="no valid .npy"):
        read_submission(written("id,0\na,1\n", "method.npy"))


def test_parquet_is_read_with_columns_or_lists(tmp_path):
    path = tmp_path / "m.parquet"
    frame = pl.DataFrame({"id": [7, 8], "1": [1, 2], "0": [0.5, None]})
    frame.write_parquet(path)
    found = read_submission(path)
    assert (found.ids, found.columns) == (("7", "8"), ("0", "1"))
    np.testing.assert_array_equal(found.vectors, [[0.5, 1], [np.nan, 2]])
    for lists in (pl.List(pl.Float64), pl.Array(pl.Float32, 3)):
        column = pl.Series("embedding", [[1, 2, 3], [4, 5, 6]], dtype=lists)
        pl.DataFrame({"id": ["a", "b"], "embedding": column}).write_parquet(path)
        assert read_submission(path).vectors.tolist() == [[1, 2, 3], [4, 5, 6]]
    pl.DataFrame({"id": ["a", "b"], "embedding": [[1.0], [2.0, 3.0]]}).write_parquet(path)
    with pytest.raises(UserError, match="not all of one length; they are 1 to 2 long"):
        read_submission(path)


def test_numpy_arrays_come_with_a_list_of_ids(tmp_path):
    path = tmp_path / "m.npy"
    np.save(path, np.arange(6, dtype=np.float64).reshape(3, 2))
    with pytest.raises(UserError, match=r"Write their ids, a line each, to .*m\.ids\.txt"):
        read_submission(path)
    (tmp_path / "m.ids.txt").write_text("0001\nb.zarr.zip\n c \n\n")
    found = read_submission(path)
    assert (found.ids, found.vectors.tolist()) == (("0001", "b", "c"), [[0, 1], [2, 3], [4, 5]])
    assert read_submission(path, ids=["x", "y", "z"]).ids == ("x", "y", "z")
    with pytest.raises(UserError, match="3 rows, and there are 2 ids"):
        read_submission(path, ids=["x", "y"])
    np.save(path, np.arange(3.0))
    with pytest.raises(UserError, match=r"shape \(samples, dimensions\); it holds float64 \(3,\)"):
        read_submission(path)
    np.save(path, np.array([[{}]]), allow_pickle=True)
    with pytest.raises(UserError, match="no valid .npy"):
        read_submission(path)


def test_fewer_dimensions_are_padded_with_zeros_and_more_are_refused(written):
    found = read_submission(written("id,0,1\na,1,2\n"))
    assert found.padded(4).vectors.tolist() == [[1, 2, 0, 0]]
    assert found.padded(2).vectors.tolist() == [[1, 2]]
    with pytest.raises(UserError, match="mismatch: it has 2 dimensions, embedding_dim is 1"):
        found.padded(1)


def test_excluded_ids_are_left_out(written):
    found = read_submission(written("id,0\na,1\nb,2\na,3\n"))
    assert found.without({"a"}).vectors.tolist() == [[2]]
    with pytest.raises(UserError, match="every id of the submission is excluded"):
        found.without({"a", "b"})


def test_digits_with_underscores_are_no_numbers(written):
    found = read_submission(written("id,0,1\na,1_0,2\nb,3,4\n"))
    assert np.isnan(found.vectors[0, 0])
    assert found.issues.not_numbers == 1


def test_ids_that_are_neither_text_nor_numbers_are_refused(tmp_path):
    file = tmp_path / "m.parquet"
    pl.DataFrame({"id": [[1]], "0": [1.0]}).write_parquet(file)
    with pytest.raises(UserError, match="ids are text or numbers"):
        read_submission(file)
