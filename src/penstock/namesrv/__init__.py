"""Which broker has which topic. Inside a broker's process, or alone (``penstock namesrv``)."""

from penstock.namesrv.requests import handlers
from penstock.namesrv.routes import NameServer
from penstock.namesrv.service import NameServerService

__all__ = ["NameServer", "NameServerService", "handlers"]
