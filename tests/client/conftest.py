"""A broker for each test, and clients that react quickly."""

from __future__ import annotations

import pytest

from penstock.client import ClientSettings
from penstock.testing.plugin import penstock_broker, penstock_broker_factory

__all__ = ["penstock_broker", "penstock_broker_factory", "quick"]


@pytest.fixture
def quick() -> ClientSettings:
    """Settings for tests: what is periodic happens often."""
    return ClientSettings(
        rebalance_interval=1.0,
        rebalance_retry=0.05,
        missing_route_interval=0.05,
        route_interval=0.2,
        heartbeat_interval=1.0,
        commit_interval=0.1,
        pull_retry=0.05,
        suspend_queue=0.05,
        pull_suspend=2.0,
        send_timeout=20.0,
        call_timeout=10.0,
    )
