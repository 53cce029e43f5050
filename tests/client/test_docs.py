"""What docs/client.md shows works when it is pasted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from penstock.testing import RunningBroker

ROOT = Path(__file__).parent.parent.parent


def test_the_examples_work_when_pasted(penstock_broker: RunningBroker) -> None:
    text = (ROOT / "docs" / "client.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    whole = [block for block in blocks if "import" in block]
    assert len(whole) == 2
    shown = ""
    for block in whole:
        done = subprocess.run(
            [sys.executable, "-"],
            input=block,
            env={"PYTHONPATH": str(ROOT / "src"), "NAMESRV_ADDR": penstock_broker.namesrv},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        shown += done.stdout
    assert "SEND_OK" in shown
    assert shown.count("b'two espressos'") == 2
    assert {"b'a tea'", "b'a cake'", "b'a pie'"} <= set(shown.splitlines())
