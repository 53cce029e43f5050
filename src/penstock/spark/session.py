"""A SparkSession that is set up right: interpreter, Arrow, start-up time."""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
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
# How long the end of the process may wait for Java to write the class archive.
ARCHIVE_SECONDS = 120.0


def session(
    master: str | None = None,
    *,
    app_name: str = "penstock",
    config: Mapping[str, str | int | bool] | None = None,
    cache: bool = True,
) -> SparkSession:
    """The running SparkSession, or a new one.

    ``master`` is Spark's (``local[2]``, ``spark://host:7077``, ``yarn``, ``k8s://…``); without it a master set by
    ``spark-submit`` holds, else ``local[*]``. ``config`` has the last word over everything set here:

    - Python workers run this interpreter, unless ``PYSPARK_PYTHON`` names another.
    - Arrow is on; on ``local`` masters the web page is off and a shuffle has as many partitions as there are cores.
    - ``cache``: Spark starts from a prepared home (:mod:`penstock.spark.sparkhome`), unless ``SPARK_HOME`` is set.

    Raises SparkUnavailable, with what to install, when PySpark, pyarrow or a Java of 17 or newer is missing.
    """
    require_packages()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    started = SparkContext._gateway is not None  # settings of the Java process come too late then
    settings: dict[str, str] = {
        "spark.app.name": app_name,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is not None:
        settings["spark.master"] = master
    elif not submitted:
        settings["spark.master"] = os.environ.get("MASTER", "local[*]")
    if settings.get("spark.master", "").startswith("local"):
        settings |= _local_settings(settings["spark.master"])
    given = {name: _text(value) for name, value in (config or {}).items()}
    settings |= given
    home = None
    if not started and not submitted:
        home = _use_home(settings, cache)
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if home is not None and "ArchiveClassesAtExit" in settings.get(DRIVER_OPTIONS, ""):
        atexit.register(_keep_archive, home, home.archive_draft())
    return spark


def require_packages() -> None:
    """Raise SparkUnavailable unless PySpark and pyarrow can be imported."""
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise SparkUnavailable(f"{' and '.join(missing)} not installed", hint=EXTRA_HINT)


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _local_settings(master: str) -> dict[str, str]:
    inside = master.removeprefix("local").strip("[]").split(",")[0]
    if master.startswith("local-cluster"):
        return {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
    cores = int(inside) if inside.isdigit() else len(os.sched_getaffinity(0)) if inside == "*" else 1
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": str(max(cores, 1)),
    }


def _use_home(settings: dict[str, str], cache: bool) -> SparkHome | None:
    """Point Spark at the prepared home and add Java's options; None when the user's own SPARK_HOME holds."""
    import pyspark

    java = find_java()
    if not cache or ("SPARK_HOME" in os.environ and os.environ["SPARK_HOME"] != _ours.get("home")):
        return None
    home = SparkHome(Path(pyspark.__file__).parent, pyspark.__version__, java)
    try:
        home.prepare()
    except OSError as error:
        log.warning("Spark starts slower: nothing can be kept in %s (%s)", home.folder, error)
        return None
    os.environ["SPARK_HOME"] = _ours["home"] = str(home.path)
    options = [f"-Dlog4j2.configurationFile=file:{home.logging}"]
    if home.takes_archive:
        # Sharing that does not fit is no error to Java: it goes on without, and says so only where nobody looks.
        options += ["-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]
        if home.archive.exists():
            options.append(f"-XX:SharedArchiveFile={home.archive}")
        else:
            options.append(f"-XX:ArchiveClassesAtExit={home.archive_draft()}")
    settings[DRIVER_OPTIONS] = " ".join([*options, settings.get(DRIVER_OPTIONS, "")]).strip()
    return home


# The home this process set, to tell it from one that the user set.
_ours: dict[str, str] = {}


def _keep_archive(home: SparkHome, draft: Path) -> None:
    """End Java before Python ends, so that the archive it writes can be put in its place."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None or process.stdin is None:
        return
    active = SparkContext._active_spark_context
    if active is not None:
        active.stop()
    gateway.shutdown()
    process.stdin.close()  # what Spark's Java process ends by
    try:
        process.wait(ARCHIVE_SECONDS)
    except subprocess.TimeoutExpired:
        log.warning("Java did not write %s in time; the next session tries again", home.archive)
        return
    home.keep_archive(draft)
