"""Everything an operator's tools ask a broker, put together (protocol 3.4 to 3.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.configadmin import ConfigAdmin
from penstock.broker.consumeradmin import ConsumerAdmin
from penstock.broker.groupadmin import GroupAdmin
from penstock.broker.offsetreset import OffsetReset
from penstock.broker.querying import Querying
from penstock.broker.rates import Rates
from penstock.broker.runtimeinfo import RuntimeInfo, counted_elsewhere
from penstock.broker.topicadmin import TopicAdmin
from penstock.remoting import Handler

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


class Admin:
    """The administration of one broker. Made with it, closed with it."""

    def __init__(self, broker: Broker) -> None:
        self.rates = Rates(broker.stats, more=lambda: counted_elsewhere(broker))
        self.runtime = RuntimeInfo(broker, self.rates)
        self._parts = (
            Querying(broker),
            TopicAdmin(broker, self.rates),
            GroupAdmin(broker),
            ConsumerAdmin(broker, self.rates),
            OffsetReset(broker),
            ConfigAdmin(broker),
            self.runtime,
        )

    def handlers(self) -> dict[int, Handler]:
        return {code: handler for part in self._parts for code, handler in part.handlers().items()}

    def close(self) -> None:
        self.rates.close()
