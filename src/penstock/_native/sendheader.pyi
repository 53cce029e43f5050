LONG: tuple[str, ...]
SHORT: tuple[str, ...]

class SendHeader:
    group: str
    topic: str
    default_topic: str
    default_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str
    reconsume_times: int
    unit_mode: bool
    max_reconsume_times: int | None
    batch: bool

def read_header(fields: dict[str, str], names: tuple[str, ...]) -> SendHeader: ...
def finish_properties(text: str, suffix: bytes) -> tuple[bytes, str, bool, bool] | None: ...
