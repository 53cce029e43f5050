"""Filters that explode are refused with a reason, and whatever the text, the answer comes soon."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filters.generate import _WORDS, expression, properties
from filters.ours import native_verdicts, plain_verdicts
from penstock import filters
from penstock.filters import MAX_DEPTH, MAX_LENGTH, MAX_NAMES, MAX_TERMS, MAX_VALUES
from penstock.message.properties import encode_properties, parse_properties


def listed(count: int) -> str:
    return ",".join(f"'{number}'" for number in range(count))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = '" + "x" * MAX_LENGTH + "'", "characters, at most"),
        ("(" * 10_000 + "a = 1" + ")" * 10_000, "levels deep"),
        ("NOT " * 1000 + "a", "levels deep"),
        ("- " * 1000 + "a = 1", "levels deep"),
        ("+" * 30_000, "levels deep"),
        ("a" + " = 1" * 400, "levels deep"),
        ("a" + " IS NULL" * 400, "levels deep"),
        (" OR ".join(["a=1"] * (MAX_TERMS + 1)), "comparisons"),
        (" AND ".join(["a"] * (MAX_TERMS + 1)), "comparisons"),
        (f"a IN ({listed(MAX_VALUES + 1)})", "texts in IN lists"),
        (" OR ".join(f"a IN ({listed(MAX_VALUES // 4)})" for _ in range(5)), "texts in IN lists|at most"),
        (" OR ".join(f"p{number} = 1" for number in range(MAX_NAMES + 1)), "properties"),
        ("a = " + "9" * 30_000, "beyond 64 bits"),
        ("a > 1e999999999", "is not between"),
        ("a = '\ud800'", "half a character"),
        ("a = 'open" + "''" * 10_000, "unexpected character"),
        ("/*" + "*" * 30_000, "unexpected character"),
        ("a = 1 /*" + "* " * 15_000, "unexpected character"),
    ],
)
def test_what_is_too_large_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(filters.InvalidFilter, match=reason) as refused:
        filters.compile(text)
    assert len(str(refused.value)) < 300


def test_what_is_at_the_limits_is_taken() -> None:
    deep = "(" * (MAX_DEPTH - 1) + "a = 1" + ")" * (MAX_DEPTH - 1)
    assert filters.compile(deep).matches({"a": "1"})
    wide = " OR ".join(["a = 1"] * MAX_TERMS)
    assert filters.compile(wide).matches_bytes(b"a\x011\x02")
    long_list = filters.compile(f"a IN ({listed(MAX_VALUES)})")
    for value, taken in (("0", True), (str(MAX_VALUES - 1), True), (str(MAX_VALUES), False)):
        assert long_list.matches({"a": value}) is taken
        assert long_list.matches_bytes(f"a\x01{value}\x02".encode()) is taken


words = st.lists(st.sampled_from([*_WORDS, " ", "  "]) | st.text(max_size=3), max_size=40).map("".join)


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=200) | words, data=st.binary(max_size=80))
def test_any_text_is_a_filter_or_refused_and_the_two_evaluators_agree(text: str, data: bytes) -> None:
    try:
        made = filters.compile(text)
    except filters.InvalidFilter:
        return
    given = encode_properties(parse_properties(data))
    assert made.matches(parse_properties(given)) == made.matches_bytes(given)
    assert made.matches_bytes(data) in (True, False)


def test_both_evaluators_say_the_same_of_everything_we_can_think_of() -> None:
    random = Random(92)
    compiled = 0
    for _ in range(3000):
        text, maps = expression(random), [properties(random) for _ in range(3)]
        plain = plain_verdicts(text, maps)
        assert native_verdicts(text, maps) == plain, (text, maps)
        compiled += plain is not None
    assert compiled > 500


@settings(max_examples=200, deadline=None)
@given(value=st.text(alphabet="0123456789+-.eEfFdDxXpPNaInity \t٣", min_size=1, max_size=24))
def test_both_read_numbers_alike(value: str) -> None:
    for text in ("a = 5", "a >= 5000000000", "a < 0.5", "a > b"):
        maps = [{"a": value, "b": "1e2"}]
        assert native_verdicts(text, maps) == plain_verdicts(text, maps)
