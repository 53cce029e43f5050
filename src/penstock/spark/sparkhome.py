"""What makes a Spark session start sooner, prepared once and kept in a cache directory.

Two things, in a folder per combination of Java, PySpark and its jar files:

``home``
    A ``SPARK_HOME`` of links into the installed PySpark, but with an empty ``python/lib``. Spark puts the zip
    files it finds there at the front of every Python worker's path, and Python keeps no bytecode for what it
    imports from a zip: each worker would compile PySpark anew. Without them they import what is installed.

``classes.jsa``
    Java's class-data-sharing archive: the classes a session loads, parsed and checked. The first process that
    finds none writes one when it ends, after some queries of the kinds that people ask, so that it serves the
    next process whatever this one did.

Everything here can be deleted at any time; it is made again. A new Java, PySpark or set of jars gets a new
folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from pathlib import Path

from penstock.spark.java import Java

STALE_SECONDS = 3600.0
LOGGING = """\
# Written by penstock: warnings only, and not the ones every start prints.
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = error
"""


def cache_directory() -> Path:
    """``PENSTOCK_CACHE``, else ``penstock`` in the user's cache directory."""
    if told := os.environ.get("PENSTOCK_CACHE"):
        return Path(told)
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "penstock"


class SparkHome:
    """The prepared folder for one installed PySpark on one Java."""

    def __init__(self, installed: Path, version: str, java: Java, *, cache: Path | None = None) -> None:
        self.installed = installed
        self._jars = sorted(
            (entry.name, entry.stat().st_size, entry.stat().st_mtime_ns)
            for entry in os.scandir(installed / "jars")
        )
        told = repr((java.version, str(Path(java.executable).resolve()), version, str(installed), self._jars))
        key = hashlib.sha256(told.encode()).hexdigest()[:12]
        self.folder = (cache or cache_directory()) / "spark" / f"{version}-java{java.major}-{key}"

    @property
    def path(self) -> Path:
        """What ``SPARK_HOME`` is to be."""
        return self.folder / "home"

    @property
    def archive(self) -> Path:
        """The class archive, whether or not it is there yet."""
        return self.folder / "classes.jsa"

    @property
    def logging(self) -> Path:
        """Log4j settings that print warnings and errors, without those of every start."""
        return self.folder / "log4j2.properties"

    def prepare(self) -> None:
        """Make the links. Any number of processes may do it at once."""
        if self.logging.exists() and self.path.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / f"home.{os.getpid()}"
        shutil.rmtree(draft, ignore_errors=True)
        (draft / "python" / "lib").mkdir(parents=True)
        for entry in os.scandir(self.installed):
            # Only what Spark's scripts look for; the Python package is imported from where it is installed.
            if entry.name in ("bin", "jars", "sbin", "conf", "data", "licenses", "RELEASE"):
                (draft / entry.name).symlink_to(entry.path)
        try:
            draft.rename(self.path)
        except OSError:
            if not self.path.exists():
                raise
            shutil.rmtree(draft)
        own = self.folder / f"log4j2.{os.getpid()}"
        own.write_text(LOGGING)
        own.rename(self.logging)

    @property
    def takes_archive(self) -> bool:
        """False when a folder with files in it (Spark's ``conf``) is on the class path: Java refuses then."""
        return not ("SPARK_CONF_DIR" in os.environ or (self.path / "conf").exists())

    def archive_draft(self) -> Path:
        """Where this process lets Java write the archive. Sweeps what killed processes left."""
        for left in self.folder.glob("classes.*.draft"):
            if time.time() - left.stat().st_mtime > STALE_SECONDS:
                left.unlink(missing_ok=True)
        return self.folder / f"classes.{os.getpid()}.draft"

    def keep_archive(self, draft: Path) -> bool:
        """Put a finished draft in its place; False when Java wrote none."""
        if not draft.exists():
            return False
        draft.replace(self.archive)
        return True
