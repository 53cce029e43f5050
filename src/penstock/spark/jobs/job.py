"""What the jobs have in common: work split into pieces, done in tasks, told as rows.

A piece (*split*) is any picklable value; a task takes one, works on files by itself and gives rows of a
manifest or partial sums. Messages do not pass through here: what stays in the task is three to four times
cheaper.
"""

from __future__ import annotations

import pickle
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from penstock import errors
from penstock.errors import PenstockError, StoreError

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]
"""Takes how much is done and how much there is."""

Work = Callable[[Item], Iterable[Any]]
"""What a task does with one split: gives tuples (or dicts, or record batches) of the result's columns.

A function of a module that workers can import, or a ``functools.partial`` of one.
"""

ROWS_PER_BATCH = 4096
POLL_SECONDS = 0.2


def no_progress(done: int, whole: int) -> None:
    """For callers that do not look."""


def parallelism(spark: SparkSession | None) -> int:
    """How many tasks run at a time; a guess on Spark Connect, which has no context to ask."""
    context = getattr(spark, "_sc", None)
    return max(1, int(context.defaultParallelism)) if context is not None else 2


def split_frame(
    spark: SparkSession, splits: Sequence[Item], work: Work[Item], schema: str | StructType
) -> DataFrame:
    """A DataFrame of what ``work`` gives, one task for each split. Nothing runs before an action.

    ``schema`` is DDL or a StructType. A task may run twice, also two attempts at once: what ``work``
    writes must bear that.
    """
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import DataType, StructType

    struct = schema if isinstance(schema, StructType) else DataType.fromDDL(schema)
    assert isinstance(struct, StructType)
    pieces = [pickle.dumps(split) for split in splits]
    # A range has as many partitions as it is told: exactly one number in each, and no shuffle.
    numbers = spark.range(0, len(pieces), 1, max(1, len(pieces)))
    return map_in_arrow(numbers, _Task(pieces, work, to_arrow_schema(struct)), struct)


def map_in_arrow(
    frame: DataFrame,
    function: Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]],
    schema: str | StructType,
) -> DataFrame:
    """``frame.mapInArrow`` without pandas, which Spark 4.3 demands there and does not use."""
    java = getattr(frame, "_jdf", None)
    if java is None:
        return frame.mapInArrow(function, schema)  # Spark Connect
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas import functions
    from pyspark.util import PythonEvalType

    made: Any = functions.vectorized_udf(  # type: ignore[attr-defined]
        function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    column = made(*[frame[name] for name in frame.columns])
    return DataFrame(java.mapInArrow(column._jc, False, None), frame.sparkSession)


def run_splits(
    spark: SparkSession,
    splits: Sequence[Item],
    work: Work[Item],
    schema: str | StructType,
    *,
    name: str = "penstock",
    progress: Progress | None = None,
) -> list[Row]:
    """The rows that ``work`` gives for the splits, in order of the splits. All of them are brought here.

    ``progress`` is told how many splits are done. An error of ours in a task is raised here as what it is.
    """
    if not splits:
        return []
    with watched(spark, name, progress, len(splits)), told_errors():
        return split_frame(spark, splits, work, schema).collect()


def run_each(
    spark: SparkSession,
    splits: Sequence[Item],
    work: Callable[[Item], Result],
    *,
    name: str = "penstock",
    progress: Progress | None = None,
) -> list[Result]:
    """What ``work`` makes of each split, in their order: one picklable value each, a task each.

    As ``run_splits``, but without a query: nothing to plan, to generate or to compile, which for a job of a
    second is most of what Spark itself costs.
    """
    if not splits:
        return []
    pieces = [pickle.dumps(split) for split in splits]
    context = getattr(spark, "_sc", None)
    with watched(spark, name, progress, len(pieces)), told_errors():
        if context is not None:
            made = context.parallelize(pieces, len(pieces)).mapPartitions(_Each(work)).collect()
        else:  # Spark Connect
            rows = split_frame(spark, pieces, _EachRow(work), "result binary").collect()
            made = [bytes(row["result"]) for row in rows]
    return [pickle.loads(result) for result in made]


class _Each:
    """The body of a task that has its splits by itself."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self.work = work

    def __call__(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            yield pickle.dumps(self.work(pickle.loads(piece)))


class _EachRow(_Each):
    """The same for a task that gives rows."""

    def __call__(self, piece: bytes) -> Iterator[tuple[bytes]]:  # type: ignore[override]
        for result in super().__call__(iter([piece])):
            yield (result,)


class _Task:
    """The body of a task: finds its split by number. Pickled by reference, its splits by value."""

    def __init__(self, pieces: list[bytes], work: Work[Any], schema: pyarrow.Schema) -> None:
        self.pieces = pieces
        self.work = work
        self.schema = schema

    def __call__(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _as_batches(self.work(pickle.loads(self.pieces[number])), self.schema)


def _as_batches(results: Iterable[Any], schema: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow

    rows: list[Any] = []
    for result in results:
        if isinstance(result, pyarrow.RecordBatch):
            yield result
            continue
        rows.append(result)
        if len(rows) == ROWS_PER_BATCH:
            yield _batch(rows, schema)
            rows = []
    if rows:
        yield _batch(rows, schema)


def _batch(rows: list[Any], schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    import pyarrow

    if isinstance(rows[0], dict):
        return pyarrow.RecordBatch.from_pylist(rows, schema)
    values = zip(*rows, strict=True)
    columns = [pyarrow.array(value, field.type) for value, field in zip(values, schema, strict=True)]
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


# -- errors ------------------------------------------------------------------------------------------

_OURS = re.compile(r"^penstock\.errors\.(\w+): (.*)$", re.MULTILINE)


@contextmanager
def told_errors() -> Iterator[None]:
    """Turn a failed Spark job whose cause is an error of ours into that error, without the traceback."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        found = _OURS.search(str(error))
        if found is None:
            raise
        kind = getattr(errors, found[1], StoreError)
        raised = kind.__new__(kind)
        PenstockError.__init__(raised, found[2])
        raise raised from error


# -- progress ----------------------------------------------------------------------------------------


@contextmanager
def watched(spark: SparkSession, name: str, progress: Progress | None, whole: int) -> Iterator[None]:
    """Tell ``progress`` how many tasks of the jobs inside are done, of ``whole``.

    On Spark Connect, which has no context to ask, it is told of begin and end only.
    """
    if progress is None:
        yield
        return
    progress(0, whole)
    context = getattr(spark, "_sc", None)
    if context is None:
        yield
        progress(whole, whole)
        return
    group = f"{name}-{uuid.uuid4().hex[:8]}"
    before = {key: context.getLocalProperty(key) for key in ("spark.jobGroup.id", "spark.job.description")}
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(context, group, progress, whole, ended), daemon=True)
    context.setJobGroup(group, name)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        for key, value in before.items():
            context.setLocalProperty(key, value)
    progress(whole, whole)


def _watch(context: Any, group: str, progress: Progress, whole: int, ended: threading.Event) -> None:
    tracker = context.statusTracker()
    told = 0
    while not ended.wait(POLL_SECONDS):
        done = 0
        for job in tracker.getJobIdsForGroup(group):
            information = tracker.getJobInfo(job)
            for stage in information.stageIds if information is not None else ():
                found = tracker.getStageInfo(stage)
                done += found.numCompletedTasks if found is not None else 0
        if told < min(done, whole):
            told = min(done, whole)
            progress(told, whole)
