from penstock._native.wire import Command

def encode(command: Command, opaque: int | None = None) -> bytes: ...
def encode_head(command: Command, body_size: int, opaque: int | None = None) -> bytes: ...
def pull_answer(
    opaque: int,
    binary: bool,
    code: int,
    remark: str | None,
    next_offset: int,
    min_offset: int,
    max_offset: int,
    suggested_broker: int,
    topic_flag: int,
    group_flag: int,
    body_size: int,
) -> bytes: ...
def send_answer(
    opaque: int,
    binary: bool,
    code: int,
    remark: str | None,
    region: str,
    trace_on: bool,
    message_id: str,
    queue_id: int,
    queue_offset: int,
    transaction_id: str | None,
) -> bytes: ...
def plain_answers(requests: list[Command]) -> bytes: ...
