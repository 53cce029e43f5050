"""``penstock spark stats``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.sparkframe import Conf, Json, Master, StorePlace, job_session

if TYPE_CHECKING:
    from penstock.spark.jobs.stats import StatsResult


def stats(
    path: StorePlace,
    master: Master = None,
    conf: Conf = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with plots, all in one file.")
    ] = None,
    hot_keys: Annotated[
        int, typer.Option(min=1, help="Report every key with more than one in so many of its topic's keys.")
    ] = 20,
    disk_gib: Annotated[
        float | None,
        typer.Option(min=0, help="Room for the log, for the projection. [default: what the disk has]"),
    ] = None,
    split_mib: Annotated[int, typer.Option(min=1, help="Log read by one task, in MiB.")] = 128,
    as_json: Json = False,
) -> None:
    """Traffic, sizes, delays, tags, hot keys, lag of consumer groups, and how long the disk will do."""
    from penstock.cli.output import write_json
    from penstock.spark.jobs.stats import stats as run

    disk_bytes = None if disk_gib is None else round(disk_gib * (1 << 30))
    with job_session("stats", master, conf, shown=not as_json, path=path) as (spark, progress):
        result = run(
            spark,
            path,
            hot_keys=hot_keys,
            disk_bytes=disk_bytes,
            split_bytes=split_mib << 20,
            progress=progress,
        )
    if html is not None:
        from penstock.spark.jobs.report import write_report

        write_report(result, html)
    if as_json:
        write_json(result.as_dict())
    else:
        _print(result)
        if html is not None:
            print(f"the page is {html}")


def _print(result: StatsResult) -> None:
    from penstock.cli.output import print_facts, print_table, size_text

    plan = result.retention
    messages = result.records - result.fillers
    facts = {"messages": f"{messages} of {len(result.topics)} topics, {size_text(result.bytes)}"}
    if plan is not None:
        facts["a day"] = (
            f"{size_text(round(plan.bytes_per_day))} (from the last {plan.window_hours} h of traffic)"
        )
        facts["disk"] = (
            "unknown"
            if plan.days_until_full is None
            else f"full in {plan.days_until_full:.1f} days; {plan.days_held:.1f} days of messages fit"
        )
    print_facts(result.path, facts)
    print_table(
        "topics",
        ["topic", "queues", "messages", "bytes", "size p50, p99", "delay p50, p99"],
        [
            [
                topic.topic,
                topic.queues,
                topic.rows,
                size_text(topic.bytes),
                ", ".join(size_text(round(topic.sizes.quantiles[name])) for name in ("p50", "p99")),
                ", ".join(f"{topic.delays_ms.quantiles[name]:.0f} ms" for name in ("p50", "p99")),
            ]
            for topic in result.topics
        ],
    )
    for name, column in (("tags", "tag"), ("hot keys", "key")):
        rows = [
            [topic.topic, entry.item, entry.rows, f"{entry.share:.1%}"]
            for topic in result.topics
            for entry in (topic.tags if name == "tags" else topic.hot_keys)[:5]
        ]
        if rows:
            print_table(name, ["topic", column, "messages", "share"], rows)
    if result.lag:
        print_table(
            "consumer groups",
            ["group", "topic", "queue", "committed", "end", "behind", "seconds", "lost"],
            [
                [
                    lag.group,
                    lag.topic,
                    lag.queue_id,
                    lag.committed,
                    lag.max_offset,
                    lag.offsets,
                    "?" if lag.milliseconds is None else f"{lag.milliseconds / 1000:.1f}",
                    lag.lost or "",
                ]
                for lag in result.lag
            ],
        )
