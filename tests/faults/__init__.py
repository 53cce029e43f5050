"""Faults that hurt real brokers, one test or more for each; ids as in the table of the project's faults."""

import pytest

pytest.register_assert_rewrite("faults.place")
