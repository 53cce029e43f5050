"""What commands print: a message as an object or as a line, and everything else as a table or as JSON."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode
PREVIEW = 60


def message_object(message: Any) -> dict[str, Any]:
    """A stored message for programs. ``msgspec`` writes the body's bytes as base64."""
    values: dict[str, Any] = {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "size": message.size,
        "message_id": message.message_id,
        "unique_key": message.unique_key,
        "sys_flag": message.sys_flag,
        "flag": message.flag,
        "born_timestamp": message.born_timestamp,
        "born_host": message.born_host,
        "store_timestamp": message.store_timestamp,
        "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
    }
    raw = message.properties_bytes
    try:
        raw.decode()
        values["properties"] = message.properties
    except UnicodeDecodeError:
        values["properties_base64"] = raw
    values["body"] = message.body
    return values


def write_json(value: Any) -> None:
    """One object on one line of stdout. Bytes become base64."""
    sys.stdout.buffer.write(_encode(value) + b"\n")


def write_message(message: Any, *, as_json: bool) -> None:
    """One message on one line."""
    if as_json:
        write_json(message_object(message))
    else:
        sys.stdout.write(message_line(message) + "\n")


def message_line(message: Any) -> str:
    """A stored message for people."""
    when = time_text(message.store_timestamp)
    words = [
        f"{message.physical_offset:>12}",
        when,
        f"{message.topic}-{message.queue_id}@{message.queue_offset}",
    ]
    if message.tags:
        words.append(f"[{message.tags}]")
    if message.keys:
        words.append(f"({message.keys})")
    return safe("  ".join(words)) + "  " + preview(message.body_view)


def preview(body: Any, limit: int = PREVIEW) -> str:
    """The beginning of a body on one line, with nothing that a terminal would act on."""
    head = bytes(body[: limit * 4])
    try:
        text = head.decode("utf-8", "ignore" if len(body) > len(head) else "strict")
    except UnicodeDecodeError:
        text = head[: limit // 2].hex()
        return f"0x{text}" + ("…" if len(body) > limit // 2 else "")
    return safe(text[:limit]) + ("…" if len(text) > limit or len(body) > len(head) else "")


def safe(text: str) -> str:
    """Text without control characters: what others put into a store must not drive our terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def time_text(milliseconds: int) -> str:
    """A time as people read it, or the number if it is none."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)


def size_text(count: int) -> str:
    """Bytes as people read them."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return str(count)


def print_table(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    """A table on stdout. Cells are text, never markup."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left")
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    for row in rows:
        table.add_row(*(Text(safe(str(cell))) for cell in row))
    Console().print(table)


def print_facts(title: str, facts: dict[str, Any]) -> None:
    """Names and values, one a line."""
    width = max((len(name) for name in facts), default=0)
    print(safe(title))
    for name, value in facts.items():
        print(f"  {name:<{width}}  {safe(str(value))}")
