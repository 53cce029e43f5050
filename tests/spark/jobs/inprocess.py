"""Jobs without Spark: every split is pickled and worked on here, as a task would."""

from __future__ import annotations

import importlib
import pickle
from typing import Any

import pytest


def names_of(schema: str) -> list[str]:
    return [column.split()[0] for column in schema.split(", ")]


def run_splits(
    spark: Any, splits: list[Any], work: Any, schema: str, *, name: str = "", progress: Any = None
) -> list[Any]:
    rows = []
    for split in splits:
        for row in pickle.loads(pickle.dumps(work))(pickle.loads(pickle.dumps(split))):
            rows.append(dict(zip(names_of(schema), row, strict=True)))
    if progress is not None:
        progress(len(splits), len(splits))
    return rows


def run_each(spark: Any, splits: list[Any], work: Any, *, name: str = "", progress: Any = None) -> list[Any]:
    made = [pickle.loads(pickle.dumps(work))(pickle.loads(pickle.dumps(split))) for split in splits]
    if progress is not None:
        progress(len(splits), len(splits))
    return [pickle.loads(pickle.dumps(result)) for result in made]


def without_spark(monkeypatch: pytest.MonkeyPatch, job: str) -> Any:
    """The job's module, with tasks that run here."""
    module = importlib.import_module(f"penstock.spark.jobs.{job}")
    for way in (run_splits, run_each):
        if hasattr(module, way.__name__):
            monkeypatch.setattr(module, way.__name__, way)
    return module
