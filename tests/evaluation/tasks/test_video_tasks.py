"""Tasks on clips: KABR and MammalNet."""

import itertools
import json

import pytest

from agml_assets.errors import UserError
from agml_assets.evaluation.tasks.kabr import choose_frames

CLASSES = ["Auto-Groom", "Browse", "Graze", "Head Up", "Occluded", "Run", "Trot", "Walk"]


def kabr(folder, train, val):
    """Write clips, each `(original, video, label of every frame)`."""
    folder.write("annotation/classes.json", json.dumps({name: label for label, name in enumerate(CLASSES)}))
    for name, clips in (("train", train), ("val", val)):
        lines = ["original_vido_id video_id frame_id path labels"]
        for original, video, labels in clips:
            for frame, label in enumerate(labels, start=1):
                path = f"{original}.{video}/{frame}.jpg"
                folder.picture(f"dataset/image/{path}")
                lines.append(f"{original} {video} {frame} {path} {label}")
        folder.write(f"annotation/{name}.csv", "\n".join(lines) + "\n")


def test_kabr_takes_16_frames_5_apart_in_time_order(folder, rows):
    kabr(folder, [("G0067", 0, [7] * 90)], [("Z0002", 0, [5] * 20)])
    data = folder.read("kabr")
    assert data.class_names == tuple(CLASSES)
    found = rows(data)
    split, label, images, group = found["train/0"]
    assert (split, label, group) == ("train", 7, "G0067")
    numbers = [int(image.removeprefix("dataset/image/G0067.0/").removesuffix(".jpg")) for image in images]
    assert len(numbers) == 16
    assert {b - a for a, b in itertools.pairwise(numbers)} == {5}
    assert 1 <= numbers[0] <= 15  # 90 frames leave 15 places for 76
    split, label, images, group = found["test/0"]
    assert (split, label, group) == ("test", 5, "Z0002")
    numbers = [int(image.removeprefix("dataset/image/Z0002.0/").removesuffix(".jpg")) for image in images]
    assert {b - a for a, b in itertools.pairwise(numbers)} == {1}  # 20 frames do not hold a stride of 2


@pytest.mark.parametrize(
    ("n", "stride"), [(16, 1), (30, 1), (31, 2), (45, 2), (46, 3), (75, 4), (76, 5), (400, 5)]
)
def test_the_stride_shrinks_until_16_frames_fit(n, stride):
    chosen = choose_frames(n, [42, 0, 3])
    assert (len(chosen), chosen.step) == (16, stride)
    assert chosen[0] >= 0
    assert chosen[-1] < n


def test_starts_are_drawn_evenly_and_for_each_clip_alone():
    starts = [choose_frames(78, [42, 0, video]).start for video in range(3000)]
    counts = [starts.count(start) for start in range(3)]
    assert sum(counts) == 3000
    assert all(abs(n - 1000) < 130 for n in counts)  # five standard deviations
    assert starts[:20] == [choose_frames(78, [42, 0, video]).start for video in range(20)]


def test_the_other_clips_do_not_move_where_a_clip_starts(folder, tmp_path, rows):
    kabr(folder, [("G1", 5, [1] * 90), ("G2", 9, [1] * 90)], [("G3", 5, [2] * 90)])
    before = rows(folder.read("kabr"))
    kabr(folder, [("G2", 9, [1] * 90)], [("G3", 5, [2] * 90)])
    after = rows(folder.read("kabr"))
    assert after == {name: before[name] for name in ("train/9", "test/5")}


def test_short_clips_are_left_out_and_counted(folder):
    kabr(folder, [("G1", 0, [1] * 16), ("G1", 1, [1] * 15), ("G1", 2, [1] * 3)], [("G2", 0, [1] * 16)])
    data = folder.read("kabr")
    assert data.examples["example"].to_list() == ["train/0", "test/0"]
    assert data.notes[0] == "2 clips of train.csv with fewer than 16 frames were left out."


def test_a_clip_has_the_most_frequent_label_the_smallest_of_equals(folder, rows):
    kabr(folder, [("G1", 0, [3] * 9 + [1] * 7), ("G1", 1, [6] * 8 + [2] * 8)], [("G2", 0, [4] * 16)])
    found = rows(folder.read("kabr"))
    assert (found["train/0"][1], found["train/1"][1]) == (3, 2)


def test_a_clip_that_lacks_a_frame_is_refused(folder):
    kabr(folder, [("G1", 0, [1] * 20)], [("G2", 0, [1] * 16)])
    table = folder.root / "annotation/train.csv"
    table.write_text("\n".join(line for line in table.read_text().splitlines() if " 10 " not in line))
    with pytest.raises(UserError, match="video 0 lacks a frame"):
        folder.read("kabr")


def test_classes_with_gaps_are_refused(folder):
    kabr(folder, [("G1", 0, [1] * 16)], [("G2", 0, [1] * 16)])
    folder.write("annotation/classes.json", '{"Walk": 0, "Run": 2}')
    with pytest.raises(UserError, match="without gaps"):
        folder.read("kabr")


def mammals(folder, clips, names=True):
    """Write clips, each `(split, clip, behaviour, number of frames, first frame)`."""
    for split in ("train", "test"):
        lines = [f"trimmed_videos/{clip}.mp4 {behaviour} 171\n" for s, clip, behaviour, *_ in clips if s == split]
        folder.write(f"annotation/composition/{split}.csv", "".join(lines))
    for _, clip, _, n in clips:
        folder.picture(*(f"frames/{clip}/frame_{i:02d}.jpg" for i in range(1, n + 1)))
    if names:
        folder.write("annotation/behavior_to_id.txt", "".join(f"behaviour of kind {i}\t{i}\n" for i in range(12)))


def test_mammalnet_takes_32_frames_at_equal_distances(folder, rows):
    mammals(
        folder,
        [
            ("train", "OT88wS6FLoQ_1", 11, 32), ("train", "OT88wS6FLoQ_2", 3, 100),
            ("train", "aaaaaaaaaaa", 3, 31),
            ("test", "bbbbbbbbbbb", 3, 70), ("test", "ccccccccccc", 11, 0),
        ],
    )  # fmt: skip
    data = folder.read("mammalnet")
    found = rows(data)
    assert list(found) == ["train/OT88wS6FLoQ_1", "train/OT88wS6FLoQ_2", "test/bbbbbbbbbbb"]
    numbers = [int(image[-6:-4]) for image in found["train/OT88wS6FLoQ_1"][2]]
    assert numbers == list(range(1, 33))
    numbers = [int(image.split("_")[-1][:-4]) for image in found["train/OT88wS6FLoQ_2"][2]]
    assert numbers == list(range(1, 97, 3))  # 100 // 32 = 3
    numbers = [int(image[-6:-4]) for image in found["test/bbbbbbbbbbb"][2]]
    assert numbers == list(range(1, 65, 2))
    assert found["train/OT88wS6FLoQ_1"][1] == 11
    assert {group for *_, group in found.values()} == {"OT88wS6FLoQ", "bbbbbbbbbbb"}
    assert data.class_names[11] == "behaviour of kind 11"
    assert data.notes == (
        "1 clip of train.csv without 32 frames were left out.",
        "1 clip of test.csv without 32 frames were left out.",
        "1 class of the training split are not tested: behaviour of kind 11.",
    )


def test_a_clip_that_is_listed_twice_is_two_examples(folder):
    mammals(
        folder,
        [("train", "OT88wS6FLoQ", 1, 32), ("train", "OT88wS6FLoQ", 4, 32), ("test", "bbbbbbbbbbb", 1, 32)],
    )
    examples = folder.read("mammalnet").examples
    assert examples.select("example", "label").rows() == [
        ("train/OT88wS6FLoQ", 1), ("train/OT88wS6FLoQ #2", 4), ("test/bbbbbbbbbbb", 1),
    ]  # fmt: skip


def test_animals_in_the_place_of_behaviours_are_noticed(folder):
    mammals(folder, [("train", "OT88wS6FLoQ", 171, 32), ("test", "bbbbbbbbbbb", 1, 32)])
    with pytest.raises(UserError, match="goes up to 171. Is it the animal"):
        folder.read("mammalnet")


def test_mammalnet_works_without_names_of_behaviours(folder):
    mammals(folder, [("train", "OT88wS6FLoQ", 0, 32), ("test", "bbbbbbbbbbb", 0, 32)], names=False)
    assert folder.read("mammalnet").class_names == tuple(f"behaviour {i}" for i in range(12))


def test_clips_that_were_not_cut_into_frames_are_asked_for(folder):
    mammals(folder, [("train", "OT88wS6FLoQ", 0, 0), ("test", "bbbbbbbbbbb", 0, 0)])
    with pytest.raises(UserError, match="(?s)the folder frames is missing.*ffmpeg -i"):
        folder.read("mammalnet")
