"""The name under which a client is known to brokers (protocol 7.1)."""

from __future__ import annotations

import itertools
import os
import socket
import time

_counter = itertools.count()


def own_address() -> str:
    """An address of this machine that others may know it by; the loopback one if there is no other."""
    try:
        # No packet is sent: connecting a datagram socket only chooses a route.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def client_id(instance_name: str | None = None) -> str:
    """``address@name``. Without a name one that no other client has, in this process or after it."""
    if instance_name is None:
        instance_name = f"{os.getpid()}#{time.monotonic_ns()}{next(_counter)}"
    return f"{own_address()}@{instance_name}"
