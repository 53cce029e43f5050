"""The table as a picture: each row's ratio beside the one it should reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.errors import UsageError


def draw(report: dict[str, Any], path: Path) -> None:
    """Write a PNG. Needs matplotlib, which comes with the ``bench`` extra."""
    try:
        import matplotlib
    except ImportError:
        raise UsageError("matplotlib is not installed", hint="pip install 'penstock[bench]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in report["rows"] if row["ratio"] is not None]
    figure, axes = pyplot.subplots(figsize=(11, 1.5 + 0.36 * max(1, len(rows))), layout="constrained")
    places = range(len(rows))
    colours = {True: "#2a7f62", False: "#c0503c", None: "#7a7a7a"}
    axes.barh(
        places, [row["ratio"] for row in rows], color=[colours[row["reached"]] for row in rows], height=0.6
    )
    for place, row in zip(places, rows, strict=True):
        if row["at_least"] is not None:
            axes.plot([row["at_least"]] * 2, [place - 0.38, place + 0.38], color="black", linewidth=2)
        axes.text(row["ratio"], place, f" {row['ratio']:.2f} x", va="center", fontsize=8)
    axes.set_yticks(list(places), [f"{row['work']}\nvs {row['against']}" for row in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.axvline(1, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xlabel("ratio, ours to the peer's (longer is better; black: what it should reach)")
    machine, sync = report["machine"], report["fdatasync"]
    axes.set_title(
        f"penstock bench {report.get('bench', 'store')}: {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['filesystem']}, "
        f"fdatasync p50 {sync['p50_us']:.0f} us, load {report['load_average_before'][0]:.2f}",
        fontsize=8,
    )
    figure.savefig(path, dpi=140)
    pyplot.close(figure)
