"""Numbers, text and order are JavaScript's; the published fixtures say so too, here are the cases they lack."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agml_assets.leaderboard.javascript import (
    code_units,
    collation_key,
    dump_json,
    finite,
    number_text,
    own_keys,
    parse_json,
    to_fixed,
    to_number,
    trimmed,
    truthy,
)
from tests.leaderboard.records import json_values


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (0.00001, "0.00001"),
        (1.5e-7, "1.5e-7"),
        (1e16, "10000000000000000"),
        (123456789012345680000.0, "123456789012345680000"),
        (-1.25e21, "-1.25e+21"),
        (2**53 + 1, "9007199254740992"),
    ],
)
def test_numbers_print_as_in_javascript(number, text):
    assert number_text(number) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_printed_number_reads_back_as_itself(number):
    assert float(number_text(number)) == number


@pytest.mark.parametrize(
    ("number", "digits", "text"),
    [(97.5, 0, "98"), (-2.5, 0, "-3"), (-0.04, 1, "-0.0"), (8.95, 1, "8.9"), (-0.0, 0, "0"), (1e21, 0, "1e+21")],
)
def test_halves_of_the_binary_value_go_away_from_zero(number, digits, text):
    assert to_fixed(number, digits) == text


@given(json_values)
def test_writing_what_was_read_changes_nothing(value):
    text = dump_json(value)
    assert dump_json(json.loads(text)) == text


def test_layout_and_key_order_are_javascripts():
    value = {"b": [], "10": {}, "2": [1.0, None, True], "01": "é\u2028\x7f\t"}
    lines = [
        "{",
        '  "2": [',
        "    1,",
        "    null,",
        "    true",
        "  ],",
        '  "10": {},',
        '  "b": [],',
        '  "01": "é\u2028\x7f\\t"',
        "}",
    ]
    assert dump_json(value) == "\n".join(lines)


def test_a_lone_surrogate_is_escaped():
    assert dump_json(parse_json('"a\\ud800b\\ud83d\\ude00"')) == '"a\\ud800b\U0001f600"'


def test_a_number_beyond_doubles_is_written_as_null():
    assert dump_json(parse_json("[1e999, 1" + "0" * 400 + "]")) == "[\n  null,\n  null\n]"


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "[1,]", "\ufeff[]", "{'a': 1}", "[" * 200 + "]" * 200])
def test_what_javascript_does_not_read_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_brackets_in_a_text_are_no_nesting():
    assert parse_json(json.dumps(["[" * 500])) == ["[" * 500]


def test_of_a_key_given_twice_the_last_value_stands_at_the_first_place():
    assert list(parse_json('{"a": 1, "b": 2, "a": 3}').items()) == [("a", 3), ("b", 2)]


def test_only_array_indices_come_first():
    keys = ["b", "4294967295", "4294967294", "01", "1", "-1", "0"]
    assert own_keys(dict.fromkeys(keys)) == ["0", "1", "4294967294", "b", "4294967295", "01", "-1"]


def test_white_space_is_that_of_javascript():
    assert trimmed("\ufeff\u00a0x\u2003") == "x"
    assert trimmed("\u0085x\x1c") == "\u0085x\x1c"
    assert trimmed(" \n") is None
    assert trimmed(5) is None


def test_empty_lists_and_objects_are_true():
    assert [truthy(v) for v in ([], {}, "", 0, None, "0", 0.5)] == [True, True, False, False, False, True, True]


def test_a_boolean_is_no_number():
    assert finite(True) is None
    assert finite("1") is None
    assert finite(10**400) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [(" 12 ", 12), ("1e3", 1000), (".5", 0.5), ("5.", 5), ("0x1F", 31), ("-0x1", None), ("1_0", None)],
)
def test_texts_are_numbers_where_javascript_says_so(text, number):
    assert to_number(text) == number


@pytest.mark.parametrize("text", ["", " ", "٣", "Infinity", "1e999", "1,000", "0x", "0x٣", True, None, []])
def test_anything_else_is_no_number(text):
    assert to_number(text) is None


def test_the_default_order_is_by_code_units():
    # The emoji's code units begin with a surrogate, which is below the full-width tilde.
    assert sorted(["\uff5e", "\U0001f600", "b", "_", "B"], key=code_units) == [
        "B",
        "_",
        "b",
        "\U0001f600",
        "\uff5e",
    ]


def test_accented_letters_stand_by_their_base_letter():
    words = ["Zebra", "éclair", "eclair", "ecru", "Éclair", "f", "2", "_x", "straße", "strasse"]
    ordered = ["_x", "2", "eclair", "éclair", "Éclair", "ecru", "f", "strasse", "straße", "Zebra"]
    assert sorted(words, key=collation_key) == ordered
