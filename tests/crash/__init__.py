"""Power cuts and kills: what was acked is there afterwards."""

import pytest

pytest.register_assert_rewrite("crash.ledger", "crash.workload", "crash.killed")
