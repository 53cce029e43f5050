"""Spark SQL over a store, or over brokers: every topic is a view, and all of them together are ``messages``.

Spark asks a source written in Python for all its columns, whatever the query needs. Here the query is planned
first, and the views are made anew with the columns that it uses: a query that looks at no body reads none.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from penstock.errors import UsageError
from penstock.spark.bounds import StoreBounds
from penstock.spark.options import BROKERS, ReadOptions
from penstock.spark.places import open_places
from penstock.spark.schema import NAMES, TYPES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALL = "messages"
"""The view of every topic, those of the system left out."""


def topics_of(
    path: str | os.PathLike[str] | Sequence[str], options: Mapping[str, str] | None = None
) -> list[str]:
    """Names of the topics with queues here, sorted. Segments without a store around them have none."""
    if isinstance(path, str) and path.startswith(BROKERS):
        return _topics_of_brokers(path, options)
    found: set[str] = set()
    for place in open_places(path):
        if place.has_queues:
            bounds = StoreBounds(place)
            try:
                found.update(topic for topic, _ in bounds.queues())
            finally:
                bounds.close()
    return sorted(found)


def _topics_of_brokers(path: str, options: Mapping[str, str] | None) -> list[str]:
    from penstock.spark.network.bounds import BrokerBounds
    from penstock.spark.network.planning import access_of

    return BrokerBounds(access_of(ReadOptions.parse({**(options or {}), "path": path}))).topic_names()


def sql(
    spark: SparkSession,
    path: str | os.PathLike[str] | Sequence[str],
    query: str,
    *,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The result of a query over the views of ``path``; ``options`` are those of the source.

    A topic whose name is no plain word is written in backquotes. The views are temporary ones of the session
    and stay after the call. Raises UsageError, with the views there are, for a table that there is not.
    """
    from pyspark.errors import AnalysisException

    topics = topics_of(path, options)
    # A store may have thousands of topics: views only for those whose names the query has somewhere.
    lowered = query.lower()
    views = {topic: topic for topic in topics if topic.lower() in lowered}
    _make_views(spark, path, views, NAMES, options)
    try:
        planned = spark.sql(query)
    except AnalysisException as error:
        if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            raise _unknown_table(error, topics) from None
        raise UsageError(_first_sentence(str(error)), hint=_catalogue(topics)) from error
    used = used_columns(planned)
    if used is None or len(used) == len(NAMES):
        return planned
    _make_views(spark, path, views, used or ["queueId"], options)
    return spark.sql(query)


def used_columns(frame: DataFrame) -> list[str] | None:
    """The columns of the source that a query needs, in the source's order. None when not known (Connect)."""
    java: Any = getattr(frame, "_jdf", None)
    if java is None:
        return None
    plan = java.queryExecution().optimizedPlan()
    used: set[str] = _names(plan.output())
    nodes = [plan]
    while nodes:
        node = nodes.pop()
        children = node.children()
        nodes += [children.apply(at) for at in range(children.size())]
        # A leaf would name everything that it has.
        if children.size():
            used |= _names(node.references().toSeq())
        inner = node.subqueries()
        nodes += [inner.apply(at) for at in range(inner.size())]
    return [name for name in NAMES if name in used]


def _names(attributes: Any) -> set[str]:
    return {attributes.apply(at).name() for at in range(attributes.size())}


def _make_views(
    spark: SparkSession,
    path: str | os.PathLike[str] | Sequence[str],
    views: Mapping[str, str],
    columns: Iterable[str],
    options: Mapping[str, str] | None,
) -> None:
    schema = ", ".join(f"{name} {TYPES[name]}" for name in columns)
    place = path if isinstance(path, str | os.PathLike) else json.dumps(list(path))
    reader = spark.read.format("rocketmq").schema(schema).options(**(options or {}))
    reader.load(os.fspath(place)).createOrReplaceTempView(ALL)
    for view, topic in views.items():
        reader = spark.read.format("rocketmq").schema(schema).options(**(options or {}))
        frame = reader.option("subscribe", topic).option("includeSystemTopics", "true").load(os.fspath(place))
        frame.createOrReplaceTempView(f"`{view.replace('`', '``')}`")


def _unknown_table(error: Any, topics: Sequence[str]) -> UsageError:
    given = error.getMessageParameters() or {}
    name = str(given.get("relationName", "")).strip("`")
    near = next(iter(get_close_matches(name, [ALL, *topics], 1)), None)
    message = f"there is no table {name!r}" + (f"; do you mean {quoted(near)}?" if near else "")
    return UsageError(message, hint=_catalogue(topics))


def _catalogue(topics: Sequence[str], most: int = 50) -> str:
    shown = [ALL, *(quoted(topic) for topic in topics[:most])]
    more = f" and {len(topics) - most} more" if len(topics) > most else ""
    return f"views: {', '.join(shown)}{more}; columns: {', '.join(NAMES)}"


def quoted(topic: str) -> str:
    """A topic as it is written in a query."""
    return topic if re.fullmatch(r"[A-Za-z_]\w*", topic) else f"`{topic}`"


def _first_sentence(text: str) -> str:
    """What Spark says, without the plan that it prints below."""
    return text.split("\n", 1)[0].split(" SQLSTATE:")[0].strip()
