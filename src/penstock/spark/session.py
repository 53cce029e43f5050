"""A SparkSession that is set up right: interpreter, Arrow, start-up time."""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import SparkUnavailable
from penstock.spark.java import find_java
from penstock.spark.sparkhome import SparkHome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
EXTRA_HINT = "pip install 'penstock[spark]', or from a clone: pip install '.[spark]'"
# Arrow checks every access to a vector twice, unless it is told that its readers look before they read, as
# Spark's do. (All columns, warm, a busy machine: 2.2 us a row in Java where it was 3.5; seen once.)
ARROW_OPTIONS = ("-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false")
# Java hands code to its thorough compiler four or more times later than by default: code of Spark that runs
# some thousand times took that more processor time than it saved; loops over rows get there in a blink.
# (To the first result 21 s of processor time for 24, a second verify 5.0 for 5.6; four sessions in turns.)
COMPILER_OPTIONS = (
    "-XX:Tier4InvocationThreshold=20000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=60000",
    "-XX:Tier4BackEdgeThreshold=160000",
)
# Spark's script asks a Java of its own for the command line of the real one. It lives too shortly for what
# pays later: 0.28 s of processor time in place of 0.34.
LAUNCHER_OPTIONS = "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
ARROW_SETTINGS = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # With a limit in bytes Spark measures the batch again after every row, which is a fifth of what writing
    # small messages costs. A limit in rows costs nothing; messages are 4 MiB at most, mostly far less. Each
    # batch costs 0.5 ms of processor time by itself: more rows would write faster, and take more memory.
    "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
}
# How long the end of the process may wait for Java to write the class archive.
ARCHIVE_SECONDS = 120.0
# The home this process set, to tell it from one that the user set.
_set_by_us: dict[str, str] = {}


def session(
    master: str | None = None,
    *,
    app_name: str = "penstock",
    config: Mapping[str, str | int | bool] | None = None,
    cache: bool = True,
) -> SparkSession:
    """The running SparkSession, or a new one.

    ``master`` is Spark's (``local[2]``, ``spark://host:7077``, ``yarn``, ``k8s://…``); without it the one
    that ``spark-submit`` or the variable ``MASTER`` set holds, else ``local[*]``. ``config`` has the last
    word over everything set here:

    - Python workers run this interpreter, unless ``PYSPARK_PYTHON`` names another.
    - Arrow is on, and rows go to Python two thousand at a time, however long they are (``ARROW_SETTINGS``).
    - On ``local`` masters the web page is off and a shuffle has one partition a core.
    - ``cache``: Spark starts from a prepared home (:mod:`penstock.spark.sparkhome`), unless ``SPARK_HOME`` is
      set.

    Raises SparkUnavailable, with what to install, when PySpark, pyarrow or a Java of 17 or newer is missing.
    """
    require_packages()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    settings = {"spark.app.name": app_name} | ARROW_SETTINGS
    if master is not None or not submitted:
        settings["spark.master"] = master or os.environ.get("MASTER") or "local[*]"
        settings |= _local_settings(settings["spark.master"])
    settings |= {name: _text(value) for name, value in (config or {}).items()}
    # What is set for a Java process that runs already comes too late, and is left as it is.
    if SparkContext._gateway is None and not submitted:
        _set_up_java(settings, cache)
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def require_packages() -> None:
    """Raise SparkUnavailable unless PySpark and pyarrow can be imported."""
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise SparkUnavailable(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed", hint=EXTRA_HINT
        )


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _local_settings(master: str) -> dict[str, str]:
    if not master.startswith("local"):
        return {}
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    if not _knows_localhost():
        # A bare root without /etc/hosts: Python and Java then talk through socket files instead.
        settings["spark.python.unix.domain.socket.enabled"] = "true"
    if master.startswith("local-cluster"):
        return settings
    told = master.removeprefix("local").strip("[]").split(",")[0] or "1"
    cores = int(told) if told.isdigit() else os.cpu_count() or 1
    return settings | {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": str(cores)}


def _knows_localhost() -> bool:
    try:
        socket.getaddrinfo("localhost", None)
    except socket.gaierror:
        return False
    return True


def _set_up_java(settings: dict[str, str], cache: bool) -> None:
    """Point Spark at the prepared home and add Java's options, unless the user's own SPARK_HOME holds."""
    import pyspark

    java = find_java()
    settings[DRIVER_OPTIONS] = " ".join(
        [*ARROW_OPTIONS, *COMPILER_OPTIONS, settings.get(DRIVER_OPTIONS, "")]
    ).strip()
    os.environ.setdefault("JAVA_HOME", str(Path(java.executable).resolve().parent.parent))
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", LAUNCHER_OPTIONS)
    if settings["spark.master"].startswith("local"):
        # Spark looks its host up by name before it reads a setting, and some machines do not know their own.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    theirs = os.environ.get("SPARK_HOME")
    if not cache or (theirs is not None and theirs != _set_by_us.get("SPARK_HOME")):
        return
    home = SparkHome(Path(pyspark.__file__).parent, pyspark.__version__, java)
    try:
        home.prepare()
    except OSError as error:
        log.warning("Spark starts slower: nothing can be kept in %s (%s)", home.folder, error)
        return
    os.environ["SPARK_HOME"] = _set_by_us["SPARK_HOME"] = str(home.path)
    options = [f"-Dlog4j2.configurationFile={home.logging.absolute().as_uri()}"]
    if home.takes_archive:
        # An archive that does not fit is no error to Java: it goes on without. It need not say so.
        options += ["-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]
        if home.archive.exists():
            options.append(f'"-XX:SharedArchiveFile={home.archive}"')
        elif settings["spark.master"].startswith("local"):  # a cluster is not to be asked for it
            draft = home.archive_draft()
            options.append(f'"-XX:ArchiveClassesAtExit={draft}"')
            atexit.register(_make_archive, home, draft)
    settings[DRIVER_OPTIONS] = " ".join([*options, settings.get(DRIVER_OPTIONS, "")]).strip()


def _make_archive(home: SparkHome, draft: Path) -> None:
    """Ask what people ask, then end Java before Python ends: the archive is the last it writes."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None or process.stdin is None or process.poll() is not None:
        return
    if sys.stderr.isatty():
        print("penstock: preparing faster starts of Spark, once", file=sys.stderr)
    try:
        spark = SparkSession.builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        _ask_the_usual(spark)
        spark.stop()
    except Exception as error:
        log.warning("Spark's start-up is prepared with less than usual: %s", error)
    process.stdin.close()  # what Spark's Java process ends by
    try:
        process.wait(ARCHIVE_SECONDS)
    except subprocess.TimeoutExpired:
        log.warning("Java did not write %s in time; the next session tries again", home.archive)
        return
    home.keep_archive(draft)


def _ask_the_usual(spark: SparkSession) -> None:
    """Queries that load the classes of most: SQL, shuffles, Parquet, JSON, Python in the task, streams."""
    from penstock.spark.jobs.job import map_in_arrow

    def same(batches: Iterable[Any]) -> Iterator[Any]:
        yield from batches

    with tempfile.TemporaryDirectory(prefix="penstock-archive-") as folder:
        rows = spark.range(100).selectExpr("id", "id % 3 as n", "'{\"a\":1}' as text", "now() as at")
        map_in_arrow(rows, same, rows.schema).write.parquet(f"{folder}/rows")
        rows = spark.read.parquet(f"{folder}/rows")
        rows.createOrReplaceTempView("penstock_archive")
        spark.sql(
            "select n, count(*), sum(id), max(at), approx_percentile(id, 0.5),"
            " from_json(any_value(text), 'a int') from penstock_archive where id > 5 group by n order by n"
        ).collect()
        spark.catalog.dropTempView("penstock_archive")
        rows.join(rows.groupBy("n").count(), "n").write.format("noop").mode("overwrite").save()
        stream = spark.readStream.schema(rows.schema).parquet(f"{folder}/rows")
        (
            stream.writeStream.format("noop")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
            .awaitTermination(60)
        )
