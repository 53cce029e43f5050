"""Message ids: the one the store gives and the one the client makes (store format, section 4)."""

from __future__ import annotations

import itertools
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from datetime import datetime

from penstock.message.host import format_host, parse_host, unpack_host

__all__ = [
    "UniqueIdGenerator",
    "decode_message_id",
    "format_host",
    "message_id_of",
    "offset_message_id",
    "parse_host",
    "reserve_unique_ids",
    "unique_id",
]

_PORT_AND_OFFSET = struct.Struct(">iq")
_PROCESS = struct.Struct(">HI")
_IPV4_CHARACTERS = 32
_IPV6_CHARACTERS = 56


def offset_message_id(address: bytes, port: int, offset: int) -> str:
    """The id that names a record by its place: store host, port and physical offset, as upper-case hex."""
    return (address + _PORT_AND_OFFSET.pack(port, offset)).hex().upper()


def message_id_of(store_host: str, offset: int) -> str:
    """``offset_message_id`` for a host in its text form."""
    address, port = parse_host(store_host)
    return offset_message_id(address, port, offset)


def decode_message_id(message_id: str) -> tuple[str, int]:
    """Store host and physical offset of an offset message id; ValueError when it is none.

    A client's unique id has the same length and decodes too: the offset it then gives means nothing.
    """
    if len(message_id) not in (_IPV4_CHARACTERS, _IPV6_CHARACTERS):
        raise ValueError(f"message id {message_id!r} has {len(message_id)} characters, not 32 or 56")
    try:
        raw = bytes.fromhex(message_id)
    except ValueError:
        raise ValueError(f"message id {message_id!r} is not hexadecimal") from None
    if len(raw) * 2 != len(message_id):  # fromhex skips blanks
        raise ValueError(f"message id {message_id!r} is not hexadecimal")
    return unpack_host(raw[:-8]), int.from_bytes(raw[-8:], "big", signed=True)


def _month_bounds_ms(now_ms: int) -> tuple[int, int]:
    """Start of the local month that holds ``now_ms``, and of the one after it."""
    now = datetime.fromtimestamp(now_ms / 1000)
    start = datetime(now.year, now.month, 1)
    following = datetime(now.year + now.month // 12, now.month % 12 + 1, 1)
    return int(start.timestamp() * 1000), int(following.timestamp() * 1000)


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _own_address() -> bytes | None:
    """This machine's address as its own name gives it, or None."""
    try:
        address = socket.gethostbyname(socket.gethostname())
    except OSError:
        return None
    return socket.inet_pton(socket.AF_INET, address)


class UniqueIdGenerator:
    """Makes client unique ids: address, process, a salt, milliseconds since the month began, a counter.

    Safe to call from many threads. Two generators of one process differ by their salt (RocketMQ puts the
    class loader's hash there). After a fork the child must make a new one; ``unique_id`` does.
    """

    def __init__(
        self,
        address: bytes | None = None,
        *,
        pid: int | None = None,
        salt: int | None = None,
        now_ms: Callable[[], int] = _wall_clock_ms,
    ) -> None:
        if address is None:
            address = _own_address() or (now_ms() & 0xFFFFFFFF).to_bytes(4, "big")
        process = os.getpid() if pid is None else pid
        chosen = int.from_bytes(os.urandom(4), "big") if salt is None else salt
        self.pid = process
        self._prefix = (address + _PROCESS.pack(process & 0xFFFF, chosen & 0xFFFFFFFF)).hex().upper()
        self._now_ms = now_ms
        self._month_start, self._next_month = _month_bounds_ms(now_ms())
        self._counter = itertools.count()
        self._lock = threading.Lock()
        # The last millisecond and how its ids begin: replaced as one, so that threads see both or neither.
        self._moment = (-1, "")

    def __call__(self) -> str:
        """A new id of 32 characters (IPv4) or 56 (IPv6)."""
        now = self._now_ms()
        moment = self._moment
        if moment[0] != now:
            moment = self._at(now)
        return f"{moment[1]}{next(self._counter) & 0xFFFF:04X}"

    def many(self, count: int) -> list[str]:
        """So many new ids, of one moment."""
        begin, first = self.reserve(count)
        return [f"{begin}{number & 0xFFFF:04X}" for number in range(first, first + count)]

    def reserve(self, count: int) -> tuple[str, int]:
        """How so many new ids begin, and their first number: they follow each other."""
        now, counter = self._now_ms(), self._counter
        moment = self._moment
        if moment[0] != now:
            moment = self._at(now)
        while True:
            first = last = next(counter)
            if count > 1:
                last = next(itertools.islice(counter, count - 2, None))
            # No other thread takes a number in between, as it is. Should one, the numbers are left unused.
            if last - first == max(count, 1) - 1:
                return moment[1], first

    def _at(self, now: int) -> tuple[int, str]:
        """A time, and how ids of that millisecond begin."""
        if now >= self._next_month:
            with self._lock:
                self._month_start, self._next_month = _month_bounds_ms(now)
        since = now - self._month_start
        if -1_000_000 < since < 0:  # the clock was set back over the month's start by a little
            since = 0
        self._moment = now, f"{self._prefix}{since & 0xFFFFFFFF:08X}"
        return self._moment


_generator: UniqueIdGenerator | None = None


def unique_id() -> str:
    """A new unique id of this process (the value of ``UNIQ_KEY``)."""
    return _own_generator()()


def reserve_unique_ids(count: int) -> tuple[str, int]:
    """So many new unique ids of this process: how they begin, and the first of the numbers they end with."""
    return _own_generator().reserve(count)


def _own_generator() -> UniqueIdGenerator:
    global _generator
    generator = _generator
    if generator is None:
        generator = _generator = UniqueIdGenerator()
    return generator


def _forget_generator() -> None:
    global _generator
    _generator = None


# A child must not go on with its parent's ids. Asking for the process id each time costs more than the id.
os.register_at_fork(after_in_child=_forget_generator)
