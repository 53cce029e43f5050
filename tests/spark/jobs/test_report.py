"""The page: whole, readable offline, and unmoved by what a store holds."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from penstock.spark.jobs.backlog import GroupLag
from penstock.spark.jobs.charts import Bar, histogram, stacked_bars, ticks
from penstock.spark.jobs.report import render_report, write_report
from penstock.spark.jobs.retention import project
from penstock.spark.jobs.stats import Counted, HourStats, Spread, StatsResult, TopicStats

HOUR = 3_600_000
NOW = 1_790_000_000_000 // HOUR * HOUR
EVIL = "<script>alert('x')</script>&\"\x1b[31m"
VOID = {"meta", "rect", "line", "br", "link"}


class Checker(HTMLParser):
    """Every tag is closed by its own; what text and tags there are."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def example(hours: int = 50) -> StatsResult:
    spread = Spread(
        100, 900, {"p50": 200.0, "p90": 300.0, "p95": 400.0, "p99": 500.0, "p99.9": 600.0}, [(200.0, 5)]
    )
    delays = Spread(
        -3, 40, {"p50": 0.0, "p90": 2.0, "p95": 3.0, "p99": 30.0, "p99.9": 40.0}, [(0.0, 3), (30.0, 2)]
    )
    names = [EVIL, *(f"topic{n}" for n in range(11))]
    topics = [
        TopicStats(
            name,
            5,
            1000 - n,
            1,
            NOW,
            NOW + HOUR,
            spread,
            delays,
            [Counted(EVIL, 3, 1.0)],
            [Counted("k", 2, 1.0)],
            2,
        )
        for n, name in enumerate(names)
    ]
    traffic = [HourStats(name, 0, NOW + n * HOUR, 2, 500, 0, 1) for n in range(hours) for name in names[:2]]
    lag = [GroupLag("g", EVIL, 0, 1, 0, 9, 8, 0, 5000), GroupLag("h", "t", 0, 9, 0, 9, 0, 2, None)]
    return StatsResult(
        "/data/store",
        60,
        12_000,
        0,
        0,
        12_000,
        topics,
        traffic,
        lag,
        project(traffic, 1 << 20, 1 << 30),
        20,
        3,
        1.5,
    )


def checked(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    return checker


def test_page_is_whole_and_holds_every_part() -> None:
    page = render_report(example())
    seen = checked(page)
    for words in (
        "Traffic",
        "Topics",
        "Sizes of records",
        "Delay from born",
        "Tags",
        "Hot keys",
        "Consumer groups",
        "Retention",
    ):
        assert words in seen.text
    assert seen.tags.count("svg") == 6
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        assert ElementTree.fromstring(svg).attrib["role"] == "img"


def test_page_loads_nothing_and_runs_nothing() -> None:
    page = render_report(example())
    assert "script" not in checked(page).tags
    assert not re.search(r"\b(src|href|srcset|action)=|url\(|@import|<link|<iframe|<object", page)
    assert set(re.findall(r"https?://[^\"'\s<]+", page)) == {"http://www.w3.org/2000/svg"}


def test_names_from_a_store_are_text() -> None:
    page = render_report(example())
    assert EVIL not in page
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page.replace("\n", "")


def test_page_has_a_light_and_a_dark_face() -> None:
    page = render_report(example())
    assert "prefers-color-scheme:dark" in page
    for name in set(re.findall(r"var\(--(\w+)\)", page)):
        assert page.count(f"--{name}:") == 2


@pytest.mark.parametrize("hours", [1, 96, 97, 24 * 400])
def test_traffic_of_any_length_is_a_hundred_bars_at_most(hours: int) -> None:
    page = render_report(example(hours))
    plot = re.search(r'aria-label="Bytes stored.*?</svg>', page, re.DOTALL)
    assert plot is not None
    assert 1 <= plot[0].count("<g>") <= 97
    checked(page)


def test_a_page_of_an_empty_store_says_so(tmp_path: Path) -> None:
    empty = replace(example(), records=0, bytes=0, topics=[], hours=[], lag=[], retention=None)
    write_report(empty, tmp_path / "page.html")
    seen = checked((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "There are no messages" in seen.text


def test_axes_are_round_and_reach_the_top() -> None:
    for top in (1, 7, 99, 1234.5, 10**12, 0.03):
        steps = ticks(top)
        assert steps[0] == 0
        assert top <= steps[-1] < 2.6 * top
        assert len(steps) <= 7


def test_bars_are_as_tall_as_their_values() -> None:
    drawn = ElementTree.fromstring(stacked_bars([Bar("a", [10, 10]), Bar("b", [5, 0])], title="t"))
    heights = [float(rect.attrib["height"]) for rect in drawn.iter("{http://www.w3.org/2000/svg}rect")]
    assert len(heights) == 3
    assert heights[0] == heights[1] == pytest.approx(2 * heights[2], abs=0.02)


def test_histogram_of_nothing_positive_is_empty() -> None:
    drawn = ElementTree.fromstring(histogram([(0.0, 3)], title="t", unit="ms", marks={"p50": 0.0}))
    assert [child.tag for child in drawn] == ["{http://www.w3.org/2000/svg}desc"]
