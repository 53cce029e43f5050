"""The statistics as a page: one file with everything in it, which a browser opens from disk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.spark.jobs.backlog import GroupLag
from penstock.spark.jobs.charts import COLOURS, Bar, escape, histogram, level_bars, stacked_bars
from penstock.spark.jobs.retention import DAY_MS
from penstock.spark.jobs.stats import SHARES, Spread, StatsResult
from penstock.spark.jobs.style import STYLE
from penstock.spark.jobs.traffic import HOUR_MS

BARS = 96
ROWS = 50


def write_report(result: StatsResult, file: str | Path) -> None:
    """Write the page. It loads nothing from anywhere."""
    Path(file).write_text(render_report(result), encoding="utf-8")


def render_report(result: StatsResult) -> str:
    """The page as text. What a store holds (names, keys, tags) is shown as text, never as markup."""
    colours = "".join(f".s{n}{{fill:var(--s{n});background:var(--s{n})}}" for n in range(COLOURS))
    parts = [
        _tiles(result),
        _traffic(result),
        _topics(result),
        _spreads(result),
        _items(result),
        _lag(result),
        _retention(result),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Statistics of {escape(result.path)}</title><style>{STYLE}{colours}</style></head>"
        "<body><main>"
        f"<h1>Statistics of a store</h1><p>{escape(result.path)}</p>{''.join(parts)}"
        f"<footer>Made by penstock in {result.seconds:.1f} s with {result.splits} tasks. Times are UTC."
        " Quantiles are within one per cent; all counts are exact.</footer></main></body></html>\n"
    )


# -- parts of the page -------------------------------------------------------------------------------


def _tiles(result: StatsResult) -> str:
    plan = result.retention
    tiles = [
        ("messages", f"{result.records - result.fillers:,}"),
        ("of log", size(result.bytes)),
        ("topics", f"{len(result.topics):,}"),
        ("a day", size(plan.bytes_per_day) if plan else "–"),
        ("until the disk is full", _days(plan.days_until_full) if plan else "–"),
    ]
    if result.topics:
        first = min(topic.first_store_ms for topic in result.topics)
        last = max(topic.last_store_ms for topic in result.topics)
        tiles.append((f"from {moment(first)}", f"to {moment(last)}"))
    cells = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for name, value in tiles
    )
    return f'<div class="tiles">{cells}</div>'


def _traffic(result: StatsResult) -> str:
    if not result.hours:
        return _section("Traffic", "<p>There are no messages.</p>")
    names = [topic.topic for topic in result.topics[: COLOURS - 1]]
    shown = [*names, *(["all others"] if len(result.topics) > len(names) else [])]
    begin = min(hour.hour_ms for hour in result.hours)
    end = max(hour.hour_ms for hour in result.hours) + HOUR_MS
    step = next(
        hours * HOUR_MS
        for hours in (1, 2, 3, 6, 12, *range(24, 10**7, 24))
        if (end - begin) / (hours * HOUR_MS) <= BARS
    )
    begin -= begin % step
    sums: dict[int, list[int]] = defaultdict(lambda: [0] * len(shown))
    rows: dict[int, int] = defaultdict(int)
    for hour in result.hours:
        at = (hour.hour_ms - begin) // step
        series = names.index(hour.topic) if hour.topic in names else len(shown) - 1
        sums[at][series] += hour.bytes
        rows[at] += hour.rows
    bars = [
        Bar(
            _label(begin + at * step, step),
            sums.get(at, []),
            f"{moment(begin + at * step)}: {rows[at]:,} messages, {size(sum(sums[at]) if at in sums else 0)}",
        )
        for at in range(-(-(end - begin) // step))
    ]
    span = f"{step // HOUR_MS} h" if step < DAY_MS else f"{step // DAY_MS} d"
    title = f"Bytes stored, by topic, a bar for every {span}"
    return _section("Traffic", f"<p>{title}.</p>{_legend(shown)}{stacked_bars(bars, title=title, unit='B')}")


def _topics(result: StatsResult) -> str:
    top = [(topic.topic, float(topic.bytes), size(topic.bytes)) for topic in result.topics[:12]]
    rows = [
        [
            topic.topic,
            f"{topic.rows:,}",
            size(topic.bytes),
            f"{topic.queues:,}",
            moment(topic.first_store_ms),
            moment(topic.last_store_ms),
        ]
        for topic in result.topics
    ]
    heads = ["topic", "#messages", "#bytes", "#queues", "first", "last"]
    return _section("Topics", level_bars(top, title="Bytes by topic") + _table(heads, rows))


def _spreads(result: StatsResult) -> str:
    if not result.topics:
        return ""
    sizes, delays = (
        _joined(topic.sizes for topic in result.topics),
        _joined(topic.delays_ms for topic in result.topics),
    )
    quantile_names = [f"#p{share * 100:g}" for share in SHARES]
    out = []
    for name, unit, spread, attribute in (
        ("Sizes of records", "B", sizes, "sizes"),
        ("Delay from born to stored", "ms", delays, "delays_ms"),
    ):
        rows = [_spread_row(topic.topic, getattr(topic, attribute), unit) for topic in result.topics]
        zero = sum(count for value, count in spread if value <= 0)
        note = (
            f"<p>{zero:,} messages have no delay, or one below zero, and are not drawn.</p>" if zero else ""
        )
        chart = (
            histogram(spread, title=name, unit=unit, marks=_marks(spread)) if len(spread) > (zero > 0) else ""
        )
        out.append(_section(name, chart + note + _table(["topic", "#least", *quantile_names, "#most"], rows)))
    return "".join(out)


def _spread_row(topic: str, spread: Spread, unit: str) -> list[str]:
    values = [float(spread.low), *spread.quantiles.values(), float(spread.high)]
    return [topic, *(size(value) if unit == "B" else duration(value) for value in values)]


def _items(result: StatsResult) -> str:
    tags = [
        [topic.topic, tag.item, f"{tag.rows:,}", f"{tag.share:.1%}"]
        for topic in result.topics
        for tag in topic.tags
    ]
    keys = [
        [topic.topic, key.item, f"{key.rows:,}", f"{key.share:.2%}"]
        for topic in result.topics
        for key in topic.hot_keys
    ]
    limit = result.hot_key_limit
    hot = (
        f"<p>Every key with more than one in {limit} of its topic's keys is here, and the next ones.</p>"
        if keys
        else "<p>No message has a key.</p>"
    )
    shown = _table(["topic", "tag", "#messages", "#share"], tags) if tags else "<p>No message has a tag.</p>"
    return _section("Tags", shown) + _section(
        "Hot keys", hot + (_table(["topic", "key", "#times", "#share"], keys) if keys else "")
    )


def _lag(result: StatsResult) -> str:
    if not result.lag:
        return _section("Consumer groups", "<p>No group has committed an offset in this store.</p>")
    sums: dict[tuple[str, str], list[GroupLag]] = defaultdict(list)
    for lag in result.lag:
        sums[lag.group, lag.topic].append(lag)
    top = sorted(
        ((f"{g} · {t}", float(sum(x.offsets for x in xs))) for (g, t), xs in sums.items()),
        key=lambda e: -e[1],
    )
    bars = level_bars(
        [(name, value, f"{int(value):,} messages") for name, value in top[:12]], title="Messages behind"
    )
    rows = [
        [
            lag.group,
            lag.topic,
            str(lag.queue_id),
            f"{lag.committed:,}",
            f"{lag.max_offset:,}",
            f"{lag.offsets:,}",
            "?" if lag.milliseconds is None else duration(float(lag.milliseconds)),
            f"{lag.lost:,}" if lag.lost else "",
        ]
        for lag in sorted(result.lag, key=lambda lag: -lag.offsets)
    ]
    heads = ["group", "topic", "#queue", "#committed", "#end", "#behind", "#by time", "#lost"]
    return _section("Consumer groups", bars + _table(heads, rows))


def _retention(result: StatsResult) -> str:
    plan = result.retention
    if plan is None:
        return ""
    bars = [
        Bar(
            moment(day.day_ms)[5:10],
            [day.bytes],
            f"{moment(day.day_ms)[:10]}: {day.rows:,} messages, {size(day.bytes)}",
        )
        for day in plan.days[-BARS:]
    ]
    chart = stacked_bars(
        bars,
        title="Bytes a day",
        unit="B",
        line=plan.bytes_per_day,
        line_label=f"mean: {size(plan.bytes_per_day)} a day",
    )
    facts = [
        ["files of the log now", size(plan.log_bytes)],
        ["mean of a day", f"{size(plan.bytes_per_day)} (last {plan.window_hours} hours)"],
        ["room for the log", "unknown" if plan.disk_bytes is None else size(plan.disk_bytes)],
        ["days that fit into it", _days(plan.days_held)],
        ["until it is full", _days(plan.days_until_full)],
        *([f"to keep {days} days", size(need)] for days, need in plan.kept_bytes.items()),
    ]
    return _section("Retention", chart + _table(["", "#"], facts))


# -- pieces ------------------------------------------------------------------------------------------


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _legend(names: Sequence[str]) -> str:
    return "".join(
        f'<span class="key"><i class="s{number % COLOURS}"></i>{escape(name)}</span>'
        for number, name in enumerate(names)
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; columns whose head begins with # are numbers. Long ones fold."""
    marks = [' class="n"' if head.startswith("#") else "" for head in heads]
    head = "".join(
        f"<th{mark}>{escape(name.lstrip('#'))}</th>" for name, mark in zip(heads, marks, strict=True)
    )

    def lines(some: Sequence[Sequence[str]]) -> str:
        return "".join(
            "<tr>"
            + "".join(f"<td{mark}>{escape(cell)}</td>" for cell, mark in zip(row, marks, strict=True))
            + "</tr>"
            for row in some
        )

    def table(some: Sequence[Sequence[str]]) -> str:
        body = f"<thead><tr>{head}</tr></thead><tbody>{lines(some)}</tbody>"
        return f'<div class="scroll"><table>{body}</table></div>'

    shown = table(rows[:ROWS])
    if len(rows) > ROWS:
        rest = table(rows[ROWS : 20 * ROWS])
        shown += f"<details><summary>{len(rows) - ROWS:,} more</summary>{rest}</details>"
    return shown


def _joined(spreads: Iterable[Spread]) -> list[tuple[float, int]]:
    counts: dict[float, int] = defaultdict(int)
    for spread in spreads:
        for value, count in spread.histogram:
            counts[value] += count
    return sorted(counts.items())


def _marks(values: Sequence[tuple[float, int]]) -> dict[str, float]:
    whole, marks = sum(count for _, count in values), {}
    for share in (0.5, 0.99):
        seen = 0
        for value, count in values:
            seen += count
            if seen > share * (whole - 1):
                marks[f"p{share * 100:g}"] = value
                break
    return marks


def _label(milliseconds: int, step: int) -> str:
    text = moment(milliseconds)
    return text[5:10] if step >= DAY_MS else text[5:16]


def _days(days: float | None) -> str:
    if days is None:
        return "unknown"
    return f"{days:,.1f} days" if days < 1000 else f"{days / 365.25:,.1f} years"


def moment(milliseconds: int) -> str:
    """A time to the minute."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds:>16}"


def duration(milliseconds: float) -> str:
    """A time span in few characters."""
    value: Any = abs(milliseconds)
    sign = "-" if milliseconds < 0 else ""
    for unit, size_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if value >= size_ms:
            return f"{sign}{value / size_ms:.3g} {unit}"
    return f"{sign}{value:.3g} ms"


def size(count: float) -> str:
    """Bytes in few characters."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f}"
