"""A broker lives within the descriptors that it gets."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
soft, hard, given = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from penstock.cli.up import within_descriptors
from penstock.config import BrokerConfig, StoreConfig
config = BrokerConfig(store=StoreConfig(max_open_files=given or 512))
found = within_descriptors(config, files_given=bool(given))
print(found.store.max_open_files, found.max_connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "given", "files", "connections"),
    [
        (256, 256, 0, 64, 64),
        (1024, 4096, 0, 1536, 1536),
        (1024, 10_000, 0, 4488, 4488),
        (1024, 10_000, 600, 600, 8376),
        (1024, 4096, 4000, 4000, 1024),
    ],
)
def test_files_and_connections_share_what_the_system_allows(
    soft: int, hard: int, given: int, files: int, connections: int
) -> None:
    command = [sys.executable, "-c", PROGRAM, str(soft), str(hard), str(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(files), str(connections), str(hard)]


@pytest.mark.parametrize(
    ("limit", "given", "level"),
    [(4096, True, "WARNING"), (4096, False, "INFO"), (1024, False, "WARNING")],
)
def test_fewer_connections_than_configured_are_told(
    limit: int, given: bool, level: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from penstock.cli.up import within_descriptors
    from penstock.config import BrokerConfig

    caplog.set_level("INFO")
    monkeypatch.setattr("penstock.files.filecache.raise_descriptor_limit", lambda wanted: limit)
    found = within_descriptors(BrokerConfig(), files_given=False, connections_given=given)
    [told] = caplog.records
    assert told.levelname == level
    assert f"at most {found.max_connections} connections instead of 20000" in told.getMessage()


@pytest.mark.parametrize("limit", [1_000_000, -1])
def test_nothing_is_cut_where_there_is_enough(
    limit: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from penstock.cli.up import MOST_OPEN_FILES, within_descriptors
    from penstock.config import BrokerConfig

    monkeypatch.setattr("penstock.files.filecache.raise_descriptor_limit", lambda wanted: limit)
    found = within_descriptors(BrokerConfig(), files_given=False)
    assert (found.store.max_open_files, found.max_connections) == (MOST_OPEN_FILES, 20_000)
    assert caplog.messages == []
