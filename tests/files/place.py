"""A storage and the folder in it that a test owns."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.files import Storage


@dataclass
class Place:
    storage: Storage
    root: str

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"
