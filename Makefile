# Each target sets up what it needs: a local .venv, the compiled part and, after asking, what the system lacks.
#   make demo            see it work
#   make test            format, lint, types, tests
#   make crash           kill and crash-state suites, long
#   make spark           Spark on clusters of several processes, killed and restarted, long
#   make interop-store   against the real RocketMQ store (Java 17, Maven)
#   make interop         that, and the real Java and Go clients, brokers and mqadmin against ours, long
#   make bench           against the real RocketMQ store and broker and Spark's own reader, in figures

SHELL := /bin/bash
PYTHON := .venv/bin/python
# One more than two cores: some tests wait for what takes its time.
JOBS ?= 3
# How much the crash suites do; .ci/run asks for less.
KILLS ?= 300
CRASH_STATES ?= 20000
CRASH_TESTS ?= tests
SPARK_TESTS ?= tests
INTEROP_TESTS ?= tests

.PHONY: setup native demo test lint unit crash spark interop-store interop bench clean

setup:
	@tools/setup

native:
	@tools/setup native

demo: setup
	@$(PYTHON) -m penstock.demo

test: lint unit

lint:
	@tools/setup dev
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

unit:
	@tools/setup dev
	$(PYTHON) -m pytest -n $(JOBS) --dist loadgroup -m "not crash and not interop and not cluster"

crash:
	@tools/setup dev
	PENSTOCK_KILLS=$(KILLS) PENSTOCK_CRASH_STATES=$(CRASH_STATES) $(PYTHON) -m pytest -n $(JOBS) -m crash $(CRASH_TESTS)

spark:
	@tools/setup dev
	$(PYTHON) -m pytest -m cluster $(SPARK_TESTS)

interop-store:
	@tools/setup java
	$(PYTHON) -m pytest -m interop tests/interop

interop:
	@tools/setup java
	$(PYTHON) -m pytest -m interop $(INTEROP_TESTS)

bench:
	@tools/setup java
	.venv/bin/penstock bench store --peer rocketmq
	.venv/bin/penstock bench broker --peer rocketmq
	.venv/bin/penstock bench spark

clean:
	rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f src/penstock/_native/*.so src/penstock/_native/*.c
