"""A path or a URI, and the storage behind it in this process."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from penstock.errors import StoreError, UsageError
from penstock.files.disk import DiskStorage
from penstock.files.storage import Storage
from penstock.spark.options import BROKERS

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
_LOCAL_URI = re.compile(r"^file:(?://(?:localhost)?(?=/))?(?=/)", re.IGNORECASE)
_GLOB = re.compile(r"[*?\[]")
# Hadoop's names for what pyarrow calls s3.
_SAME = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
KNOWN = "file, s3, gs, hdfs, viewfs, abfs, abfss"
GS_RETRY_SECONDS = 20
_HADOOP = (
    "pyarrow reads HDFS through Hadoop's own client: install Hadoop, and set JAVA_HOME, HADOOP_HOME (or"
    " ARROW_LIBHDFS_DIR, where libhdfs.so is) and CLASSPATH (`hadoop classpath --glob`), here and on workers"
)
_DRIVERS = {"hdfs": _HADOOP, "viewfs": _HADOOP}
# By process: a client of an object store has threads, which a fork does not copy.
_storages: dict[tuple[int, str], Storage] = {}


@dataclass(frozen=True)
class Location:
    """A place in a storage: ``path`` as the storage names it, ``base`` the URI that opens the storage.

    ``base`` is empty for the machine's own file systems. It can hold credentials: it is pickled to the
    workers, and ``str()`` leaves it out.
    """

    path: str
    scheme: str = ""
    base: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.path}" if self.scheme else self.path

    def __repr__(self) -> str:
        return f"Location({str(self)!r})"

    @property
    def is_local(self) -> bool:
        return not self.scheme

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def parent(self) -> Location:
        return Location(str(PurePosixPath(self.path).parent), self.scheme, self.base)

    def child(self, name: str) -> Location:
        return Location(str(PurePosixPath(self.path) / name), self.scheme, self.base)

    @property
    def is_glob(self) -> bool:
        return _GLOB.search(self.path) is not None

    @property
    def storage(self) -> Storage:
        """The storage of this process, opened once."""
        key = (os.getpid(), self.base)
        if key not in _storages:
            _storages[key] = self._open()
        return _storages[key]

    def _open(self) -> Storage:
        if self.is_local:
            return DiskStorage()
        filesystem = open_filesystem(self)
        from penstock.spark.arrowstorage import ArrowStorage

        return ArrowStorage(filesystem)

    def glob(self) -> Iterator[tuple[Location, bool]]:
        """What matches the path, in order, and whether it is a folder. Only matching folders are listed."""
        parts = PurePosixPath(self.path).parts
        first = next(number for number, part in enumerate(parts) if _GLOB.search(part))
        yield from self._match(
            Location(str(PurePosixPath(*parts[:first])), self.scheme, self.base), parts[first:]
        )

    def _match(self, folder: Location, parts: tuple[str, ...]) -> Iterator[tuple[Location, bool]]:
        try:
            entries = self.storage.listdir(folder.path)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            hidden = entry.name.startswith(".") and not parts[0].startswith(".")
            if hidden or not fnmatchcase(entry.name, parts[0]):
                continue
            if len(parts) == 1:
                yield folder.child(entry.name), entry.is_dir
            elif entry.is_dir:
                yield from self._match(folder.child(entry.name), parts[1:])


def parse_location(text: str) -> Location:
    """What a path or URI names. Relative paths start at the working directory, once, here on the driver.

    Raises UsageError for brokers: whoever can ask those does not come here.
    """
    if text.startswith(BROKERS):
        raise UsageError(
            f"{text} names brokers, and this works on the files of a store",
            hint="give the broker's store directory (`penstock up` prints it); the messages of brokers that"
            " run are read by penstock spark export, penstock spark replay and penstock sql",
        )
    if local := _LOCAL_URI.match(text):
        return Location(unquote(text[local.end() :]))
    found = _SCHEME.match(text)
    if found is None:
        return Location(str(Path(text).expanduser().absolute()))
    given = found.group(1).lower()
    scheme = _SAME.get(given, given)
    uri = f"{scheme}{text[len(given) :]}"
    # Parted by hand: a glob's brackets are no part of any URI.
    rest, _, query = uri[len(scheme) + 3 :].partition("?")
    host, _, path = rest.partition("/")
    # The storage is opened by what stays when the path moves: host, user and query.
    base = f"{scheme}://{host}" + (f"?{query}" if query else "")
    return Location(_path_in(scheme, host, unquote(path).strip("/")), scheme, base)


def _path_in(scheme: str, host: str, path: str) -> str:
    """The path as the storage names it, with the bucket where there is one."""
    if scheme in ("hdfs", "viewfs"):
        return f"/{path}"
    bucket = host.partition("@")[0] if scheme.startswith("abfs") else host.rpartition("@")[2]
    return f"{bucket}/{path}" if path else bucket


def open_filesystem(location: Location) -> Any:
    """The file system of ``pyarrow.fs`` behind a place. Raises StoreError that says what is missing."""
    try:
        import pyarrow.fs as arrow_fs
        from pyarrow import ArrowException
    except ImportError as error:
        raise UsageError(
            f"{location.scheme}:// needs pyarrow: {error}", hint="pip install 'penstock[spark]'"
        ) from error
    if location.is_local:
        return arrow_fs.LocalFileSystem()
    try:
        return arrow_fs.FileSystem.from_uri(_bounded(location.scheme, location.base))[0]
    except (OSError, ValueError, ArrowException) as error:
        # Only the first line: what follows is every place where a library was looked for.
        found = _without_secrets(str(error).partition("\n")[0], location.base)
        hint = _DRIVERS.get(
            location.scheme,
            f"pyarrow.fs knows {KNOWN}; options such as endpoint_override go into the URI's query",
        )
        raise StoreError(f"{location.scheme}:// cannot be opened: {found}", hint=hint) from error


def hint_for(location: Location) -> str:
    """What to check when a file system that was opened does not answer, or refuses."""
    if location.is_local:
        return "check the permissions"
    if location.scheme == "gs":
        return (
            "log in (`gcloud auth application-default login`, or GOOGLE_APPLICATION_CREDENTIALS), or write"
            " gs://anonymous@bucket/… for a public bucket"
        )
    return "check credentials, region and endpoint_override, as pyarrow.fs takes them in the URI's query"


def _bounded(scheme: str, base: str) -> str:
    """The client of Google's store tries for a quarter of an hour unless it is told otherwise."""
    if scheme != "gs" or "retry_limit_seconds" in base:
        return base
    return f"{base}{'&' if '?' in base else '?'}retry_limit_seconds={GS_RETRY_SECONDS}"


def _without_secrets(text: str, base: str) -> str:
    """``text`` without the user part and the query of the URI, in case an error repeats them."""
    parts = urlsplit(base)
    for secret in (base, parts.query, parts.netloc.rpartition("@")[0]):
        if secret:
            text = text.replace(secret, "…")
    return text
