"""A session from ``session()``: what is set, what is kept, and what it says when something is missing."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.errors import SparkUnavailable
from penstock.spark.java import Java, find_java
from penstock.spark.session import _local_settings, require_packages
from penstock.spark.sparkhome import SparkHome, cache_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def fake_java(folder: Path, version: str) -> Path:
    """A program named java that tells a version and does nothing else."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_a_session_runs_this_interpreter_with_arrow_and_finds_the_source(spark: SparkSession) -> None:
    assert spark.range(100).count() == 100
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_workers_import_pyspark_with_bytecode(spark: SparkSession) -> None:
    def where(rows: object) -> list[str]:
        import pyspark

        return [pyspark.__file__]

    (file,) = set(spark.sparkContext.parallelize([1], 1).mapPartitions(where).collect())
    assert ".zip" not in file


def test_a_second_call_gives_the_running_session(spark: SparkSession) -> None:
    from penstock.spark.session import session

    assert session().sparkContext is spark.sparkContext


def test_no_java_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("penstock.spark.java._brewed", lambda: None)
    with pytest.raises(SparkUnavailable, match=r"no Java on this machine.*openjdk-17-jre-headless"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(SparkUnavailable, match="there is no Java in it"):
        find_java()


@pytest.mark.parametrize(("version", "major"), [("1.8.0_372", 8), ("11.0.22", 11)])
def test_too_old_a_java_is_said_with_its_version(
    version: str, major: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert Java("java", version).major == major
    with pytest.raises(SparkUnavailable, match=rf"this is Java {version}, and Spark needs 17 or newer"):
        find_java()


def test_a_java_that_does_not_start_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = fake_java(tmp_path, "17")
    program.write_text("#!/bin/sh\necho 'cannot allocate memory' >&2\nexit 1\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailable, match="Java does not start: cannot allocate memory"):
        find_java()


def test_the_version_is_read_off_the_release_file_without_starting_java(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_java(tmp_path, "9")
    (tmp_path / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.2"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert (find_java().version, find_java().major) == ("21.0.2", 21)


def test_a_missing_extra_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SparkUnavailable, match=r"pyspark and pyarrow are not installed .*penstock\[spark\]"):
        require_packages()


def test_a_machine_that_does_not_know_localhost_gets_socket_files(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "spark.python.unix.domain.socket.enabled" not in _local_settings("local[2]")

    def unknown(*given: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert _local_settings("local[2]")["spark.python.unix.domain.socket.enabled"] == "true"


def test_a_command_without_java_ends_with_code_2_and_one_line(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "sql", str(tmp_path), "select 1"],
        env={**os.environ, "JAVA_HOME": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "there is no Java in it" in done.stderr
    assert "Traceback" not in done.stderr


def installed(folder: Path) -> Path:
    """Something like an installed PySpark."""
    for name in ("bin", "jars", "python/lib", "sql"):
        (folder / name).mkdir(parents=True)
    (folder / "jars" / "spark-core.jar").write_bytes(b"1")
    (folder / "python" / "lib" / "pyspark.zip").write_bytes(b"zip")
    return folder


def test_the_home_has_links_and_no_zip_files(tmp_path: Path) -> None:
    home = SparkHome(installed(tmp_path / "pyspark"), "4.3.0", Java("/j/bin/java", "17.0.1"), cache=tmp_path)
    home.prepare()
    home.prepare()
    assert (home.path / "jars" / "spark-core.jar").read_bytes() == b"1"
    assert list((home.path / "python" / "lib").iterdir()) == []
    assert not (home.path / "sql").exists()
    assert home.takes_archive
    (tmp_path / "pyspark" / "conf").mkdir()
    (home.path / "conf").symlink_to(tmp_path / "pyspark" / "conf")
    assert not home.takes_archive


def test_another_java_pyspark_or_jar_gets_a_home_of_its_own(tmp_path: Path) -> None:
    package, java = installed(tmp_path / "pyspark"), Java("/j/bin/java", "17.0.1")
    first = SparkHome(package, "4.3.0", java, cache=tmp_path).folder
    assert SparkHome(package, "4.3.0", java, cache=tmp_path).folder == first
    others = {
        SparkHome(package, "4.3.1", java, cache=tmp_path).folder,
        SparkHome(package, "4.3.0", Java("/j/bin/java", "17.0.2"), cache=tmp_path).folder,
    }
    (package / "jars" / "delta.jar").write_bytes(b"2")
    others.add(SparkHome(package, "4.3.0", java, cache=tmp_path).folder)
    assert len(others - {first}) == 3


def test_the_archive_appears_whole_and_what_killed_processes_left_is_swept(tmp_path: Path) -> None:
    home = SparkHome(installed(tmp_path / "pyspark"), "4.3.0", Java("/j/bin/java", "17.0.1"), cache=tmp_path)
    home.prepare()
    left = home.folder / "classes.1.draft"
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    draft = home.archive_draft()
    assert not left.exists()
    assert not home.keep_archive(draft)
    draft.write_bytes(b"classes")
    assert home.keep_archive(draft)
    assert home.archive.read_bytes() == b"classes"
    assert not draft.exists()


def test_the_cache_is_where_it_is_told_to_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "here"))
    assert cache_directory() == tmp_path / "here"
    monkeypatch.delenv("PENSTOCK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "penstock"
