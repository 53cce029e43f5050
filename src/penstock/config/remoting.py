"""Limits and deadlines of network connections, the same on both sides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingSettings:
    """What one connection may cost and how long it may be silent. Sizes are bytes, times seconds."""

    # RocketMQ's decoder counts the four length bytes too (protocol 1.1).
    max_frame_bytes: int = 16_777_216
    max_header_bytes: int = 1 << 20
    # Frames begun and not yet whole, over all connections of a server: many slow senders share this.
    max_partial_bytes: int = 256 << 20
    max_connections: int = 20_000
    # From one address; 0 = as many as there may be at all.
    max_connections_per_address: int = 0
    # Requests of one connection that wait for their answers, held pulls among them: beyond, reading pauses.
    max_owed_requests: int = 16_384

    # Silent both ways for this long: closed, as RocketMQ does.
    idle_close_seconds: float = 120.0
    # A frame that was begun must be whole by then, or a sender of one byte a minute would never be idle.
    # A slow link gets more time: what a large message needs at this rate.
    frame_deadline_seconds: float = 30.0
    slowest_bytes_per_second: int = 32_768

    # Above this nothing more is read from that peer; if it takes nothing for the stall time it is closed.
    write_buffer_bytes: int = 4 << 20
    write_stall_seconds: float = 30.0
    # Answers may still be added while reading is paused (held pulls): beyond this the peer is closed at once.
    max_write_buffer_bytes: int = 64 << 20

    call_timeout_seconds: float = 3.0
    connect_timeout_seconds: float = 3.0
    # After a failed connect the next try to that address waits, doubling from the first to the second.
    reconnect_delay_seconds: float = 0.05
    max_reconnect_delay_seconds: float = 3.0
