"""A process that puts messages with every feature, reports each acknowledgement, and closes or is killed.

Arguments: store path, settings as JSON, features (comma list), number of messages (0: until killed).
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Iterator
from typing import Any

from penstock import open_store
from penstock.config import load_config
from penstock.format.batch import BatchBlock, encode_client_batch
from penstock.message import Message, encode_properties

BODIES = ("消息正文 héllo 😀 ".encode(), b"0123456789abcdef", b"\0", bytes(range(256)))
TAGS = ("TagA", "标签", "tag 🚀", None)
HOSTS = ("192.168.10.7:53211", "[2001:db8::10:7]:53212", "10.1.2.3:10911", "[fd00::1]:10911")


def messages(features: set[str], seed: int) -> Iterator[Message]:
    """An endless mix; which kinds are in it is said by ``features``."""
    rng = random.Random(seed)
    topics = ["orders", "主题-été", "%RETRY%group-a", "x"]
    if "long-topics" in features:
        topics += ["%RETRY%" + "g" * 121, "%RETRY%" + "h" * 240]
    number = 0
    while True:
        number += 1
        if "inner-batches" in features and number % 13 == 0:
            yield inner_batch(rng, number)
            continue
        unit = rng.choice(BODIES)
        body = (unit * 20)[: rng.choice((0, 17, 300, 900))]
        properties = {"naïve-свойство": f"значение {number}"} if number % 5 == 0 else {}
        sys_flag = 0
        delay_level = 0
        if "transactions" in features and number % 9 == 0:
            sys_flag = rng.choice((0x4, 0x8, 0xC))
        elif "delay" in features and number % 11 == 0:
            delay_level = rng.choice((14, 16, 18))
        elif "lmq" in features and number % 4 == 0:
            properties["INNER_MULTI_DISPATCH"] = rng.choice(("%LMQ%a", "%LMQ%a,%LMQ%b"))
        yield Message(
            rng.choice(topics[:1]) if "INNER_MULTI_DISPATCH" in properties else rng.choice(topics),
            body,
            rng.choice(TAGS),
            f"order-{rng.randrange(40)}" + (f" user{rng.randrange(5)}" if number % 3 == 0 else ""),
            rng.randrange(3),
            properties,
            f"{rng.getrandbits(128):032X}",
            flag=rng.choice((0, 0, 7, -5)),
            sys_flag=sys_flag,
            born_timestamp=1_700_000_000_000 + number,
            born_host=rng.choice(HOSTS) if "hosts" in features else None,
            store_host=rng.choice(HOSTS) if "hosts" in features else None,
            reconsume_times=rng.choice((0, 0, 3)),
            delay_level=delay_level,
        )


def inner_batch(rng: random.Random, number: int) -> Message:
    """Several messages as one record, for a topic with batch queues."""
    blocks = [
        BatchBlock(rng.choice(BODIES)[:10], encode_properties({"KEYS": f"inner-{number}"}), flag=part)
        for part in range(rng.randrange(1, 9))
    ]
    return Message(
        "inner",
        encode_client_batch(blocks),
        "batch",
        f"batch-{number}",
        number % 2,
        {"INNER_NUM": str(len(blocks))},
        f"{rng.getrandbits(128):032X}",
        sys_flag=0x40 | 0x80,
        born_timestamp=1_700_000_000_000 + number,
    )


def report(message: Message, result: Any) -> None:
    assert result.ok, (message, result)
    fields = {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "physical_offset": result.physical_offset,
        "queue_offset": result.queue_offset,
        "body_md5": hashlib.md5(bytes(message.body), usedforsecurity=False).hexdigest(),
        "delay_level": message.delay_level,
        "unique_key": message.unique_key,
        "sys_flag": message.sys_flag,
    }
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def main() -> None:
    path, settings, features, count = sys.argv[1:5]
    wanted = set(features.split(","))
    config, _ = load_config(env={}, flags=json.loads(settings))
    source = messages(wanted, seed=1)
    done = 0
    with open_store(path, flush=config.flush_disk_type, config=config) as store:
        if "inner-batches" in wanted:
            store.make_batch_topic("inner")
        while int(count) == 0 or done < int(count):
            if "batches" in wanted and done % 7 == 3:
                several = [next(source) for _ in range(9)]
                for message, result in zip(several, store.put_many(several), strict=True):
                    report(message, result)
                done += len(several)
            else:
                message = next(source)
                report(message, store.put(message))
                done += 1


if __name__ == "__main__":
    main()
