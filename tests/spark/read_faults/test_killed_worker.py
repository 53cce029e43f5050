"""A Python worker killed in the middle of its task: the task runs again, and nothing is doubled or lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark.read_faults.reading import stored

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

# A session of its own: in the shared one a task that fails fails its query. Local masters retry when told so.
# It prepares nothing for later ones, which would take longer than the test.
SCRIPT = """
import json, os, signal, sys
from pathlib import Path

from penstock.spark.reader import BatchReader
from penstock.spark.session import session
from penstock.spark.source import RocketMQSource

store, marks = sys.argv[1:]


class KilledReader(BatchReader):
    def read(self, partition):
        for number, batch in enumerate(super().read(partition)):
            yield batch
            if number == 1:  # rows are on their way: die once in each task that comes so far
                mark = Path(marks, str(partition.split.log.begin))
                if not mark.exists():
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)


class KilledSource(RocketMQSource):
    def reader(self, schema):
        whole = super().reader(schema)
        return KilledReader(whole._options, whole._columns, whole._schema)


quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
spark = session("local[2,3]", config=quick, cache=False)
spark.dataSource.register(KilledSource)
options = {"splitBytes": "128k", "maxBatchRows": "50"}
rows = spark.read.format("rocketmq").options(**options).load(store).select("topic", "queueId", "queueOffset")
found = sorted(map(list, rows.collect()))
print(json.dumps([found, len(list(Path(marks).iterdir()))]))
"""


def test_killed_worker_changes_nothing_of_the_result(store: Path, tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(SCRIPT)
    marks = tmp_path / "marks"
    marks.mkdir()
    source = Path(__file__).parents[3] / "src"
    done = subprocess.run(
        [sys.executable, str(tmp_path / "killed.py"), str(store), str(marks)],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found, killed = json.loads(done.stdout.splitlines()[-1])
    assert killed >= 2
    assert found == sorted([row.topic, row.queue, row.offset] for row in stored(store))
