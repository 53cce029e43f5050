"""RocketMQ's remoting protocol: frames, connections, a server and a client. Knows no request's meaning."""

from penstock.remoting.client import RemotingClient
from penstock.remoting.codes import RequestCode, ResponseCode
from penstock.remoting.command import Command
from penstock.remoting.connection import Connection
from penstock.remoting.server import Handler, RemotingServer

__all__ = [
    "Command",
    "Connection",
    "Handler",
    "RemotingClient",
    "RemotingServer",
    "RequestCode",
    "ResponseCode",
]
