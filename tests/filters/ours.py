"""Our verdicts in RocketMQ's words."""

from __future__ import annotations

from penstock import filters
from penstock.message.properties import encode_properties

WORDS = {True: "true", False: "false", None: "null"}


def plain_verdicts(text: str, maps: list[dict[str, str]]) -> list[str] | None:
    """Of the plain evaluator."""
    try:
        made = filters.compile(text)
    except filters.InvalidFilter:
        return None
    return [_plain(made, each) for each in maps]


def _plain(made: filters.Filter, properties: dict[str, str]) -> str:
    try:
        return WORDS[made.evaluate(properties)]
    except filters.EvaluationFailed:
        return "error"


def native_verdicts(text: str, maps: list[dict[str, str]]) -> list[str] | None:
    """Of the program that the broker runs over property bytes."""
    try:
        made = filters.compile(text)
    except filters.InvalidFilter:
        return None
    return [made.program.verdict(encode_properties(each)) for each in maps]
