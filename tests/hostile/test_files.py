"""Files as people really have them: half written, strangely named, enormous, exchanged between two runs."""

import io
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import PIL.features
import polars as pl
import pytest
from markdown_it import MarkdownIt
from PIL import Image

from agml_assets.dataset.artifacts import ARTIFACTS as DATASET
from agml_assets.dataset.decode import DecodedImage, Unreadable, decode_image
from agml_assets.quality.artifacts import SCORE
from agml_assets.quality.summary import judge_dataset
from agml_assets.report.artifacts import ARTIFACTS as REPORT
from agml_assets.settings import Settings
from tests.tiny import open_workspace, run_in_process, write_images, write_registry

LIMIT = Settings().max_image_pixels
NAMES = (
    "leaf\nspot",
    "\u202egnp.tsur\u202c",
    "\U0001f33f\u200d\U0001f9eb rust",
    "<script>alert(1)</script>".replace("/", "\u2215"),
    "ржавчина",
    "さび病" * 28,
    "a|b`[c](mailto:x)*d*",
    "a\\|b\\[c](mailto:y)",
    "=1+1",
)
"""Names of folders that file systems allow; the Japanese one has 252 bytes."""


def photograph(seed=0, size=(320, 240)):
    """A picture with large areas and noise, which no JPEG stores in a few bytes."""
    rng = np.random.default_rng(seed)
    width, height = size
    areas = np.kron(rng.integers(20, 220, (-(-height // 16), -(-width // 16), 3)), np.ones((16, 16, 1)))
    return Image.fromarray((areas[:height, :width] + rng.integers(0, 30, (height, width, 3))).astype(np.uint8))


def jpeg(image, **options):
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=85, **options)
    return stream.getvalue()


def structure(root):
    """Run phase 1 on `tiny` and return its report."""
    result = run_in_process(root, job="structural_quality", embedders=None)
    assert result.success
    return json.loads((root / "results" / "tiny" / "result.json").read_text())


# --- pictures that are not all there --------------------------------------------------------------


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("options", [{}, {"optimize": True}, {"restart_marker_rows": 2}])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_jpeg_that_stops_early_behind_a_proper_end_mark_is_truncated(mode, options, share):
    whole = jpeg(photograph().convert(mode), **options)
    partial = whole[: int(len(whole) * share)] + b"\xff\xd9"
    with Image.open(io.BytesIO(partial)) as image:
        image.load()  # which Pillow does without a word
    refused = decode_image(partial, LIMIT)
    assert isinstance(refused, Unreadable)
    assert "truncated" in refused.reason
    assert isinstance(decode_image(whole, LIMIT), DecodedImage)


@pytest.mark.parametrize("gray", [127, 128])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_rows": 1}])
@pytest.mark.parametrize("after", [b"", b"trailing bytes", b"a second end mark \xff\xd9"])
def test_a_whole_jpeg_that_ends_in_that_very_gray_is_used(gray, options, after):
    image = photograph()
    image.paste((gray,) * 3, (100, 100, 320, 240))
    data = jpeg(image, **options) + after
    assert Image.open(io.BytesIO(data)).getpixel((319, 239)) == (gray,) * 3
    assert isinstance(decode_image(data, LIMIT), DecodedImage)


def test_a_partial_jpeg_is_counted_listed_and_the_run_goes_on(tmp_path):
    folder = write_images(tmp_path / "images")
    whole = jpeg(photograph())
    (folder / "rust" / "half.jpg").write_bytes(whole[: len(whole) // 2] + b"\xff\xd9")
    write_registry(tmp_path / "datasets.yaml", folder, settings="max_unreadable_pct: 5")
    value = structure(tmp_path)
    assert value["reproducibility"]["source_images"] - value["reproducibility"]["num_images"] == 1
    index = pl.read_parquet(tmp_path / "results" / "tiny" / "dataset" / "image_index.parquet")
    (left_out,) = index.filter(pl.col("row").is_null()).select("file", "excluded_reason").rows()
    assert left_out[0] == "rust/half.jpg"
    assert "truncated" in left_out[1]


def test_a_dataset_of_broken_images_alone_is_refused_in_words(tmp_path):
    folder = write_images(tmp_path / "images", per_class=2)
    for file in folder.rglob("*.png"):
        file.write_bytes(b"broken")
    write_registry(tmp_path / "datasets.yaml", folder)
    result = run_in_process(tmp_path, job="structural_quality", embedders=None)
    (failure,) = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    said = failure.user_failure_data.description
    assert "'tiny'" in said
    assert "None of the 6 images can be used: 6 unreadable. The first is blight/leaf_00.png" in said
    assert not (tmp_path / "results" / "tiny" / "result.json").exists()


def test_the_report_names_the_decoder_that_made_pixels_and_hashes(tmp_path):
    write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images", per_class=2))
    said = structure(tmp_path)["reproducibility"]["decoder"]
    assert said == f"Pillow {PIL.__version__}, libjpeg-turbo {PIL.features.version('libjpeg_turbo')}"
    assert said in (tmp_path / "results" / "tiny" / "report" / "card.html").read_text()


# --- names ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strangely_named(tmp_path_factory):
    """The structural report of classes and files whose names do their worst; and its result of the run."""
    root = tmp_path_factory.mktemp("strange")
    pixels = np.random.default_rng(0).integers(0, 255, (len(NAMES), 4, 30, 40, 3), dtype=np.uint8)
    for label, name in enumerate(NAMES):
        (root / "images" / name).mkdir(parents=True)
        for number, picture in enumerate(pixels[label]):
            file = f"{number} {'🌿' * 62}"[: 255 - 4 - 62 * 3] + ".png"
            Image.fromarray(picture).save(root / "images" / name / file)
    (root / "images" / NAMES[0] / f"{'é' * 125}.png").write_bytes(b"broken")
    write_registry(root / "datasets.yaml", root / "images", settings="max_unreadable_pct: 10")
    result = run_in_process(root, job="structural_quality", embedders=None)
    assert result.success
    return root / "results" / "tiny", result


def test_every_strange_name_arrives_in_table_report_and_croissant(strangely_named):
    folder, _ = strangely_named
    index = pl.read_parquet(folder / "dataset" / "image_index.parquet")
    assert set(index["class_name"].cast(pl.String)) == set(NAMES)
    value = json.loads((folder / "result.json").read_text())
    assert value["metrics"]["class_imbalance"]["class_totals"] == dict.fromkeys(sorted(NAMES), 4)
    records = json.loads((folder / "report" / "croissant.json").read_text())["recordSet"]
    classes = next(records["data"] for records in records if records["@id"] == "classes")
    assert {record["classes/name"] for record in classes} == set(NAMES)


def test_no_strange_name_is_a_path_of_a_result(strangely_named):
    folder, _ = strangely_named
    files = [file.relative_to(folder).as_posix() for file in folder.rglob("*")]
    assert all(file.isascii() for file in files)
    assert {child.name for child in folder.parent.iterdir()} <= {"tiny", "_platform"}


def test_the_ui_shows_strange_names_as_the_text_that_they_are(strangely_named):
    _, result = strangely_named
    markdown = MarkdownIt("commonmark").enable("table")
    tables = [
        value.md_str
        for event in result.get_asset_materialization_events()
        for value in event.materialization.metadata.values()
        if hasattr(value, "md_str") and not value.md_str.startswith("![")
    ]
    shown = []
    for table in tables:
        rows: list[list[str]] = []
        for token in markdown.parse(table):
            assert token.type not in ("html_block", "fence", "code_block")
            if token.type == "tr_open":
                rows.append([])
            if token.type == "inline":
                assert {child.type for child in token.children} <= {"text", "text_special"}
                rows[-1:] or rows.append([])
                rows[-1].append("".join(child.content for child in token.children))
        assert len({len(row) for row in rows}) <= 1, "a name broke the table"
        shown += [cell for row in rows for cell in row]
    one_line = {name.replace("\n", " ") for name in NAMES if name.isprintable() or "\n" in name}
    assert {name if len(name) <= 120 else name[:117] + "..." for name in one_line} <= set(shown)
    assert not set("\u202e\u202c") & set("".join(shown))


# --- size -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_memory_of_a_worker_is_bounded_however_many_large_photographs_come(tmp_path):
    file = tmp_path / "photograph.jpg"
    photograph(size=(1000, 750)).resize((4000, 3000)).save(file, quality=80, exif=_turned())
    program = """
        import re, sys
        from pathlib import Path
        import psutil
        from agml_assets.dataset.decode_pool import DecodeJob, measure_in_order
        job = DecodeJob("photograph", Path(sys.argv[1]), hashes=True, square=True)
        outcomes = measure_in_order(range(int(sys.argv[2])), lambda _: job, workers=1, max_pixels=10**9)
        for _, done in outcomes:
            assert len(done.square) == 256 * 256 * 3
            (worker,) = psutil.Process().children()
            said = Path(f"/proc/{worker.pid}/status").read_text()
        print(int(re.search(r"VmHWM:\\s+(\\d+)", said)[1]) * 1024)
    """

    def peak(n_photographs):
        command = [sys.executable, "-c", textwrap.dedent(program), str(file), str(n_photographs)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    few, many = peak(4), peak(12)
    assert many < 600e6, f"{many / 1e6:.0f} MB"
    assert many < 1.1 * few + 20e6


def _turned():
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


# --- a dataset that changes between two runs ------------------------------------------------------


@pytest.fixture
def measured_once(tmp_path):
    """A dataset with a structural report, whose images may be changed."""
    write_registry(tmp_path / "datasets.yaml", write_images(tmp_path / "images"))
    assert structure(tmp_path)["metrics"]["class_imbalance"]["total_images"] == 24
    return tmp_path


def stale(root):
    verdicts = judge_dataset(open_workspace(root).dataset("tiny"))
    made = [a.key for a in DATASET] + ["quality/class_imbalance", "quality/exact_duplicate"]
    return {key for key in made if verdicts[key].state == "stale"} == set(made)


def add(images):
    Image.fromarray(np.full((30, 40, 3), 77, np.uint8)).save(images / "healthy" / "new.png")


def remove(images):
    (images / "healthy" / "leaf_03.png").unlink()


def replace(images):
    (images / "healthy" / "leaf_03.png").write_bytes((images / "healthy" / "leaf_04.png").read_bytes())


def relabel(images):
    (images / "healthy" / "leaf_03.png").rename(images / "rust" / "leaf_99.png")


@pytest.mark.parametrize(
    ("change", "counts", "copies"),
    [
        (add, {"blight": 8, "healthy": 9, "rust": 8}, 2),
        (remove, {"blight": 8, "healthy": 7, "rust": 8}, 2),
        (replace, {"blight": 8, "healthy": 8, "rust": 8}, 4),
        (relabel, {"blight": 8, "healthy": 7, "rust": 9}, 2),
    ],
)
def test_what_a_change_makes_stale_is_noticed_and_remade_as_a_whole(measured_once, change, counts, copies):
    change(measured_once / "images")
    assert stale(measured_once)
    metrics = structure(measured_once)["metrics"]
    assert metrics["class_imbalance"]["class_totals"] == counts
    assert metrics["exact_duplicate"]["blake3"]["duplicate_count"] == copies
    assert metrics["resolution_consistency"]["total_images"] == sum(counts.values())


def test_a_report_between_change_and_run_tells_no_figure_of_the_old_images(measured_once):
    add(measured_once / "images")
    assert run_in_process(measured_once, SCORE, *REPORT, job="structural_quality", embedders=None).success
    value = json.loads((measured_once / "results" / "tiny" / "result.json").read_text())
    assert value["metrics"].keys() == {m for m, v in value["metrics"].items() if v.get("skipped")}
    assert "num_images" not in value["reproducibility"]


def test_content_exchanged_under_the_same_size_and_time_is_seen_by_a_run_that_is_told_to_read_again(
    measured_once,
):
    file = measured_once / "images" / "healthy" / "leaf_03.bmp"
    Image.fromarray(np.full((30, 40, 3), 77, np.uint8)).save(file)
    first = structure(measured_once)
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    shutil.copy(_picture_of_the_same_size(measured_once), file)
    os.utime(file, ns=times)
    assert not stale(measured_once), "only reading every file could tell"
    hashes = measured_once / "results" / "tiny" / "dataset" / "pixel_hashes.parquet"
    before = pl.read_parquet(hashes)["blake3"]
    again = structure(measured_once)  # materialising reads again, whatever is current, as --force does
    assert (pl.read_parquet(hashes)["blake3"] != before).sum() == 1
    assert again["reproducibility"]["num_images"] == first["reproducibility"]["num_images"]


def _picture_of_the_same_size(root) -> Path:
    file = root / "other.bmp"
    Image.fromarray(np.full((30, 40, 3), 99, np.uint8)).save(file)
    return file
