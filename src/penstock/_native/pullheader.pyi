class PullHeader:
    group: str
    topic: str
    subscription: str | None
    expression_type: str | None
    queue_id: int
    offset: int
    count: int
    sys_flag: int
    commit_offset: int
    suspend_ms: int

def read_pull(fields: dict[str, str]) -> PullHeader: ...
