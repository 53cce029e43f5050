"""The POP family of a broker: its parts, and what they share (protocol 3.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.pop import Pops
from penstock.broker.popacks import PopAcks
from penstock.broker.popcheckpoint import ReviveLog
from penstock.broker.popholding import HeldPop, PopHolding
from penstock.broker.popinflight import PopInFlight
from penstock.broker.popnotify import PopNotify
from penstock.broker.poporder import PopOrder
from penstock.broker.popposition import PopPositions
from penstock.broker.poprevive import PopRevive
from penstock.broker.putanswer import refusal
from penstock.errors import RequestRefused
from penstock.message import Message
from penstock.remoting import Connection, Handler

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

REVIVE_EVERY = 2
ORDER_EVERY = 4
SAVE_EVERY = 100
"""In ticks of the housekeeping."""


class Popping:
    """Everything about pops. Lives on the loop."""

    def __init__(self, broker: Broker, order: PopOrder) -> None:
        """``order`` is loaded already."""
        self._broker = broker
        self._append = broker.store.append_plain
        config = broker.config
        self.order = order
        precision = broker.store.config.timer_precision_ms
        self.log = ReviveLog(config.cluster_name, config.broker_name, broker.address, precision)
        self.positions = PopPositions(broker)
        self.inflight = PopInFlight(broker.clock.now_ms())
        self.pops = Pops(broker, self)
        self.notify = PopNotify(broker, self)
        self.holding = PopHolding(self._again, self._expire, broker.dispatching.wait_for_messages)
        self.acks = PopAcks(broker, self)
        self.revive = PopRevive(broker, self)
        self.positions.recover(self.log)
        broker.topics.on_change.append(self._topic_changed)

    def handlers(self) -> dict[int, Handler]:
        return {**self.pops.handlers(), **self.acks.handlers(), **self.notify.handlers()}

    def write(self, message: Message) -> int:
        """Append a record of the revive log; where it ends. RequestRefused when the store refuses it."""
        result = self._append(message)
        if not result.ok:
            raise RequestRefused(*refusal(self._broker.store, result))
        self._broker.dispatching.appended((result.topic or "", result.queue_id))
        return result.end_offset

    def tick(self, ticks: int) -> None:
        """What is due now and then."""
        self.positions.commit_flushed()
        if ticks % REVIVE_EVERY == 0:
            self.revive.run_once()
        if ticks % ORDER_EVERY == 0:
            self.holding.wake_in_order()
        if ticks % SAVE_EVERY == 0:
            self.order.save()

    def lost(self, connection: Connection) -> None:
        """A connection is gone."""
        self.holding.lost(connection)

    def release_all(self) -> None:
        """The broker stops: whoever waits is answered."""
        self.acks.flush()
        self.holding.release_all()
        self.positions.commit_flushed()
        self.order.save()

    def moved(self, topic: str, group: str, queue_id: int) -> None:
        """An administrator moved a group: it holds nothing there, and goes on elsewhere at once."""
        self.order.release(topic, group, queue_id)
        self.holding.wake((topic, group))

    def forget_group(self, group: str) -> None:
        """A group is gone."""
        self.positions.forget(group=group)
        self.inflight.forget(group=group)
        self.order.forget(group=group)

    def _topic_changed(self, name: str, topic: object) -> None:
        if topic is None:
            self.positions.forget(topic=name)
            self.inflight.forget(topic=name)
            self.order.forget(topic=name)

    def _again(self, pop: HeldPop) -> bool:
        return self.notify.again(pop) if pop.notification else self.pops.again(pop)

    def _expire(self, pop: HeldPop) -> None:
        if pop.notification:
            self.notify.expire(pop)
        else:
            self.pops.expire(pop)
