"""Builds the compiled part. Everything else about the package is in pyproject.toml."""

import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

if sys.platform == "win32":
    sys.exit("Penstock needs Linux or macOS: it maps and locks files the POSIX way. On Windows, use WSL.")

native = Path("src/penstock/_native")
extensions = [
    Extension(
        f"penstock._native.{source.stem}",
        [str(source)],
        include_dirs=[str(native)],
        extra_compile_args=["-O3", "-fno-strict-aliasing", "-Wno-unreachable-code", "-Wno-unused-function"],
    )
    for source in sorted(native.glob("*.pyx"))
]

setup(
    ext_modules=cythonize(
        extensions,
        include_path=["src"],
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "freethreading_compatible": False,
        },
    )
)
