"""Benchmarks: the same work through Penstock and through what one would take instead."""
