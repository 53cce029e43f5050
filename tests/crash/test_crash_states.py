"""The power fails at any step: every state it may leave on disk recovers to everything that was acked."""

from __future__ import annotations

import os
import random

import pytest

from crash.ledger import Ledger
from crash.workload import CONFIGS, Workload, recovered, recovered_interrupted
from penstock.files.memory import MemoryStorage

STATES = int(os.environ.get("PENSTOCK_CRASH_STATES", "20000"))
SEEDS = 10
STEPS = 60


class Cuts:
    """Takes crash states of a running workload until ``wanted`` of them were recovered."""

    def __init__(self, config_name: str, seed: int, wanted: int) -> None:
        self.config = CONFIGS[config_name]
        self.wanted = wanted
        self.states = 0
        self.promised = 0
        self.error: Exception | None = None
        self._rng = random.Random(seed)
        self._name = config_name
        self._seed = seed

    def __call__(self, where: str, storage: MemoryStorage, ledger: Ledger) -> None:
        if self.states >= self.wanted or self._rng.random() > 0.08:
            return
        few = self._rng.choice((1, 2, 6))
        torn = self._rng.random() < 0.2
        for image in storage.crash_states(few, seed=self._rng.randrange(1 << 30), torn=torn):
            twice = image.copy() if self._rng.random() < 0.1 else None
            self._recover(where, image, ledger)
            if twice is not None:
                for broken in recovered_interrupted(twice, self.config, self._rng.randrange(1 << 30)):
                    self._recover(f"recovery after {where}", broken, ledger)

    def _recover(self, where: str, image: MemoryStorage, ledger: Ledger) -> None:
        self.states += 1
        self.promised += ledger.promised_count
        try:
            recovered(image, self.config, ledger, clean_close=self._rng.random() < 0.5)
        except Exception as error:
            error.add_note(f"config {self._name}, seed {self._seed}, state {self.states}, cut in: {where}")
            self.error = self.error or error  # the workload's own store may take it for a fault of its disk
            raise


def run_states(config_name: str, seed: int, wanted: int) -> Cuts:
    cuts = Cuts(config_name, seed, wanted)
    round_number = 0
    while cuts.states < wanted:
        try:
            Workload(cuts.config, seed * 1000 + round_number, cuts).run(STEPS)
        finally:
            if cuts.error is not None:
                raise cuts.error
        round_number += 1
    return cuts


@pytest.mark.parametrize("config_name", sorted(CONFIGS))
def test_acked_messages_survive_some_power_cuts(config_name: str) -> None:
    cuts = run_states(config_name, seed=77, wanted=60)
    assert cuts.states >= 60 and cuts.promised > 0


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("config_name", sorted(CONFIGS))
def test_acked_messages_survive_every_power_cut(config_name: str, seed: int) -> None:
    wanted = -(-STATES // (SEEDS * len(CONFIGS)))
    cuts = run_states(config_name, seed, wanted)
    assert cuts.states >= wanted
    assert cuts.promised > 0 or wanted < 100
