"""Files that should not be there, or are not what they should be; and who may use them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from faults.place import SMALL, Place, body_of
from faults.test_recovery import fill_files
from penstock import Message, StoreConfig, open_store
from penstock.errors import CorruptFile, ForkedProcess, NotAStore, StoreClosed, StoreLocked
from penstock.files import MemoryStorage
from penstock.files.mappedfilequeue import MappedFileQueue

# -- sizes and names -------------------------------------------------------------------------------


def closed_store(size: int = 1500) -> tuple[Place, list[int]]:
    place = Place()
    place.open()
    numbers = fill_files(place, size=size)
    place.store.dispatch()
    place.store.close()
    return place, numbers


@pytest.mark.parametrize("change", [-1, 1, -4096, 4096])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/T/0"])
def test_file_of_wrong_size_is_refused_by_name_and_left_alone(folder: str, which: int, change: int) -> None:
    place, numbers = closed_store()
    path = place.files(folder)[which]
    size = place.storage.stat(path).size
    good = place.storage.read_file(path)
    if size + change <= 0:
        pytest.skip("a file of no length is another matter")
    place.storage.truncate(path, size + change)
    with pytest.raises(CorruptFile) as raised:
        place.open()
    assert raised.value.file == path and str(size + change) in str(raised.value) and raised.value.hint
    assert place.storage.stat(path).size == size + change
    place.storage.truncate(path, size)
    place.storage.overwrite(path, 0, good)
    place.open()
    assert place.numbers() == numbers


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/T/0", "index", "config", "."])
def test_foreign_file_is_named_or_ignored_and_never_touched(folder: str) -> None:
    place, numbers = closed_store()
    path = place.path(folder, "notes.txt")
    place.storage.makedirs(place.path(folder))
    place.storage.create_file(path, b"mine")
    try:
        place.open()
    except CorruptFile as error:
        assert error.file == path
        assert folder == "commitlog", "only in the log a foreign file is in the way"
        assert place.storage.read_file(path) == b"mine"
        place.storage.unlink(path)
        place.open()
    else:
        assert place.storage.read_file(path) == b"mine"
    assert place.numbers() == numbers


def test_missing_middle_file_is_reported_and_the_rest_is_served() -> None:
    place, numbers = closed_store()
    path = place.files("commitlog")[1]
    place.storage.unlink(path)
    store = place.open()
    found = place.numbers()
    assert found and set(found) < set(numbers) and found == sorted(found)
    assert found[0] == 0 and found[-1] == numbers[-1], "what is before and behind the gap is there"
    assert any("missing" in str(fault) for fault in store.report.faults)
    assert place.put(999).queue_offset == len(numbers)
    store.dispatch()
    assert place.numbers() == [*found, 999]


def test_missing_middle_file_after_a_kill_is_reported_and_the_rest_is_served() -> None:
    place = Place()
    place.open()
    numbers = fill_files(place)
    place.kill()
    place.storage.unlink(place.files("commitlog")[1])
    store = place.open()
    found = place.numbers()
    assert found[0] == 0 and found[-1] == numbers[-1]
    assert any("missing" in str(damage.reason) for damage in store.report.damage)
    assert place.put(999).queue_offset == len(numbers)


def test_missing_queue_file_is_built_again() -> None:
    place, numbers = closed_store(600)
    files = place.files("consumequeue/T/0")
    assert len(files) > 2
    for victim in (files[1], files[-1]):
        place.storage.unlink(victim)
        store = place.open()
        assert place.numbers() == numbers, victim
        assert store.report.faults
        store.close()


@pytest.mark.parametrize("size", [0, 4096, 8192])
def test_unfinished_last_log_file_is_what_a_crash_leaves(size: int) -> None:
    place, numbers = closed_store()
    end = len(place.files("commitlog")) * SMALL.mapped_file_size_commit_log
    path = place.path("commitlog", f"{end:020d}")
    place.storage.create_file(path, bytes(size))
    place.open()
    assert place.numbers() == numbers and not place.storage.exists(path)


def test_other_directories_are_not_taken_for_stores() -> None:
    storage = MemoryStorage()
    storage.makedirs("/home")
    storage.create_file("/home/letter.txt", b"dear reader")
    with pytest.raises(NotAStore) as raised:
        open_store("/home", storage=storage, config=SMALL, background=False)
    assert "/home" in str(raised.value)
    assert [entry.name for entry in storage.listdir("/home")] == ["letter.txt"]


# -- S12, S26: mappings ----------------------------------------------------------------------------


def test_s12_views_outlive_the_deletion_of_their_file_and_the_store(tmp_path: Path) -> None:
    config = StoreConfig(
        mapped_file_size_commit_log=64 << 10,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=100,
        max_index_num=1000,
        clean_file_forcibly_enable=True,
    )
    store = open_store(tmp_path / "store", config=config, background=False)
    for number in range(200):
        assert store.put(Message("T", body_of(number, 1000))).ok
    store.dispatch()
    held = [store.get("T", 0, offset, 8) for offset in (0, 32, 64)]
    views = [message.body_view for result in held for message in result]
    expected = [bytes(view) for view in views]
    old = 1_000_000_000
    for path in (tmp_path / "store" / "commitlog").iterdir():
        os.utime(path, (old, old))
    removed = store.clean()
    assert removed > 0
    assert [bytes(view) for view in views] == expected
    store.close()
    assert [bytes(view) for view in views] == expected
    with pytest.raises(StoreClosed):
        store.get("T", 0, 0)


def test_s12_readers_race_deletion_without_harm(tmp_path: Path) -> None:
    """Readers go on while files vanish: they get messages, or are told where to go on."""
    config = StoreConfig(
        mapped_file_size_commit_log=16 << 10, mapped_file_size_consume_queue=400, message_index_enable=False
    )
    store = open_store(tmp_path / "store", config=config, flush="async", background=False)
    problems: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            at = 0
            while not done.is_set():
                result = store.get("T", 0, at)
                for message in result:
                    assert message.body.startswith(b"body ")
                at = result.next_begin_offset if result.status != "OFFSET_OVERFLOW_ONE" else 0
        except BaseException as error:
            problems.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for number in range(1500):
            assert store.put(Message("T", body_of(number, 300))).ok
            if number % 50 == 49:
                store.dispatch()
                for path in (tmp_path / "store" / "commitlog").iterdir():
                    os.utime(path, (1_000_000_000, 1_000_000_000))
                store.clean()
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert not problems, problems
    assert store.min_physical_offset > 0
    store.close()


def test_s26_there_is_one_object_for_a_file_name() -> None:
    storage = MemoryStorage()
    queue = MappedFileQueue(storage, "/log", 4096)
    made: list[object] = []
    barrier = threading.Barrier(8)

    def make() -> None:
        barrier.wait()
        made.append(queue.try_create_mapped_file(0))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(file) for file in made}) == 1 and len(queue.files) == 1


def test_s26_writers_that_roll_at_once_share_the_new_file(tmp_path: Path) -> None:
    config = StoreConfig(
        mapped_file_size_commit_log=16 << 10,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=100,
        max_index_num=1000,
    )
    with open_store(tmp_path / "store", config=config, flush="async") as store:

        def write(writer: int) -> None:
            for number in range(150):
                result = store.put(Message("T", body_of(number, 200), queue_id=writer))
                while result.status == "CREATE_MAPPED_FILE_FAILED":
                    result = store.put(Message("T", body_of(number, 200), queue_id=writer))
                assert result.ok, result

        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.wait_visible()
        files = store._log.files.files
        assert len({file.file_from_offset for file in files}) == len(files)
        for writer in range(6):
            bodies = []
            at = 0
            while at < store.max_offset("T", writer):
                result = store.get("T", writer, at)
                bodies += [m.body for m in result]
                at = result.next_begin_offset
            assert bodies == [body_of(number, 200) for number in range(150)]


# -- one owner -------------------------------------------------------------------------------------

OPEN = "import sys; from penstock import open_store; open_store(sys.argv[1]).close(); print('opened')"


def open_elsewhere(path: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", OPEN, str(path)], capture_output=True, text=True, env=environment, check=False
    )


def test_second_process_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        assert store.put(Message("T", b"first")).ok
        refused = open_elsewhere(tmp_path / "store")
        assert refused.returncode != 0 and "StoreLocked" in refused.stderr
        assert store.put(Message("T", b"second")).ok
    allowed = open_elsewhere(tmp_path / "store")
    assert allowed.stdout == "opened\n", allowed.stderr


def test_second_opening_in_the_same_process_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        with pytest.raises(StoreLocked) as raised:
            open_store(tmp_path / "store")
        assert str(tmp_path) in str(raised.value)
        assert store.put(Message("T", b"still mine")).ok
    open_store(tmp_path / "store").close()


def test_failed_opening_gives_the_lock_back() -> None:
    place, numbers = closed_store()
    path = place.files("commitlog")[0]
    good = place.storage.read_file(path)
    place.storage.truncate(path, 100)
    for _ in range(2):
        with pytest.raises(CorruptFile):
            place.open()
    place.storage.truncate(path, len(good))
    place.storage.overwrite(path, 0, good)
    place.open()
    assert place.numbers() == numbers


def test_open_store_in_a_forked_child_raises(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    assert store.put(Message("T", b"parent")).ok
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        message = Message("T", b"child")
        calls = [
            lambda: store.put(message),
            lambda: store.put_raw(message),
            lambda: store.put_many([message]),
            lambda: store.put_async(message),
            lambda: store.get("T", 0, 0),
            lambda: store.query("T", "k"),
            lambda: store.flush(),
        ]
        for call in calls:
            try:
                call()
                said.append("done")
            except ForkedProcess:
                said.append("refused")
            except BaseException as error:
                said.append(repr(error))
        store.close()
        os.write(write, " ".join(said).encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(child, 0)
    assert answer == " ".join(["refused"] * 7)
    assert (tmp_path / "store" / "abort").exists(), "the child's close left the parent's store open"
    assert store.put(Message("T", b"parent again")).ok
    with pytest.raises(StoreLocked):
        open_store(tmp_path / "store")
    store.close()
    with open_store(tmp_path / "store") as again:
        assert [m.body for m in again.get("T", 0, 0)] == [b"parent", b"parent again"]
