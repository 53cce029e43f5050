"""What filters mean: the promises of the grammar, and RocketMQ's surprises, by example."""

from __future__ import annotations

import pytest

from filters.ours import native_verdicts, plain_verdicts
from penstock import filters

ANA = {"a": "5", "b": "abc", "price": "19.5", "TAGS": "x", "long": "5000000000", "flag": "true"}


@pytest.mark.parametrize(
    "text",
    [
        "a = 5",
        "a = '5'",
        "a <> 6 AND b <> 'abd'",
        "a > 4 and a >= 5 and a < 6 and a <= 5",
        "price BETWEEN 19.0 AND 20.5",
        "price NOT BETWEEN 20.0 AND 30.0",
        "b IN ('x', 'abc')",
        "b NOT IN ('x', 'y')",
        "b CONTAINS 'bc' AND b NOT CONTAINS 'd'",
        "b STARTSWITH 'ab' AND b NOT STARTSWITH 'b'",
        "b ENDSWITH 'bc' AND b NOT ENDSWITH 'a'",
        "missing IS NULL AND a IS NOT NULL",
        "NOT (a = 6) AND (a = 6 OR b = 'abc')",
        "flag = TRUE",
        "long = 5000000000 AND long > 4999999999L",
        "price > -1.0 AND -1.5 < price AND price = 1.95e1",
        "TRUE",
        "a = 5 /* a */ -- b\n AND TAGS = 'x'",
    ],
)
def test_a_message_that_fits_is_taken(text: str) -> None:
    assert filters.compile(text).matches(ANA)
    assert native_verdicts(text, [ANA]) == ["true"]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("missing = 5", "null"),
        ("missing <> 5", "null"),
        ("NOT missing = 5", "null"),
        ("5 = missing", "false"),
        ("missing = 5 OR a = 5", "true"),
        ("missing = 5 AND a = 6", "false"),
        ("missing IN ('x')", "null"),
        ("missing NOT IN ('x')", "null"),
        ("missing NOT CONTAINS 'x'", "false"),
        ("missing NOT BETWEEN 1 AND 2", "null"),
        ("b > 5", "error"),
        ("b = 5", "error"),
        ("price = 19", "error"),  # a whole number makes a whole number of the text
        ("long > 5", "error"),  # and one of 32 bits
        ("TRUE = flag", "error"),
        ("b > a", "error"),
        ("a = 5 OR b > 5", "true"),
        ("b > 5 OR a = 5", "error"),
        ("b", "false"),
        ("flag", "false"),
        ("missing", "null"),
        ("NOT b", "true"),
        ("NOT a = 5", "false"),  # (NOT a) = 5
        ("-b = 5", "null"),
        ("b CONTAINS ''", "false"),
        ("b NOT CONTAINS ''", "false"),
        ("1 = TRUE", "false"),
        ("NULL", "null"),
        ("a = 05", "false"),  # 0, and nothing behind it counts
        ("a = 5 and", "refused"),
        ("a = 5 nonsense ~~~", "true"),
        ("a = 5 ~", "refused"),
        ("a > '5'", "refused"),
        ("a = NULL", "refused"),
        ("TRUE = 1", "refused"),
        ("a BETWEEN 6 AND 5", "refused"),
        ("'abc' IN ('abc')", "refused"),
        ("a IN (5)", "refused"),
        ("a > 0.0", "refused"),
        ("a = 9223372036854775808", "refused"),
        ("a LIKE 'x'", "false"),  # no word of the grammar: the property a, and something behind it
        ("a + 1 = 6", "false"),
        ("", "refused"),
        ("5", "refused"),
        ("'text'", "refused"),
    ],
)
def test_rocketmq_s_surprises_are_kept(text: str, verdict: str) -> None:
    expected = None if verdict == "refused" else [verdict]
    assert plain_verdicts(text, [ANA]) == expected
    assert native_verdicts(text, [ANA]) == expected


def test_a_message_that_cannot_be_compared_is_not_taken() -> None:
    made = filters.compile("b > 5")
    assert not made.matches(ANA)
    assert not made.matches_bytes(b"b\x01abc\x02")
    with pytest.raises(filters.EvaluationFailed):
        made.evaluate(ANA)


def test_a_refusal_says_what_is_wrong_and_where() -> None:
    with pytest.raises(filters.InvalidFilter, match=r"expected, found 'AND' at character 11") as refused:
        filters.compile("a BETWEEN AND")
    assert refused.value.position == 10
