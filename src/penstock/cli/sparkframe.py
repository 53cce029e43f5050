"""What every ``penstock spark`` command has in common: its options, a session, a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from penstock.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

StorePlace = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="Store directory, or a URI that every worker opens: s3://, hdfs://, …"
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where Spark runs: local[2], spark://host:7077, yarn, k8s://…  [default: local[*]]",
    ),
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark's. Repeatable.")
]
Brokers = Annotated[
    str | None,
    typer.Option("--namesrv", metavar="HOST:PORT", help="Brokers that run, by their name server."),
]
Json = Annotated[bool, typer.Option("--json", help="For programs.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and write nothing.")]


def brokers_or(namesrv: str | None, *arguments: str | None) -> tuple[str, ...]:
    """The arguments of a command, --namesrv in the place of the first one, a path. Raises UsageError.

    Brokers are written as a path: ``namesrv://host:port``.
    """
    given = [argument for argument in arguments if argument is not None]
    if namesrv is not None:
        given.insert(0, f"namesrv://{namesrv}")
    if len(given) != len(arguments):
        raise UsageError(
            "too few arguments" if len(given) < len(arguments) else "a path and --namesrv name two places",
            hint="give the path of a store, or --namesrv host:port instead of it",
        )
    return tuple(given)


def look_at(path: str, *, brokers: bool) -> None:
    """That there is something to read. ``brokers``: these may be named too, and are asked later."""
    from penstock.spark.options import BROKERS
    from penstock.spark.places import open_places

    if not (brokers and path.startswith(BROKERS)):
        open_places(path)


@contextmanager
def spark_session(master: str | None, conf: list[str] | None = None, *, name: str) -> Iterator[SparkSession]:
    """A session for one command, stopped at its end. Says on a terminal that it starts: it takes seconds."""
    from penstock.spark.session import session

    with _status("starting Spark"):
        spark = session(master, app_name=f"penstock {name}", config=settings_of("--conf", conf or []))
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def job_session(
    name: str,
    master: str | None,
    conf: list[str] | None,
    *,
    shown: bool,
    path: str | None = None,
    brokers: bool = False,
) -> Iterator[tuple[SparkSession, Callable[[int, int], None]]]:
    """A session for one job, and what to tell its progress to; ``shown``: as a bar on a terminal.

    Starting Spark takes long: that there is something to read at ``path`` is looked at before. Without
    ``brokers`` that has to be files. Raises UsageError and NotAStore.
    """
    if path is not None:
        look_at(path, brokers=brokers)
    with spark_session(master, conf, name=name) as spark, task_bar(name, shown=shown) as progress:
        yield spark, progress


def written_text(result: Written) -> str:
    """Where a job has written, or would, and how long that took."""
    verb = "would be written" if result.dry_run else "written"
    return f"{verb} to {result.target} in {result.seconds:.1f} s"


class Written(Protocol):
    """What jobs that write messages say of it."""

    @property
    def dry_run(self) -> bool: ...
    @property
    def target(self) -> str: ...
    @property
    def seconds(self) -> float: ...


@contextmanager
def task_bar(what: str, *, shown: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr. The callback takes how much is done and how much there is, in whatever is counted."""
    if not (shown and sys.stderr.isatty()):
        yield lambda done, whole: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn(what),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(what, total=None)
        yield lambda done, whole: bar.update(task, completed=done, total=whole)


@contextmanager
def _status(what: str) -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def settings_of(option: str, pairs: list[str]) -> dict[str, str]:
    """The NAME=VALUE pairs of a repeated option."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise UsageError(f"{option} {pair!r} is no setting", hint=f"as in {option} name=value")
        settings[name] = value
    return settings
