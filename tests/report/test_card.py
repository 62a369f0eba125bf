"""The card says what is wrong and what to do first, and nothing that a dataset holds acts on the page."""

import json
import re
from base64 import b64decode
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from io import BytesIO

import numpy as np
import polars as pl
import pytest
from PIL import Image

from agml_assets.quality.score import score
from agml_assets.report.card import MAX_BYTES, CardData, build_card, find_fixes
from agml_assets.report.card_sections import (
    CLASSES_SHOWN,
    POINTS_SHOWN,
    cividis,
    figure,
    percent,
    short,
    stratified_sample,
)
from agml_assets.report.thumbnails import SIDE, Thumbnails
from tests.report.cards import CLASSES, Pictures, invent_card

MAX_SCRIPT_BYTES = 1_500_000
SECTIONS = [
    "balance",
    "resolution",
    "map",
    "duplicates",
    "labels",
    "confusion",
    "cartography",
    "leakage",
    "health",
    "provenance",
]
VOID = {"meta", "link", "img", "input", "br"}
HOSTILE = tuple(
    f"</script><script>alert({i})</script><img src=x onerror=alert(1)>&amp;\u2028\u202e\x00\ud800 name "
    + "ß稻" * 60
    for i in range(60)
)


class Page(HTMLParser):
    """What a browser would make of a page: elements with attributes, text, and what is inside of what."""

    def __init__(self, page: str):
        super().__init__(convert_charrefs=True)
        self.elements, self.words, self.scripts, self.open = [], [], [], []
        self.in_details = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.in_details.append("details" in self.open)
        if tag == "script":
            self.scripts.append([dict(attrs), ""])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, "elements are nested wrongly"

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1][1] += data
        elif self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def ids(self):
        return [attrs["id"] for _, attrs in self.elements if "id" in attrs]

    def data_of(self, name):
        return next(json.loads(text) for attrs, text in self.scripts if attrs.get("id") == f"{name}-data")


@pytest.fixture(scope="module")
def card():
    return invent_card()


@pytest.fixture(scope="module")
def page(card):
    return Page(build_card(card))


@pytest.fixture(scope="module")
def hostile():
    # Polars keeps no lone surrogate, so those can only come in the JSON parts.
    names = tuple(name.replace("\ud800", "") for name in HOSTILE)
    return invent_card(name=HOSTILE[0], classes=names, n=400, file="<i>{row}</i>.jpg")


def test_what_a_curator_asks_first_comes_first(page, card):
    text = page.text
    order = [card.result["dataset"], "Not ready to publish", "Score", "Axes", "What to fix first", "See which"]
    order += ["Are the classes balanced?", "How was this made?"]
    places = [text.index(words, text.index("Dataset card")) for words in order]
    assert places == sorted(places)


def test_the_score_stands_with_its_interval_and_every_axis_with_what_drives_it(page, card):
    value = card.result["score"]
    interval = value["intervals"]["agml-2026"]["overall"]
    assert f"{value['overall']:.1f} [{interval['low']:.1f}, {interval['high']:.1f}]" in page.text
    for axis, points in value["axes"].items():
        assert f"{axis.capitalize()} {points:.1f}" in page.text
    assert f"evenness of the classes {value['components']['balance']:.1f}" in page.text.lower()


def test_the_fixes_carry_the_counts_of_the_report(page, card):
    metrics = card.result["metrics"]
    conflicts = metrics["near_duplicate"]["label_conflicts"]
    assert f"{conflicts['images']} images in {conflicts['groups']} groups of copies carry different" in page.text
    assert f"{metrics['near_duplicate']['cross_split_near_duplicates']} images belong to a group" in page.text
    assert f"{metrics['label_noise']['leak_safe']['n_noisy_samples']} labels look wrong" in page.text


def test_three_fixes_are_shown_and_the_others_on_request(page, card):
    lists = [i for i, (tag, attrs) in enumerate(page.elements) if tag == "ol" and attrs.get("class") == "fixes"]
    assert [page.in_details[i] for i in lists] == [False, True]
    assert len(find_fixes(card)) > 3


def test_what_forbids_publishing_comes_before_what_does_not(card):
    severe = [fix.severe for fix in find_fixes(card)]
    assert severe == sorted(severe, reverse=True)
    assert any(severe)
    assert not all(severe)


def test_a_fix_says_what_the_score_becomes(card):
    metrics = card.result["metrics"]
    cleaned = metrics | {"label_noise": metrics["label_noise"] | {"estimated_noise_rate": 0.0}}
    before, after = card.result["score"]["overall"], score(cleaned, (1, 2, 3))["overall"]
    assert before < after
    fix = next(fix for fix in find_fixes(card) if fix.section == "labels")
    assert f"from {before:.1f} to {after:.1f}" in fix.effect


def test_a_dataset_without_faults_is_told_so():
    clean = invent_card(copies=0, flips=0, faults=False, signal=12.0)
    assert find_fixes(clean) == []
    text = Page(build_card(clean)).text
    assert "Nothing found that needs fixing. Every metric was computed." in text
    assert "Nothing was found." in text


@pytest.mark.parametrize("phases", [(1,), (1, 2)])
def test_what_was_not_measured_is_named_and_every_section_is_there(phases):
    page = Page(build_card(invent_card(phases=phases)))
    assert [name for name in page.ids() if name in SECTIONS] == SECTIONS
    assert "Not measured: " in page.text
    assert "Not computable: Phase 3 was not asked for." in page.text
    assert "None" not in page.text
    assert "nan" not in page.text.split()


def test_a_report_of_nothing_is_a_page_too():
    page = Page(build_card(CardData(result={"dataset": "empty"})))
    assert [name for name in page.ids() if name in SECTIONS] == SECTIONS
    assert "Not measured. There is no metric of it yet." in page.text
    assert page.text.count("Not computable") >= len(SECTIONS) - 1


def test_a_missing_metric_gives_the_reason_that_the_store_gives(card):
    metrics = {name: value for name, value in card.result["metrics"].items() if name != "leakage"}
    states = {"artifacts": {"quality/leakage": {"state": "failed", "reason": "Out of memory."}}}
    page = Page(build_card(replace(card, result={**card.result, "metrics": metrics}, config_used=states)))
    assert "quality/leakage is failed. Out of memory." in page.text


@pytest.mark.parametrize("part", ["issues", "points", "cartography", "pixels"])
def test_every_other_part_may_be_missing(card, part):
    page = Page(build_card(replace(card, **{part: None})))
    assert [name for name in page.ids() if name in SECTIONS] == SECTIONS


def test_columns_of_issues_that_are_not_current_are_null(card):
    bare = ["row", "source_row", "file", "given_label"]
    nothing = card.issues.with_columns(
        pl.lit(None, card.issues.schema[name]).alias(name) for name in card.issues.columns if name not in bare
    )
    text = Page(build_card(replace(card, issues=nothing))).text
    listed = min(len(card.result["metrics"]["label_noise"]["suggested_labels"]), 12)
    assert text.count("suggested ") >= listed
    assert [name for name in Page(build_card(replace(card, issues=card.issues.clear()))).ids() if name in SECTIONS]


def test_one_class_is_a_dataset_too():
    text = Page(build_card(invent_card(classes=("only",), flips=0))).text
    assert "There is one class, so there is nothing to balance." in text
    assert "Label noise compares classes" in text


def test_the_same_data_give_the_same_bytes(card):
    assert build_card(card) == build_card(invent_card())


def test_no_name_of_a_dataset_becomes_markup(hostile, page):
    harmless, text = page, build_card(hostile)
    page = Page(text)
    text.encode()  # would fail on a lone surrogate
    assert [attrs.get("type", "code") for attrs, _ in page.scripts] == ["application/json"] * 2 + ["code"] * 3
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in harmless.elements}
    for tag, attrs in page.elements:
        assert not [name for name in attrs if name.startswith("on")]
        assert tag != "img" or attrs["src"].startswith("data:image/jpeg;base64,")
        assert tag != "a" or attrs["href"].startswith("#")
    assert "</script><script>alert(0)</script>" in page.text, "it is shown as the text that it is"
    shown = "".join(page.words)
    assert not {"\x00", "\ud800", "\u202e", "\u2028"} & set(shown)


def test_json_in_a_script_cannot_end_it(hostile):
    for attrs, text in Page(build_card(hostile)).scripts:
        if attrs.get("type") == "application/json":
            assert not set("<>&\u2028\u2029") & set(text)
            assert any(name.startswith("</script><script>alert(0)") for name in json.loads(text)["labels"])


def test_the_page_asks_for_nothing_and_allows_only_its_own_scripts(page):
    for tag, attrs in page.elements:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            assert attrs.get(name, "#").startswith(("#", "data:")), (tag, attrs[name])
    policy = next(attrs["content"] for tag, attrs in page.elements if attrs.get("http-equiv"))
    assert "default-src 'none'" in policy
    scripts = policy.partition("script-src ")[2].partition(";")[0]
    assert scripts.count("'sha256-") == 3
    assert "unsafe" not in scripts
    assert "@import" not in build_style()
    assert "url(" not in build_style()


def build_style() -> str:
    return (files("agml_assets.report") / "templates" / "card.css").read_text("utf-8")


def test_the_largest_card_keeps_to_its_size():
    names = tuple(f"<&\u2028{i} " + "<&>'\"" * 40 for i in range(120))
    large = invent_card(classes=names, n=5400, copies=500, flips=300, file="<&>" * 30 + "{row}.jpg")
    text = build_card(large)
    assert len(text.encode()) <= MAX_BYTES
    code = [script for attrs, script in Page(text).scripts if not attrs]
    assert sum(len(script.encode()) for script in code) <= MAX_SCRIPT_BYTES
    page = Page(text)
    assert len(page.data_of("map")["x"]) == POINTS_SHOWN
    assert f"A sample of 5,000 of {5400:,} images is drawn" in page.text
    assert "The 20 most confused of 120 classes are drawn." in page.text
    assert "The 15 largest and the 15 smallest of 120 classes are drawn" in page.text


def test_up_to_fifty_classes_the_matrix_is_whole():
    page = Page(build_card(invent_card(classes=tuple(f"c{i}" for i in range(CLASSES_SHOWN)), n=500)))
    assert sum(tag == "th" and attrs.get("title") == "c7" for tag, attrs in page.elements) == 2
    assert "most confused of" not in page.text


def test_a_matrix_that_the_report_leaves_out_is_drawn_from_its_counts(card):
    metrics = card.result["metrics"]
    bare = metrics["class_confusability"] | {"confusion_matrix": None}
    other = replace(card, result={**card.result, "metrics": metrics | {"class_confusability": bare}})
    assert build_card(other) == build_card(card)


def test_pictures_are_small_lazy_and_never_more_than_a_screenful_at_once(page):
    pictures = [
        (attrs, inside)
        for (tag, attrs), inside in zip(page.elements, page.in_details, strict=True)
        if tag == "img"
    ]
    assert len(pictures) > 20
    assert sum(not inside for _, inside in pictures) <= 6 * 6 + 12 + 2 * 5
    for attrs, _ in pictures:
        assert attrs["loading"] == "lazy"
        assert attrs["alt"].startswith("row ")
        assert (attrs["width"], attrs["height"]) == ("128", "128")
    picture = Image.open(BytesIO(b64decode(pictures[0][0]["src"].partition(",")[2])))
    assert picture.format == "JPEG"
    assert max(picture.size) == SIDE


def test_pictures_stop_at_the_budget():
    pictures = Thumbnails(Pictures(9), {row: row for row in range(9)}, budget=5_000)
    addresses = [pictures.address(row) for row in range(9)]
    assert None in addresses
    assert 0 < sum(len(address) for address in addresses if address) <= 5_000


def test_groups_across_splits_and_with_different_labels_come_first(page):
    titles = re.findall(r"\d+ images, (?:same pixels|nearly the same)[^.]*?(?=row)", page.text)
    urgency = [("different labels" in title) + ("across" in title) for title in titles]
    assert urgency == sorted(urgency, reverse=True)
    assert urgency[0] > urgency[-1]


def test_suspicious_labels_are_listed_most_suspicious_first_with_both_labels(page, card):
    flagged = card.issues.filter("is_label_issue").sort("label_score", "row")
    first = flagged.row(0, named=True)
    said = f"given {first['given_label']} suggested {first['suggested_label']} score {first['label_score']:.3f}"
    assert said in re.sub(r"\s+", " ", page.text)
    scores = [float(found) for found in re.findall(r"suggested [a-z ]+ score (\d\.\d+)", page.text)]
    assert scores == sorted(scores)
    assert len(scores) == flagged.height


def test_the_map_holds_every_image_with_its_row_class_and_split(page, card):
    data = page.data_of("map")
    assert data["index"] == [point["index"] for point in card.points]
    assert [data["labels"][code] for code in data["label"]] == [point["label"] for point in card.points]
    assert [data["groups"][code] for code in data["group"]] == [point["split"] for point in card.points]
    flagged = [bool(flag & 1) for flag in data["flag"]]
    assert flagged == card.issues["is_label_issue"].to_list()


def test_the_cartography_map_shows_confidence_over_variability(page, card):
    data = page.data_of("cartography")
    assert data["y"] == pytest.approx(card.cartography["confidence"].to_list(), abs=5e-4)
    assert data["x"] == pytest.approx(card.cartography["variability"].to_list(), abs=5e-4)


def test_provenance_is_complete(page, card):
    text = next(text for text in page.words if '"config_used"' in text)
    everything = json.loads(text)
    assert everything["reproducibility"] == card.result["reproducibility"]
    assert everything["config_used"] == card.config_used


def test_a_contradiction_in_the_report_is_shown(card):
    broken = replace(card, result={**card.result, "breaches": ["near_duplicate: 3 of 2 images."]})
    assert "near_duplicate: 3 of 2 images." in Page(build_card(broken)).text


def test_a_noise_rate_that_cannot_be_told_is_said_in_words(card, page):
    assert "The true rate is not identifiable: There is no calibration: Too few images." in page.text
    metrics = card.result["metrics"]
    noise = metrics["label_noise"] | {"adjusted_noise_rate": {"low": 0.041, "high": 0.0625}}
    other = replace(card, result={**card.result, "metrics": metrics | {"label_noise": noise}})
    fix = next(fix for fix in find_fixes(other) if fix.section == "labels")
    assert fix.severe
    assert "4.1\N{NO-BREAK SPACE}% to 6.2\N{NO-BREAK SPACE}% of the labels are wrong" in fix.do


@pytest.mark.parametrize(
    ("value", "interval", "said"),
    [
        (0.8312, {"low": 0.7912, "high": 0.8687}, "0.83 [0.79, 0.87]"),
        (0.8312, {"low": 0.8294, "high": 0.8331}, "0.831 [0.829, 0.833]"),
        (0.8312, {"kind": "none", "reason": "9 groups."}, "0.83"),
        (None, None, "not computable"),
        (float("nan"), None, "not computable"),
    ],
)
def test_a_figure_has_as_many_digits_as_its_interval_justifies(value, interval, said):
    assert figure(value, interval) == said


def test_a_share_that_is_not_zero_never_reads_as_zero():
    assert percent(0.0001) == "<\N{NO-BREAK SPACE}0.1\N{NO-BREAK SPACE}%"
    assert percent(0) == "0\N{NO-BREAK SPACE}%"


def test_a_long_name_keeps_both_ends():
    assert short("a" * 60 + "z" * 60, 30) == "a" * 19 + "…" + "z" * 10
    assert short("tomato\u200dplant") == "tomato\u200dplant", "joiners belong to the spelling of many languages"


def test_a_sample_keeps_the_proportions_of_the_strata():
    strata = ["a"] * 9_000 + ["b"] * 900 + ["c"] * 100
    chosen = stratified_sample(strata, 1_000)
    counts = {name: sum(strata[i] == name for i in chosen) for name in "abc"}
    assert counts == {"a": 900, "b": 90, "c": 10}
    assert chosen == sorted(set(chosen))


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours by WCAG 2.1."""

    def luminance(colour):
        value = colour.lstrip("#")
        value = "".join(c * 2 for c in value) if len(value) == 3 else value
        parts = np.array([int(value[i : i + 2], 16) for i in (0, 2, 4)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_numbers_stand_out_from_every_colour_of_the_matrix():
    assert all(contrast(*cividis(step / 200)) >= 4.5 for step in range(201))


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("ground", ["page", "panel"])
@pytest.mark.parametrize("ink", ["text", "muted", "accent", "stop", "care", "good"])
def test_text_stands_out_from_its_ground_in_light_and_dark(theme, ground, ink):
    block = re.findall(r":root \{(.*?)\}", build_style(), re.DOTALL)[theme]
    colours = dict(re.findall(r"--(\w+): (#\w+)", block))
    assert contrast(colours[ink], colours[ground]) >= 4.5


def test_classes_are_named_in_their_declared_order(page):
    assert page.data_of("map")["labels"] == list(CLASSES)
