"""Builds the compiled part. Everything else about the package is in pyproject.toml."""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

if sys.platform == "win32":
    sys.exit("Penstock needs Linux or macOS: it maps and locks files the POSIX way. On Windows, use WSL.")

cores = os.cpu_count() or 1
native = Path("src/penstock/_native")
extensions = [
    Extension(
        f"penstock._native.{source.stem}",
        [str(source)],
        include_dirs=[str(native)],
        # Without what debuggers want: it is a third of the time that compiling takes.
        extra_compile_args=[
            "-O3",
            "-g0",
            "-fno-strict-aliasing",
            "-Wno-unreachable-code",
            "-Wno-unused-function",
        ],
    )
    for source in sorted(native.glob("*.pyx"))
]

setup(
    ext_modules=cythonize(
        extensions,
        include_path=["src"],
        # Worker processes are started anew on macOS and would run this file again.
        nthreads=cores if sys.platform == "linux" and len(extensions) > 1 else 0,
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "freethreading_compatible": False,
        },
    ),
    options={"build_ext": {"parallel": cores}},
)
