"""A source whose sink and writer die at a step, as a killed worker does, once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from penstock.spark.sink import RocketMQSink
from penstock.spark.source import RocketMQSource
from penstock.spark.writer import RocketMQWriter

STEP, PLAN = "killat", "killplan"


class _Dies:
    """``plan`` is a file that names the step; it is emptied when the death has come."""

    plan_file: str

    def step(self, name: str) -> None:
        plan = Path(self.plan_file)
        try:
            planned = plan.read_text() == name
            if planned:
                plan.unlink()
        except FileNotFoundError:
            return  # another task of the batch died of it
        if planned:
            os._exit(9)


class DyingSink(_Dies, RocketMQSink):
    def write(self, iterator: Any) -> Any:
        self.step("before write")
        message = super().write(iterator)
        self.step("after write")
        return message

    def commit(self, messages: Any, batchId: int) -> None:
        self.step("before commit")
        super().commit(messages, batchId)
        self.step("after commit")


class DyingWriter(_Dies, RocketMQWriter):
    def commit(self, messages: Any) -> None:
        self.step("before commit")
        super().commit(messages)
        self.step("after commit")


class DyingSource(RocketMQSource):
    """As ``rocketmq``, with an option that names the plan of its deaths."""

    @classmethod
    def name(cls) -> str:
        return "dyingmq"

    def _split(self) -> tuple[str, dict[str, str]]:
        options = dict(self.options)
        return options.pop(PLAN), options

    def writer(self, schema: Any, overwrite: bool) -> Any:
        plan, options = self._split()
        made = DyingWriter(options, schema, overwrite)
        made.plan_file = plan
        return made

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        plan, options = self._split()
        made = DyingSink(options, schema, overwrite)
        made.plan_file = plan
        return made
