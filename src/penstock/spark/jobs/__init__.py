"""Heavy work over a store as Spark jobs: a function each, that takes a session and gives a result as data.

Nothing is imported until it is asked for: ``penstock --help`` must not load Spark.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.jobs.export import export as export
    from penstock.spark.jobs.rebuild import rebuild as rebuild
    from penstock.spark.jobs.verify import verify as verify

# Job -> the module it is in. ``import`` is a word of Python's: that function is called import_messages.
_JOBS = {
    "verify": "verify",
    "rebuild": "rebuild",
    "export": "export",
    "import_messages": "importing",
    "replay": "replay",
    "compact": "compact",
    "stats": "stats",
    "trace": "trace",
}


class _Job:
    """The function of a job, also after its module of the same name was imported and wants the name."""

    def __init__(self, name: str, module: str) -> None:
        self.name = name
        self.module = module

    def __get__(self, package: ModuleType | None, owner: type) -> Any:
        return getattr(importlib.import_module(f"{__name__}.{self.module}"), self.name)

    def __set__(self, package: ModuleType, value: Any) -> None:
        """Python puts a submodule here when it is imported: it is found without that."""


_Package = type("_Package", (ModuleType,), {name: _Job(name, module) for name, module in _JOBS.items()})
sys.modules[__name__].__class__ = _Package
