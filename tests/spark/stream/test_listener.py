"""The listener makes a report of each progress, and says so when it can't."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock.clock import ManualClock
from penstock.spark.lag import LagReport
from penstock.spark.listener import LagListener
from penstock.spark.offsets import StreamOffset
from penstock.store.readonly import ReadOnlyStore
from spark.stream.stores import fill


def progress(end: StreamOffset, latest: StreamOffset, **more: Any) -> Any:
    source = SimpleNamespace(
        startOffset=None, endOffset=json.dumps(end.to_json()), latestOffset=json.dumps(latest.to_json())
    )
    foreign = SimpleNamespace(startOffset="3", endOffset='{"t":{"0":4}}', latestOffset="not json")
    return SimpleNamespace(id="q1", name="n", batchId=3, sources=[foreign, source], **more)


def test_report_has_exact_bytes_and_seconds_of_the_store(tmp_path: Path) -> None:
    fill(tmp_path, range(20))
    with ReadOnlyStore(tmp_path) as store:
        left = list(store.get("t", 1, 4, 32).messages)
    clock = ManualClock(left[0].store_timestamp + 2500)
    seen: list[LagReport] = []
    listener = LagListener(seen.append, clock=clock)
    event = progress(
        StreamOffset({("t", 0): 10, ("t", 1): 4}),
        StreamOffset({("t", 0): 10, ("t", 1): 10}, path=str(tmp_path)),
    )
    listener.onQueryProgress(SimpleNamespace(progress=event))  # type: ignore[arg-type]
    (report,) = seen
    assert listener.report("q1") is report
    assert (report.offsets, report.bytes, report.seconds) == (6, sum(m.size for m in left), 2.5)
    assert report.as_dict()["queues"][0] == {
        "topic": "t",
        "queueId": 0,
        "offset": 10,
        "latest": 10,
        "offsets": 0,
        "bytes": 0,
        "seconds": 0.0,
    }


def test_store_that_the_driver_does_not_see_leaves_offsets_and_a_reason() -> None:
    listener = LagListener()
    event = progress(StreamOffset({("t", 0): 5}), StreamOffset({("t", 0): 9}, path="/nowhere/store"))
    report = listener.measure(event)
    assert report is not None
    assert (report.offsets, report.bytes, report.seconds) == (4, None, None)
    assert report.fault is not None and "/nowhere" in report.fault


def test_lost_ranges_add_up_over_batches(tmp_path: Path) -> None:
    fill(tmp_path, range(20))
    listener = LagListener()
    latest = StreamOffset({("t", 0): 10}, path=str(tmp_path))
    for lost in ((("t", 0, 2, 4),), (), (("t", 0, 4, 6),)):
        event = progress(StreamOffset({("t", 0): 10}, lost=lost), latest)
        listener.onQueryProgress(SimpleNamespace(progress=event))  # type: ignore[arg-type]
    assert listener.lost("q1") == (("t", 0, 2, 6),)
    assert listener.lost("other") == ()


def test_query_of_other_sources_has_no_report() -> None:
    event = SimpleNamespace(
        id="q2", name=None, batchId=0, sources=[SimpleNamespace(endOffset=None, latestOffset="7")]
    )
    listener = LagListener()
    assert listener.measure(event) is None
    listener.onQueryProgress(SimpleNamespace(progress=event))  # type: ignore[arg-type]
    assert listener.report("q2") is None
