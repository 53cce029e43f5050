"""A real broker for tests: :class:`RunningBroker`, or the pytest fixture ``penstock_broker``.

The fixtures come with the package: no import, no conftest.

    def test_an_order_is_announced(penstock_broker):
        with Producer(namesrv=penstock_broker.namesrv) as producer:
            ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.broker import RunningBroker

__all__ = ["RunningBroker"]


def __getattr__(name: str) -> Any:
    # pytest loads the plugin beside this module into every run: a broker is only imported when it is wanted.
    if name == "RunningBroker":
        from penstock.testing.broker import RunningBroker

        return RunningBroker
    raise AttributeError(name)
