"""Files of a store: where bytes live, how they are mapped, in what order they become durable."""

from penstock.files.allocate import AllocateMappedFileService
from penstock.files.disk import DiskStorage
from penstock.files.filecache import FileCache
from penstock.files.mappedfile import MappedFile
from penstock.files.mappedfilequeue import MappedFileQueue
from penstock.files.memory import MemoryStorage
from penstock.files.multipath import MultiPathMappedFileQueue
from penstock.files.storage import Entry, Lock, SparseFile, Storage
from penstock.files.transient import TransientStorePool

__all__ = [
    "AllocateMappedFileService",
    "DiskStorage",
    "Entry",
    "FileCache",
    "Lock",
    "MappedFile",
    "MappedFileQueue",
    "MemoryStorage",
    "MultiPathMappedFileQueue",
    "SparseFile",
    "Storage",
    "TransientStorePool",
]
