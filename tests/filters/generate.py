"""Random filters and properties, with a liking for what RocketMQ does in its own way."""

from __future__ import annotations

from random import Random

NAMES = ("a", "b", "c", "TAGS", "$x", "_y", "missing")
TEXTS = (
    *("", "x", "abc", "ab", "bc", "it''s", "true", "TRUE", "false", "1", "5", "-5", "5.5", "é中", "K", " 5"),
    *("2147483648", "NaN", "a b"),
)
INTEGERS = (
    *("0", "1", "5", "5L", "12l", "007", "2147483647", "2147483648", "9223372036854775807", "10", "3"),
    *("9223372036854775808", "-5", "-2147483648", "- 3", "+5", "01", "0l"),
)
DOUBLES = (
    "0.5",
    ".5",
    "5.",
    "5.5",
    "1e3",
    "1E-3",
    "5E",
    "0.0",
    "1e400",
    "1e-400",
    "-0.5",
    "1.7976931348623157e308",
)
VALUES = (
    *(
        "x",
        "abc",
        "abcabc",
        "it's",
        "true",
        "TRUE",
        "tRuE",
        "false",
        "0",
        "1",
        "5",
        "+5",
        "-5",
        "5.5",
        "5.0",
        "é中",
    ),
    *(
        " 5",
        "5 ",
        "05",
        "0005",
        "2147483647",
        "2147483648",
        "-2147483648",
        "-2147483649",
        "9223372036854775807",
    ),
    *(
        "9223372036854775808",
        "1e3",
        "1E3",
        ".5",
        "5.",
        "NaN",
        "-NaN",
        "Infinity",
        "-Infinity",
        "infinity",
        "inf",
    ),
    *(
        "0x10",
        "0x1p4",
        "0x.8P1",
        "0x1.8p1f",
        "5f",
        "5d",
        "5L",
        "1_000",
        "٣",
        "１２",
        "𝟓",
        "-0",
        "-0.0",
        "0.0",
    ),
    *(
        "1e400",
        "-1e400",
        "1e-400",
        "\t5\n",
        "\u00a05",
        "--5",
        "+-5",
        "+",
        "-",
        ".",
        "e5",
        "1e",
        "K",
        "\u212a",
    ),
    *("0x1p99999999999999", "0x0p99999999999999", "0x1p-99999999999999", "00000000000000000000000000000007"),
    *("4.9e-324", "1.7976931348623157e308", "0.1", "0.10000000000000001", "a b", "''"),
)
_COMPARISONS = ("=", "<>", ">", ">=", "<", "<=")
_SEARCHES = ("CONTAINS", "STARTSWITH", "ENDSWITH", "contains", "StartsWith")
_NOISE = (
    *(
        "",
        "",
        "",
        "",
        "",
        "",
        " ",
        "\t",
        "\n",
        " /* c */ ",
        "/**/",
        " --c\n",
        "--c",
        " ~",
        " )",
        " x ~",
        " x",
        ";",
        "!",
    ),
    *(" 'open", "/*", " AND", " NOT", " OR 1", "\u3000", "\ufeff", " --\r", " \x00", "\u212a", "\u017f"),
)
_WORDS = (
    *(
        "a",
        "b",
        "TAGS",
        "1",
        "2.5",
        "'x'",
        "''",
        "TRUE",
        "false",
        "NULL",
        "AND",
        "OR",
        "NOT",
        "BETWEEN",
        "IN",
        "IS",
    ),
    *(
        "CONTAINS",
        "STARTSWITH",
        "ENDSWITH",
        "=",
        "<>",
        "<",
        "<=",
        ">",
        ">=",
        "(",
        ")",
        ",",
        "+",
        "-",
        "--",
        "/*",
        "*/",
    ),
    *("0", "01", "1l", "1e5", ".5", "'", "~", "\n", "#", "$", "_"),
)


def expression(random: Random) -> str:
    """A filter, or something that is nearly one."""
    if random.random() < 0.1:
        return "".join(random.choice(_WORDS) + random.choice(("", " ")) for _ in range(random.randint(1, 8)))
    text = _condition(random, random.randint(0, 3))
    if random.random() < 0.3:
        text += random.choice(_NOISE)
    if random.random() < 0.1:
        at = random.randrange(len(text) + 1)
        text = text[:at] + random.choice((*_WORDS, "")) + text[at + random.randint(0, 2) :]
    return text


def properties(random: Random) -> dict[str, str]:
    """Some of the names, each with a value that reads in more than one way."""
    names = [name for name in NAMES[:-1] if random.random() < 0.75]
    return {name: random.choice(VALUES) for name in names}


def _condition(random: Random, depth: int) -> str:
    if depth == 0 or random.random() < 0.3:
        return _test(random)
    kind = random.randrange(7)
    one, other = _condition(random, depth - 1), _condition(random, depth - 1)
    if kind < 2:
        return f"{one} {random.choice(('AND', 'and'))} {other}"
    if kind < 4:
        return f"{one} {random.choice(('OR', 'Or'))} {other}"
    if kind == 4:
        return f"NOT {one}" if random.random() < 0.5 else f"NOT ({one})"
    if kind == 5:
        return f"({one})"
    return f"({one}) {random.choice(_COMPARISONS)} ({other})"


def _test(random: Random) -> str:
    negative = random.choice(("", "", "NOT "))
    left = _operand(random) if random.random() < 0.3 else random.choice(NAMES)
    kind = random.randrange(12)
    if kind < 5:
        return f"{left} {random.choice(_COMPARISONS)} {_operand(random)}"
    if kind < 7:
        return f"{left} {negative}BETWEEN {_number(random)} AND {_number(random)}"
    if kind < 8:
        listed = ", ".join(_text(random) for _ in range(random.randint(1, 7)))
        return f"{left} {negative}IN ({listed})"
    if kind < 10:
        return f"{left} {negative}{random.choice(_SEARCHES)} {_text(random)}"
    if kind < 11:
        return f"{left} IS {negative}NULL"
    return left


def _operand(random: Random) -> str:
    kind = random.randrange(10)
    if kind < 4:
        return _number(random)
    if kind < 7:
        return _text(random)
    if kind < 9:
        return random.choice(NAMES)
    return random.choice(
        ("TRUE", "FALSE", "NULL", "true", "-a", "-'5'", "+b", "(a)", "-(-5)", "- -5", "-TRUE")
    )


def _number(random: Random) -> str:
    if random.random() < 0.1:
        return random.choice(NAMES)
    return random.choice(INTEGERS if random.random() < 0.65 else DOUBLES)


def _text(random: Random) -> str:
    return f"'{random.choice(TEXTS)}'"
