"""From the system's errors to the store's."""

from __future__ import annotations

import errno

from penstock.errors import DiskFull, StoreError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def store_error(error: OSError, doing: str) -> StoreError:
    """The store's error for a failed write or allocation; a full disk can be tried again."""
    file = error.filename if isinstance(error.filename, str) else None
    if error.errno in FULL:
        return DiskFull(
            f"no space left while {doing}", file=file, hint="free space and try again; nothing was written"
        )
    return StoreError(f"{error.strerror or error} while {doing}", file=file)
