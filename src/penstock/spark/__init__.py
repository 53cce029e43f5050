"""Stores and messages on Apache Spark: ``pip install 'penstock[spark]'``.

    from penstock import spark as ps
    spark = ps.session("local[*]")
    ps.read(spark, "/data/store", topic="orders", since="2024-05-01").groupBy("tags").count().show()
    ps.stream(spark, "/data/store", topic="orders").writeStream.format("console").start()
    ps.write(df, "/data/store", topic="orders")

Importing this imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# Not on demand as the others: its module has the same name, and whoever imports that first would win.
from penstock.spark.session import session

if TYPE_CHECKING:
    from penstock.spark import jobs
    from penstock.spark.frames import read, stream, write
    from penstock.spark.listener import LagListener

__all__ = ["LagListener", "jobs", "read", "session", "stream", "write"]

_HOMES = {
    "LagListener": "penstock.spark.listener",
    "read": "penstock.spark.frames",
    "stream": "penstock.spark.frames",
    "write": "penstock.spark.frames",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "jobs":
        return import_module("penstock.spark.jobs")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
