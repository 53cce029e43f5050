"""Sizes of an existing store, read off its files.

Every file of a file queue has one size, and no file says which it is. With several files the names tell:
they are byte offsets, so they are multiples of the size. With a single file its own length is all there is,
and it is taken only when nothing speaks against it: a log that was cut short must not become a log of short
segments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath

from penstock.config import StoreConfig
from penstock.errors import CorruptFile, NotAStore, StoreError
from penstock.files.storage import Storage
from penstock.store.indexfile import index_size, layout_of
from penstock.store.logfolders import LogFolders, log_folders

BLANK_MAGIC = b"\xcb\xd4\x31\x94"
_STORE_NAMES = frozenset(
    (
        "commitlog",
        "consumequeue",
        "consumequeue_ext",
        "batchconsumequeue",
        "index",
        "checkpoint",
        "abort",
        "lock",
        "timerwheel",
        "timerlog",
        "config",
    )
)
# Loading looks at every queue file anyway; finding their size needs only some of them.
_QUEUE_SAMPLE = 64
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of file queue: where it is, which setting is its size, and what a size must satisfy."""

    folder: str
    depth: int
    field: str
    default: int
    unit: int
    smallest: int


_LOG = _Kind("commitlog", 0, "mapped_file_size_commit_log", 1 << 30, 1, 1024)
_KINDS = (
    _LOG,
    _Kind("consumequeue", 2, "mapped_file_size_consume_queue", 6_000_000, 20, 20),
    _Kind("batchconsumequeue", 2, "mapper_file_size_batch_consume_queue", 13_800_000, 46, 46),
    _Kind("consumequeue_ext", 2, "mapped_file_size_consume_queue_ext", 48 << 20, 1, 64),
    _Kind("timerlog", 0, "mapped_file_size_timer_log", 100 << 20, 1, 68),
)


@dataclass(frozen=True, slots=True)
class QueueFile:
    """A file of a file queue as it lies there."""

    path: str
    begin: int
    size: int
    is_last: bool

    def holds(self, offset: int) -> bool:
        """Whether a byte of the queue lies in this file."""
        return self.begin <= offset < self.begin + self.size


def is_queue_file_name(name: str) -> bool:
    """Whether a name is that of a file queue's file: an offset of at least 20 digits."""
    return len(name) >= 20 and name.isascii() and name.isdigit() and int(name) < 2**63


def is_store(storage: Storage, root: str, *, owned: bool = False) -> bool:
    """Whether the folder holds anything of a store; ``owned``: beside the lock of who is making one."""
    names = _STORE_NAMES - {"lock"} if owned else _STORE_NAMES
    try:
        return any(entry.name in names for entry in storage.listdir(root))
    except (FileNotFoundError, NotADirectoryError):
        return False


def require_store(storage: Storage, root: str) -> None:
    """Raise NotAStore unless there is a store to read."""
    if not is_store(storage, root):
        missing = not storage.exists(root)
        raise NotAStore(
            "there is nothing here" if missing else "this is not a store directory",
            file=root,
            hint="a store directory holds commitlog, consumequeue, index and checkpoint",
        )


def files_of(storage: Storage, folder: str) -> list[QueueFile]:
    """The files of a file queue, oldest first; none without the folder. Foreign names are left out."""
    try:
        entries = [e for e in storage.listdir(folder) if not e.is_dir and is_queue_file_name(e.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    entries.sort(key=lambda entry: int(entry.name))
    last = len(entries) - 1
    return [
        QueueFile(str(PurePath(folder) / entry.name), int(entry.name), entry.size, number == last)
        for number, entry in enumerate(entries)
    ]


def log_files_of(storage: Storage, folders: LogFolders) -> list[QueueFile]:
    """The files of a log, oldest first, in whichever folder they lie."""
    files = [file for folder in folders.all for file in files_of(storage, folder)]
    if not folders.several:
        return files
    files.sort(key=lambda file: file.begin)
    last = len(files) - 1
    return [replace(file, is_last=number == last) for number, file in enumerate(files)]


def files_of_log(storage: Storage, root: str, config: StoreConfig | None = None) -> list[QueueFile]:
    """The files of a store's log, oldest first."""
    return log_files_of(storage, log_folders(storage, root, config or StoreConfig()))


def queue_folders(storage: Storage, folder: str) -> Iterator[tuple[str, int, str]]:
    """Topic, queue id and path of every queue under such a folder as ``consumequeue``."""
    try:
        topics = [entry.name for entry in storage.listdir(folder) if entry.is_dir]
    except (FileNotFoundError, NotADirectoryError):
        return
    for topic in topics:
        for entry in storage.listdir(str(PurePath(folder) / topic)):
            if entry.is_dir and entry.name.isascii() and entry.name.isdigit() and int(entry.name) < 2**31:
                yield topic, int(entry.name), str(PurePath(folder) / topic / entry.name)


def detect(storage: Storage, root: str, config: StoreConfig) -> StoreConfig:
    """``config`` with the sizes that the files of the store have.

    Unchanged for a folder that is missing or empty. Raises NotAStore for one that holds other things, and
    CorruptFile, naming it, for a file whose size can't be. Not for one of the index: opening makes that again
    from the log, and a crash while a file of it was made is nothing to ask anybody about.
    """
    try:
        entries = storage.listdir(root)
    except FileNotFoundError:
        return config
    except NotADirectoryError:
        raise NotAStore("this is a file", file=root, hint="a store is a directory") from None
    # A write from Spark stages its records before there is a store.
    beside = ("lost+found", "penstock.spark")
    ours = [entry for entry in entries if not entry.name.startswith(".") and entry.name not in beside]
    if not ours:
        return config
    require_store(storage, root)
    found, faults = survey(storage, root, config, sample=_QUEUE_SAMPLE)
    index = str(PurePath(root) / "index")
    for fault in faults:
        if fault.file is None or str(PurePath(fault.file).parent) != index:
            raise fault
    return found


def survey(
    storage: Storage, root: str, config: StoreConfig, *, sample: int = 1 << 62
) -> tuple[StoreConfig, list[StoreError]]:
    """As ``detect``, but files of a wrong size come as a list, and the rest of the store decides.

    Looks at ``sample`` queues of a kind at most.
    """
    faults: list[StoreError] = []
    for kind in _KINDS:
        if kind is _LOG:
            files = log_files_of(storage, log_folders(storage, root, config))
        else:
            files = _sample(storage, str(PurePath(root) / kind.folder), kind.depth, sample)
        size, wrong = _size_of(storage, kind, files, getattr(config, kind.field))
        faults.extend(wrong)
        if size:
            config = config.replace(**{kind.field: size})
    return _with_index_layout(storage, root, config, faults), faults


def segment_size_of(storage: Storage, files: list[QueueFile], configured: int = _LOG.default) -> int:
    """Size that the files of a log have; 0 when nothing tells."""
    return _size_of(storage, _LOG, files, configured)[0]


def _sample(storage: Storage, folder: str, depth: int, sample: int) -> list[QueueFile]:
    if depth == 0:
        return files_of(storage, folder)
    files: list[QueueFile] = []
    for count, (_, _, path) in enumerate(queue_folders(storage, folder)):
        if count >= sample:
            break
        files.extend(files_of(storage, path))
    return files


def _size_of(
    storage: Storage, kind: _Kind, files: list[QueueFile], configured: int
) -> tuple[int, list[StoreError]]:
    """The size (0: nothing tells) and the files that do not have it."""
    files = [file for file in files if not _is_unfinished(storage, kind, file, files, configured)]
    sizes = Counter(file.size for file in files if _possible(kind, file, files))
    size = max(sizes, key=lambda s: (sizes[s], s == configured, s == kind.default, s), default=0)
    if len(sizes) > 1:
        # A tie, or one queue of many: what was configured or is usual wins over what was cut.
        size = next((s for s in (configured, kind.default) if sizes[s] * 2 >= sizes[size]), size)
    if (
        size
        and len(files) == 1
        and size not in (configured, kind.default)
        and _looks_cut(storage, kind, files[0])
    ):
        size = 0
    wrong: list[StoreError] = [
        CorruptFile(
            file.path,
            found=f"{file.size} bytes" + (f" instead of {size}" if size else ", which no file here can have"),
            hint=_hint(kind),
        )
        for file in files
        if file.size != size
    ]
    return size, wrong


def _is_unfinished(
    storage: Storage, kind: _Kind, file: QueueFile, files: list[QueueFile], configured: int
) -> bool:
    """Whether a crash left this when the file was being made: the last, too short, nothing in it.

    Loading removes it. A large file gets its blocks in several steps, so any length is possible.
    """
    if not file.size:
        return bool(kind.depth) or file.is_last  # what a queue loses comes again from the log
    if not file.is_last:
        return False
    expected = max((other.size for other in files if other is not file), default=configured)
    if kind.depth or file.size >= expected:
        return False
    return all(
        not any(storage.pread(file.path, at, min(_PIECE, file.size - at)))
        for at in range(0, file.size, _PIECE)
    )


def _hint(kind: _Kind) -> str:
    if kind is _LOG:
        return "restore it from a backup, or run `penstock store repair`"
    return "it can be rebuilt from the log: run `penstock store repair`"


def _possible(kind: _Kind, file: QueueFile, files: list[QueueFile]) -> bool:
    if file.size < kind.smallest or file.size >= 2**31 or file.size % kind.unit:
        return False
    # Names are multiples of the size. (A queue can begin late, so with one file this is all they tell.)
    return not (kind.depth == 0 and any(other.begin % file.size for other in files))


def _looks_cut(storage: Storage, kind: _Kind, file: QueueFile) -> bool:
    """Whether the only file of a kind, of a size nobody asked for, ends as if it had been longer."""
    if kind is not _LOG:
        return False
    if file.size % 512:
        return True
    tail = storage.pread(file.path, file.size - 8, 8)
    return any(tail) and tail != b"\x00\x00\x00\x08" + BLANK_MAGIC


def _with_index_layout(
    storage: Storage, root: str, config: StoreConfig, faults: list[StoreError]
) -> StoreConfig:
    """Slots and entries of the newest index file that tells; files that do not go with it are faults."""
    folder = str(PurePath(root) / "index")
    try:
        entries = [
            e for e in storage.listdir(folder) if not e.is_dir and e.name.isascii() and e.name.isdigit()
        ]
    except (FileNotFoundError, NotADirectoryError):
        return config
    if entries and not entries[-1].size:
        entries.pop()  # being made, or left by a crash in its making
    layout = (config.max_hash_slot_num, config.max_index_num)
    found: tuple[int, int] | None = None
    unknown: list[tuple[int, StoreError]] = []
    for entry in reversed(entries):
        path = str(PurePath(folder) / entry.name)
        try:
            slots, capacity = layout_of(storage, path, found or layout)
        except FileNotFoundError:
            continue  # expired while we looked
        except StoreError as error:
            unknown.append((entry.size, error))
            continue
        except (OSError, ValueError) as error:
            what = CorruptFile(path, found=f"cannot be read: {error}", hint="remove it: it is rebuilt")
            unknown.append((entry.size, what))
            continue
        found = found or (slots, capacity)
    # A file that is new has no chains to tell by; one of the others' size is of their kind.
    usual = index_size(*(found or layout))
    faults.extend(error for size, error in unknown if size != usual)
    if found is None:
        return config
    return config.replace(max_hash_slot_num=found[0], max_index_num=found[1])
