"""A row of files that lies in several folders, as a rule on several disks (format section 6.9)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import PurePath
from typing import Any

from penstock.errors import CorruptFile, DiskFull
from penstock.files.failure import store_error
from penstock.files.mappedfile import MappedFile, file_name
from penstock.files.mappedfilequeue import MappedFileQueue
from penstock.files.storage import Entry, Storage


class MultiPathMappedFileQueue(MappedFileQueue):
    """The files of all ``folders`` together, in the order of their names.

    File number ``i`` (its offset divided by the size) is made in ``available[i % n]``: the writable folders
    in order, without those that ``full`` names, unless that leaves none. A folder that has no room for a file
    is passed over for that file. Folders for reading only keep what they have until it expires.
    """

    def __init__(
        self,
        storage: Storage,
        writable_folders: Sequence[str],
        mapped_file_size: int,
        *,
        read_only_folders: Sequence[str] = (),
        full: Callable[[], Collection[str]] = tuple,
        **options: Any,
    ) -> None:
        if not writable_folders:
            raise ValueError("a file queue needs a folder that new files can go to")
        super().__init__(storage, writable_folders[0], mapped_file_size, **options)
        self.writable_folders = tuple(writable_folders)
        self.read_only_folders = tuple(read_only_folders)
        self._full = full
        self._placed: dict[int, str] = {}
        """Folder of each file that was asked for and is not in the queue yet: asking again finds it there."""
        self._refused: dict[int, set[str]] = {}
        """Folders that had no room for a file."""

    @property
    def folders(self) -> tuple[str, ...]:
        return self.writable_folders + self.read_only_folders

    def load(self, *, strict: bool = True) -> None:
        """As for one folder. Two files of one name are ``CorruptFile``, unless one of them holds nothing:
        it was made ahead, and then another folder was chosen."""
        if self.writable:
            self._make_folders()
        super().load(strict=strict)

    def _named(self, strict: bool) -> list[tuple[str, Entry]]:
        chosen: dict[int, tuple[str, Entry]] = {}
        for path, entry in super()._named(strict):
            offset = int(entry.name)
            if offset in chosen:
                path, entry = self._one_of(chosen[offset], (path, entry))
            chosen[offset] = (path, entry)
        return list(chosen.values())

    def _one_of(self, one: tuple[str, Entry], other: tuple[str, Entry]) -> tuple[str, Entry]:
        for empty, kept in ((other, one), (one, other)):
            if self._is_unfinished(*empty):
                self._remove_unfinished(empty[0])
                return kept
        raise CorruptFile(
            other[0],
            found=f"a file of this name lies in {PurePath(one[0]).parent} too, and both hold bytes",
            hint="they are one part of the log; move one of them away",
        )

    def _make_folders(self) -> None:
        try:
            for folder in self.writable_folders:
                self.storage.makedirs(folder)
        except OSError as error:
            raise store_error(error, "making the folder of a file queue") from error

    def try_create_mapped_file(self, create_offset: int, *, wait: bool = True) -> MappedFile | None:
        """As for one folder. ``DiskFull`` only when no folder has room."""
        while True:
            try:
                made = super().try_create_mapped_file(create_offset, wait=wait)
            except DiskFull:
                if not self._pass_over(create_offset):
                    raise
                continue
            if made is not None:
                with self._guard:
                    self._placed.pop(create_offset, None)
                    self._refused.pop(create_offset, None)
            return made

    def _pass_over(self, offset: int) -> bool:
        """Have the file made elsewhere; False when every folder refused it. The next call tries all again."""
        with self._guard:
            refused = self._refused.setdefault(offset, set())
            refused.add(self._placed.pop(offset, self.path))
            if set(self.writable_folders) <= refused:
                del self._refused[offset]
                return False
            return True

    def _place(self, offset: int) -> str:
        with self._guard:
            folder = self._placed.get(offset)
            if folder is None:
                folder = self._placed[offset] = self._folder_for(offset)
            return str(PurePath(folder) / file_name(offset))

    def _folder_for(self, offset: int) -> str:
        refused = self._refused.get(offset, ())
        full = self._full()
        room = [folder for folder in self.writable_folders if folder not in refused]
        available = [folder for folder in room if folder not in full] or room
        return available[offset // self.mapped_file_size % len(available)]

    def _discard_ahead(self) -> None:
        super()._discard_ahead()
        self._placed.clear()
        self._refused.clear()
