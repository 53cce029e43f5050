"""Files under config/: whatever happens to them, the last good copy serves, or an error names the file."""

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import CorruptFile, DiskFull, StoreError
from penstock.files.disk import DiskStorage
from penstock.files.memory import MemoryStorage
from penstock.store.jsonfile import MAX_FILE_SIZE, JsonFile, load_json, save_json

OLD, NEW = {"offsetTable": {"t@g": {0: 1}}}, {"offsetTable": {"t@g": {0: 2}}}


class Power(Exception):
    """The machine went off."""


class FailingStorage(DiskStorage):
    """Fails instead of making a change, after the given number of changes."""

    def __init__(self, changes: int, error: Exception) -> None:
        super().__init__()
        self.changes = changes
        self.error = error

    def write_atomic(self, path: Any, data: bytes) -> None:
        if self.changes == 0:
            raise self.error
        self.changes -= 1
        super().write_atomic(path, data)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "config" / "consumerOffset.json")


@pytest.fixture
def storage() -> DiskStorage:
    return DiskStorage()


@pytest.fixture
def saved(storage: DiskStorage, path: str) -> Iterator[Path]:
    """A file that holds NEW, its backup OLD."""
    save_json(storage, path, OLD)
    save_json(storage, path, NEW)
    yield Path(path)


def backup(path: str | Path) -> Path:
    return Path(f"{path}.bak")


def test_nothing_saved_is_nothing_loaded(storage: DiskStorage, path: str) -> None:
    assert load_json(storage, path) is None


def test_saved_is_loaded_and_the_one_before_is_the_backup(storage: DiskStorage, saved: Path) -> None:
    assert load_json(storage, str(saved)) == NEW
    assert load_json(storage, f"{saved}.bak") == OLD
    assert saved.read_text() == '{\n\t"offsetTable":{\n\t\t"t@g":{\n\t\t\t0:2\n\t\t}\n\t}\n}'


def test_nothing_but_the_two_files_is_left_behind(saved: Path) -> None:
    assert sorted(entry.name for entry in saved.parent.iterdir()) == [saved.name, saved.name + ".bak"]


def test_s16_file_torn_anywhere_is_served_by_the_backup(storage: DiskStorage, saved: Path) -> None:
    whole = saved.read_bytes()
    for length in range(len(whole)):
        saved.write_bytes(whole[:length])
        file = JsonFile(storage, str(saved))
        assert file.load() == OLD
        assert (file.fault is None) == (length == 0)
        assert file.fault is None or file.fault.file == str(saved)


@pytest.mark.parametrize("stale", [b"}", b"\x00" * 512, b"\n\t}\n}", b'{"offsetTable":{}}', b"\xff\xfe"])
def test_s16_stale_bytes_behind_the_end_are_not_believed(
    storage: DiskStorage, saved: Path, stale: bytes
) -> None:
    length = len(saved.read_bytes())
    saved.write_bytes(saved.read_bytes() + stale)
    file = JsonFile(storage, str(saved))
    assert file.load() == OLD
    assert file.fault is not None and file.fault.offset is not None and file.fault.offset >= length


def test_s16_missing_file_is_served_by_the_backup(storage: DiskStorage, saved: Path) -> None:
    saved.unlink()
    assert load_json(storage, str(saved)) == OLD


def test_s16_zeros_of_a_lost_write_are_served_by_the_backup(storage: DiskStorage, saved: Path) -> None:
    saved.write_bytes(bytes(len(saved.read_bytes())))
    assert load_json(storage, str(saved)) == OLD


def test_s16_wrong_shape_is_served_by_the_backup(storage: DiskStorage, saved: Path) -> None:
    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError("no object")
        return value

    saved.write_text("[1]")
    file = JsonFile(storage, str(saved), decode=decode)
    assert file.load() == OLD
    assert file.fault is not None and file.fault.found == "no object"


def test_s16_error_names_the_file_and_the_place_when_no_copy_is_good(
    storage: DiskStorage, saved: Path
) -> None:
    backup(saved).unlink()
    saved.write_text('{"é":1,,}')
    with pytest.raises(CorruptFile) as caught:
        load_json(storage, str(saved))
    assert caught.value.file == str(saved)
    assert caught.value.offset == len('{"é":1,'.encode())
    assert "delete it" in caught.value.hint


def test_s16_torn_backup_without_a_file_is_an_error_of_its_own(storage: DiskStorage, saved: Path) -> None:
    saved.unlink()
    backup(saved).write_text("{")
    with pytest.raises(CorruptFile) as caught:
        load_json(storage, str(saved))
    assert caught.value.file == str(backup(saved))


def test_s16_torn_file_never_becomes_the_backup(storage: DiskStorage, saved: Path) -> None:
    saved.write_text('{"offsetTable":')
    save_json(storage, str(saved), {"a": 1})
    assert load_json(storage, str(saved)) == {"a": 1}
    assert load_json(storage, str(backup(saved))) == OLD


@pytest.mark.parametrize("changes", [0, 1])
@pytest.mark.parametrize("damage", [None, b"", b'{"offset'])
def test_s16_power_cut_inside_a_save_leaves_a_good_copy(
    saved: Path, changes: int, damage: bytes | None
) -> None:
    if damage is not None:
        saved.write_bytes(damage)
    before = load_json(DiskStorage(), str(saved))
    with pytest.raises(Power):
        for number in range(3):
            save_json(FailingStorage(changes, Power()), str(saved), {"number": number})
    after = load_json(DiskStorage(), str(saved))
    assert after in (before, {"number": 0}, {"number": 1}, {"number": 2})


def test_full_disk_is_named_and_what_was_saved_stays(saved: Path) -> None:
    for changes in (0, 1):
        with pytest.raises(DiskFull) as caught:
            save_json(FailingStorage(changes, OSError(errno.ENOSPC, "No space left")), str(saved), {})
        assert caught.value.file == str(saved)
        assert load_json(DiskStorage(), str(saved)) == NEW


def test_saving_resumes_when_space_returns(saved: Path) -> None:
    storage = FailingStorage(0, OSError(errno.ENOSPC, "No space left"))
    file = JsonFile(storage, str(saved))
    file.load()
    with pytest.raises(DiskFull):
        file.save({"a": 1})
    storage.changes = 9
    file.save({"a": 1})
    assert load_json(DiskStorage(), str(saved)) == {"a": 1}
    assert load_json(DiskStorage(), f"{saved}.bak") == NEW


def test_other_disk_error_names_the_file(saved: Path) -> None:
    with pytest.raises(StoreError, match="Input/output"):
        save_json(FailingStorage(0, OSError(errno.EIO, "Input/output error")), str(saved), {})


def test_file_of_hostile_size_is_refused_unread(storage: DiskStorage, saved: Path) -> None:
    with saved.open("wb") as stream:
        stream.truncate(MAX_FILE_SIZE * 1000)
    file = JsonFile(storage, str(saved))
    assert file.load() == OLD
    assert file.fault is not None and "more than any such file" in file.fault.found


def test_loading_writes_nothing(storage: DiskStorage, saved: Path) -> None:
    saved.write_text("torn {")
    names = {entry.name: entry.read_bytes() for entry in saved.parent.iterdir()}
    load_json(storage, str(saved))
    assert {entry.name: entry.read_bytes() for entry in saved.parent.iterdir()} == names


def test_s16_every_crash_state_of_every_step_of_a_save_has_a_good_copy() -> None:
    """The power goes at each step, twice in a row: the last save that returned loads, or the one cut."""
    path = "/store/config/consumerOffset.json"
    states = 0

    def cut_saves(storage: MemoryStorage, depth: int) -> None:
        nonlocal states
        allowed: list[Any] = [load_json(storage, path)]
        images: list[tuple[list[Any], MemoryStorage]] = []

        def cut(*_: object) -> None:
            images.extend((list(allowed), image) for image in storage.crash_states(limit=32, torn=True))

        storage.on_step = cut
        for number in (1, 2):
            value = {"depth": depth, "number": number, "padding": "x" * 5000}
            allowed.append(value)
            save_json(storage, path, value)
            allowed[:] = [value]
            cut()
        storage.on_step = None
        for expected, image in images:
            states += 1
            assert load_json(image, path) in expected
            if depth:
                cut_saves(image, depth - 1)

    cut_saves(MemoryStorage(), 1)
    assert states > 100
