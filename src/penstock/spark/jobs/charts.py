"""Plots as SVG text: no library, no script, colours from the page that shows them."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 860
COLOURS = 8
"""Series have the classes ``s0`` to ``s7``; the page gives them colours."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 10, 34


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: parts from the bottom up, one of each series, and what a reader sees who points at it."""

    label: str
    parts: Sequence[float]
    hint: str = ""


def stacked_bars(
    bars: Sequence[Bar],
    *,
    title: str,
    unit: str = "",
    height: int = 240,
    line: float | None = None,
    line_label: str = "",
) -> str:
    """Upright bars, one above the other for several series. ``line`` is a level drawn across."""
    top = max([sum(bar.parts) for bar in bars] + ([line] if line is not None else []), default=0) or 1
    steps = ticks(top)
    top = steps[-1]
    inner = height - _TOP - _BOTTOM
    step = (WIDTH - _LEFT - _RIGHT) / max(1, len(bars))
    out = [_open(title, height)]
    for value in steps:
        y = _TOP + inner * (1 - value / top)
        out.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(
            f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
            f"{short(value)}{unit}</text>"
        )
    # Labels of six points and a bit a character, with a gap between them.
    widest = max((len(bar.label) for bar in bars), default=1)
    every = max(1, math.ceil((widest * 6.5 + 16) / step))
    for number, bar in enumerate(bars):
        x, below = _LEFT + number * step, 0.0
        out.append(f"<g><title>{escape(bar.hint or bar.label)}</title>")
        for series, part in enumerate(bar.parts):
            if part <= 0:
                continue
            tall = inner * part / top
            y = _TOP + inner - inner * below / top - tall
            out.append(
                f'<rect class="s{series % COLOURS}" x="{x + step * 0.08:.2f}" y="{y:.2f}"'
                f' width="{max(step * 0.84, 0.6):.2f}" height="{max(tall, 0.5):.2f}"/>'
            )
            below += part
        out.append("</g>")
        if number % every == 0:
            out.append(
                f'<text class="tick" x="{x + step / 2:.1f}" y="{height - _BOTTOM + 18}"'
                f' text-anchor="middle">{escape(bar.label)}</text>'
            )
    if line is not None:
        y = _TOP + inner * (1 - line / top)
        out.append(f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(
            f'<text class="tick" x="{WIDTH - _RIGHT}" y="{y - 5:.1f}" text-anchor="end">'
            f"{escape(line_label)}</text>"
        )
    return "".join([*out, "</svg>"])


def level_bars(rows: Sequence[tuple[str, float, str]], *, title: str) -> str:
    """Lying bars: a name, a value, and the value as text."""
    most = max((value for _, value, _ in rows), default=0) or 1
    height = 8 + 26 * len(rows)
    names = 250
    out = [_open(title, height)]
    for number, (name, value, text) in enumerate(rows):
        y = 4 + 26 * number
        wide = (WIDTH - names - 130) * value / most
        shown = name if len(name) <= 36 else f"{name[:35]}…"
        out.append(
            f"<g><title>{escape(f'{name}: {text}')}</title>"
            f'<text class="name" x="{names - 8}" y="{y + 16}" text-anchor="end">{escape(shown)}</text>'
            f'<rect class="s0" x="{names}" y="{y + 3}" width="{max(wide, 1):.1f}" height="18" rx="2"/>'
            f'<text class="tick" x="{names + max(wide, 1) + 6:.1f}" y="{y + 16}">{escape(text)}</text></g>'
        )
    return "".join([*out, "</svg>"])


def histogram(values: Sequence[tuple[float, int]], *, title: str, unit: str, marks: dict[str, float]) -> str:
    """How often values occur, on a logarithmic axis; ``marks`` are named places on it, as quantiles are."""
    positive = [(value, count) for value, count in values if value > 0]
    height, inner = 220, 220 - _TOP - _BOTTOM
    out = [_open(title, height)]
    if positive:
        low, high = math.log(positive[0][0]) - 0.02, math.log(positive[-1][0]) + 0.02
        bins = _binned(positive, low, high, 80)
        most = max(bins)
        step = (WIDTH - _LEFT - _RIGHT) / len(bins)
        whole = sum(count for _, count in values)
        for number, count in enumerate(bins):
            if count:
                tall = 0.82 * inner * count / most  # names of marks stand above
                begin = math.exp(low + (high - low) * number / len(bins))
                end = math.exp(low + (high - low) * (number + 1) / len(bins))
                out.append(
                    f"<g><title>{short(begin)} to {short(end)}{unit}:"
                    f" {count} messages ({count / whole:.1%})</title>"
                    f'<rect class="s0" x="{_LEFT + number * step:.1f}" y="{_TOP + inner - tall:.1f}"'
                    f' width="{step * 0.9:.2f}" height="{max(tall, 0.5):.1f}"/></g>'
                )
        for number in range(7):
            at = low + (high - low) * number / 6
            x = _LEFT + (WIDTH - _LEFT - _RIGHT) * number / 6
            anchor = "end" if number == 6 else "middle"
            out.append(
                f'<text class="tick" x="{x:.1f}" y="{height - _BOTTOM + 18}" text-anchor="{anchor}">'
                f"{short(math.exp(at))}{unit}</text>"
            )
        for number, (name, value) in enumerate(marks.items()):
            if value > 0:
                x = _LEFT + (WIDTH - _LEFT - _RIGHT) * (math.log(value) - low) / (high - low)
                x = min(max(x, _LEFT), WIDTH - _RIGHT)
                out.append(f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_TOP + inner}"/>')
                out.append(
                    f'<text class="tick" x="{x - 4:.1f}" y="{_TOP + 11 + 13 * number}" text-anchor="end">'
                    f"{escape(name)} {short(value)}{unit}</text>"
                )
    return "".join([*out, "</svg>"])


def _binned(values: Sequence[tuple[float, int]], low: float, high: float, most: int) -> list[int]:
    """Counts in bins of equal width on the logarithmic axis, none narrower than a bucket of the sketch."""
    count = max(1, min(most, int((high - low) / 0.02)))
    bins = [0] * count
    for value, many in values:
        bins[min(count - 1, int((math.log(value) - low) / (high - low) * count))] += many
    return bins


def ticks(top: float, most: int = 5) -> list[float]:
    """Round values from zero to at least ``top``."""
    step = 10 ** math.floor(math.log10(top / most)) if top > 0 else 1
    for factor in (1, 2, 2.5, 5, 10):
        if step * factor * most >= top:
            step *= factor
            break
    return [step * number for number in range(math.ceil(top / step - 1e-9) + 1)]


def short(value: float) -> str:
    """A number in few characters."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def escape(text: str) -> str:
    """Text as markup that shows it, control characters by their names: what others put into a store."""
    return html.escape("".join(char if char.isprintable() else repr(char)[1:-1] for char in text))


def _open(title: str, height: int) -> str:
    name = escape(title)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{name}" xmlns="http://www.w3.org/2000/svg">'
        f"<desc>{name}</desc>"
    )
