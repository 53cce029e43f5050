"""``python -m penstock.bench store``."""

from penstock.bench.command import app

app()
