"""A file system that cannot be used says what is missing, and does not keep anybody waiting."""

from __future__ import annotations

import pytest

from penstock.errors import StoreError
from penstock.spark.location import GS_RETRY_SECONDS, _bounded, open_filesystem, parse_location
from penstock.spark.places import open_places


@pytest.mark.parametrize("scheme", ["hdfs", "viewfs"])
def test_hdfs_without_hadoop_says_what_to_install(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR", "CLASSPATH"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StoreError) as caught:
        open_places(f"{scheme}://namenode:8020/store")
    assert f"{scheme}:// cannot be opened" in str(caught.value)
    assert "CLASSPATH" in caught.value.hint and "HADOOP_HOME" in caught.value.hint
    assert "\n" not in str(caught.value)


def test_a_scheme_that_pyarrow_does_not_know_is_named_with_those_it_knows() -> None:
    with pytest.raises(StoreError, match="ftp:// cannot be opened") as caught:
        open_places("ftp://user:secret@host/store")
    assert "s3" in caught.value.hint and "secret" not in str(caught.value)


def test_a_google_bucket_that_does_not_answer_is_an_error_that_says_how_to_log_in() -> None:
    with pytest.raises(StoreError, match="gs://bucket/store") as caught:
        open_places(
            "gs://anonymous@bucket/store?endpoint_override=127.0.0.1:1&scheme=http&retry_limit_seconds=1"
        )
    assert "gcloud auth" in caught.value.hint


@pytest.mark.parametrize(
    ("given", "opened"),
    [
        ("gs://bucket", f"gs://bucket?retry_limit_seconds={GS_RETRY_SECONDS}"),
        ("gs://b?scheme=http", f"gs://b?scheme=http&retry_limit_seconds={GS_RETRY_SECONDS}"),
        ("gs://b?retry_limit_seconds=600", "gs://b?retry_limit_seconds=600"),
    ],
)
def test_google_is_not_waited_for_longer_than_was_asked(given: str, opened: str) -> None:
    assert _bounded("gs", given) == opened
    assert open_filesystem(parse_location(f"{given.replace('gs://', 'gs://anonymous@')}")) is not None


def test_other_schemes_are_opened_as_they_are_given() -> None:
    assert _bounded("s3", "s3://b?region=x") == "s3://b?region=x"
