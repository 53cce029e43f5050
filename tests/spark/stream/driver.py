"""A streaming application to be killed: ``driver.py STORE CHECKPOINT OUT [now]``.

Each batch becomes a file of numbers under OUT. It says on standard output what it is about to do, so that
whoever runs it can kill it there: ``begin N`` before a batch is read, ``wrote N`` when its file is there and
Spark does not know it yet.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark import session, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(store: str, checkpoint: str, out: str, *rest: str) -> None:
    spark = session(
        "local[2]",
        app_name="killed",
        config={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", "spark.ui.enabled": "false"},
    )

    def keep(frame: DataFrame, batch: int) -> None:
        print("begin", batch, flush=True)
        rows = sorted([r.queueId, r.queueOffset, int(bytes(r.body).rstrip(b"."))] for r in frame.collect())
        file = Path(out) / f"{batch:06d}.json"
        if file.exists() and json.loads(file.read_text()) != rows:
            raise AssertionError(f"batch {batch} has other rows than the first time")
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps(rows))
        draft.rename(file)
        print("wrote", batch, flush=True)

    frame = stream(
        spark,
        store,
        startingOffsets="latest",
        maxOffsetsPerTrigger=200,
        columns=["queueId", "queueOffset", "body"],
    )
    print("loaded", flush=True)
    sys.stdin.readline()
    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
    query = (writer.trigger(availableNow=True) if rest else writer).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
