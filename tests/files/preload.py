"""A library put in front of the C library, in which syncs fail with EIO while a flag file exists."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int refused(void)
{
    const char *flag = getenv("PENSTOCK_TEST_REFUSE_SYNC");
    if (flag == NULL || access(flag, F_OK) != 0) return 0;
    errno = EIO;
    return 1;
}

#define GUARD(name)                                              \
    int name(int fd)                                             \
    {                                                            \
        static int (*real)(int);                                 \
        if (refused()) return -1;                                \
        if (real == NULL) real = (int (*)(int))dlsym(RTLD_NEXT, #name); \
        return real(fd);                                         \
    }

GUARD(fsync)
GUARD(fdatasync)
"""


def run_with_refusable_sync(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program; ``sys.argv[1]`` is the flag file: while it exists, every sync fails with EIO."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler and Linux")
    source, library, flag = folder / "refuse.c", folder / "refuse.so", folder / "refuse-sync"
    source.write_text(SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    environment = os.environ | {"LD_PRELOAD": str(library), "PENSTOCK_TEST_REFUSE_SYNC": str(flag)}
    return subprocess.run(
        [sys.executable, "-c", program, str(flag)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
