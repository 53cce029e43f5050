"""``penstock send``: to a running broker, or straight into a store."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from penstock.cli.network import NameServer

if TYPE_CHECKING:
    from penstock.message import Message

_CHUNK = 1 << 20
_AT_ONCE = 1024


def send(
    topic: Annotated[str, typer.Argument(help="Topic to send to.")],
    body: Annotated[str, typer.Argument(help="The body; - sends each line of the standard input.")],
    store: Annotated[
        Path | None,
        typer.Option("--store", help="Into this store directory, without a broker; made if it is not there."),
    ] = None,
    namesrv: NameServer = None,
    tags: Annotated[str | None, typer.Option(help="Tag of the message.")] = None,
    keys: Annotated[str | None, typer.Option(help="Keys to find it by, separated by spaces.")] = None,
    queue: Annotated[int | None, typer.Option(min=0, help="Queue of the topic.")] = None,
    order_key: Annotated[str | None, typer.Option(help="Same key, same queue. To a broker only.")] = None,
    delay: Annotated[
        float | None, typer.Option(min=0, help="Seconds to hold it back. To a broker only.")
    ] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", "-p", help="A property as name=value. Can be repeated.")
    ] = None,
    flush: Annotated[
        Literal["sync", "async"] | None, typer.Option(help="Wait for the disk (sync, the default) or not.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="Settings: TOML or broker.conf.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The result of each message as an object.")] = False,
) -> None:
    """Send a message, or each line of the standard input as one."""
    from penstock.errors import UsageError

    if store is None:
        if flush is not None or config is not None:
            raise UsageError("--flush and --config are of a store", hint="a broker has its own: penstock up")
        _send_to_broker(namesrv, topic, body, tags, keys, queue, order_key, delay, properties, as_json)
        return
    if namesrv is not None or order_key is not None or delay is not None:
        raise UsageError("--namesrv, --order-key and --delay are of a broker, --store goes without one")
    _put_into_store(store, topic, body, tags, keys, queue or 0, properties, flush, config, as_json)


def _send_to_broker(
    namesrv: str | None,
    topic: str,
    body: str,
    tags: str | None,
    keys: str | None,
    queue: int | None,
    order_key: str | None,
    delay: float | None,
    properties: list[str] | None,
    as_json: bool,
) -> None:
    from penstock.cli.network import run
    from penstock.cli.networksend import result_object, send_all
    from penstock.cli.output import write_json

    template = {
        "topic": topic,
        "tags": tags,
        "keys": keys,
        "properties": _properties(properties or []) or None,
    }

    def show(result: Any) -> None:
        if as_json:
            write_json(result_object(result))
        elif body != "-":
            print(f"{result.message_id}  {topic}-{result.queue.queue_id}@{result.queue_offset}")

    work = send_all(
        namesrv, _bodies(body), template, queue=queue, delay=delay, order_key=order_key, show=show
    )
    sent = run(work)
    if body == "-" and not as_json:
        print(f"{sent} messages sent to {topic}")


def _put_into_store(
    store: Path,
    topic: str,
    body: str,
    tags: str | None,
    keys: str | None,
    queue: int,
    properties: list[str] | None,
    flush: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    import logging

    from penstock.cli.output import write_json
    from penstock.config import load_config
    from penstock.message import Message
    from penstock.store.opening import open_writable

    given = _properties(properties or [])
    settings, _ = load_config(config)

    def message(data: bytes) -> Message:
        return Message(topic, data, tags=tags, keys=keys, queue_id=queue, properties=given or None)

    log = logging.getLogger("penstock.send")
    sent, refused = 0, ""
    with open_writable(store, flush=flush, config=settings) as opened:
        log.info("opened %s: %s", opened.path, opened.report, extra={"path": opened.path})
        for batch in _bodies(body):
            messages = [message(data) for data in batch]
            for result in opened.put_many(messages) if len(messages) > 1 else [opened.put(messages[0])]:
                sent += result.ok
                refused = refused or ("" if result.ok else _reason(result))
                if as_json:
                    write_json(result_object(result))
                elif result.ok and body != "-":
                    print(f"{result.message_id}  {topic}-{queue}@{result.queue_offset}")
            sys.stdout.flush()
    if body == "-" and not as_json:
        print(f"{sent} messages sent to {topic}-{queue}")
    if refused:
        from penstock.errors import UsageError

        raise UsageError(f"not stored: {refused}", file=str(store))


def result_object(result: Any) -> dict[str, Any]:
    """The answer to a put, for programs."""
    return {
        "status": result.status,
        "topic": result.topic,
        "queue_id": result.queue_id,
        "queue_offset": result.queue_offset,
        "physical_offset": result.physical_offset,
        "size": result.size,
        "store_timestamp": result.store_timestamp,
        "message_id": result.message_id,
    }


def _reason(result: Any) -> str:
    reason = getattr(result, "reason", "")
    return f"{result.status}: {reason}" if reason else str(result.status)


def _properties(pairs: list[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"a property is name=value, not {pair!r}", param_hint="--property")
        found[name] = value
    return found


def _bodies(body: str) -> Iterator[list[bytes]]:
    """The one body, or the lines of the standard input as they come in."""
    if body != "-":
        yield [os.fsencode(body)]
        return
    rest = b""
    while chunk := os.read(sys.stdin.fileno(), _CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        for start in range(0, len(lines), _AT_ONCE):
            yield [line.removesuffix(b"\r") for line in lines[start : start + _AT_ONCE]]
    if rest:
        yield [rest]
