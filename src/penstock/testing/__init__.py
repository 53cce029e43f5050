"""A real broker for tests: :class:`RunningBroker`, or the pytest fixture ``penstock_broker``.

The fixtures come with the package: no import, no conftest.

    def test_an_order_is_announced(penstock_broker):
        with Producer(namesrv=penstock_broker.namesrv) as producer:
            ...
"""

from penstock.testing.broker import RunningBroker

__all__ = ["RunningBroker"]
