"""Messages that are delivered later: the put hooks, and the services that deliver. They start when first
needed.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from penstock.message import Message
from penstock.message.topic import SCHEDULE_TOPIC
from penstock.store.delay import ScheduleMessageService
from penstock.store.timer import TimerMessageStore
from penstock.store.timerhook import ScheduleHook

if TYPE_CHECKING:
    from penstock.store.messagestore import MessageStore

TIMER_TOPIC = "rmq_sys_wheel_timer"


class Schedules:
    """Delay levels and timer of one store. Without background threads they are stepped by hand."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._guard = threading.Lock()
        self._hook = ScheduleHook()
        self._delay: ScheduleMessageService | None = None
        self._timer: TimerMessageStore | None = None

    def hook(self, message: Message) -> Message | str:
        """What to store in place of a message, or the status that ends the put."""
        hook = self._timer.hook if self._timer is not None else self._hook
        answer = hook(message, self._store)
        if isinstance(answer, Message) and answer is not message:
            self._need(answer.topic)
        return answer

    def _need(self, topic: str) -> None:
        """Have the service of a topic running."""
        if topic == SCHEDULE_TOPIC and self._delay is None:
            _ = self.delay
        elif topic == TIMER_TOPIC and self._timer is None:
            _ = self.timer

    def resume(self) -> None:
        """Deliver what an earlier run left behind."""
        for topic in self._store.topics():
            self._need(topic)

    @property
    def delay(self) -> ScheduleMessageService:
        """The service of the delay levels, running if the store has background threads."""
        with self._guard:
            if self._delay is None:
                service = ScheduleMessageService(self._store)
                service.load()
                if self._store.background:
                    service.start()
                self._delay = service
            return self._delay

    @property
    def timer(self) -> TimerMessageStore:
        """The service of the timer wheel, running if the store has background threads."""
        with self._guard:
            if self._timer is None:
                service = TimerMessageStore(self._store)
                service.load()
                if self._store.background:
                    service.start()
                self._timer = service
            return self._timer

    @property
    def running_timer(self) -> TimerMessageStore | None:
        """The service of the timer wheel if anything needed it yet; looking starts nothing."""
        return self._timer

    def stop(self) -> None:
        """Stop delivering and keep where each service was."""
        with self._guard:
            try:
                if self._delay is not None:
                    self._delay.stop()
            finally:
                if self._timer is not None:
                    self._timer.stop()

    def abandon(self) -> None:
        """Stop without keeping anything, as a kill would."""
        with self._guard:
            if self._delay is not None:
                self._delay.abandon()
            if self._timer is not None:
                self._timer.abandon()
            self._delay = self._timer = None
