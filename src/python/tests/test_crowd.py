"""Runs `crowd.py` for a short time: processes of four kinds that share a rate."""

import crowd
from conftest import BINARY


def test_processes_never_exceed_the_capacity_when_the_master_is_killed():
    outcome = crowd.run(processes=8, seconds=16, window=1, binary=BINARY)
    print(outcome)
    assert outcome.is_kept_to
    # The used fraction depends on the speed of the machine.
    assert all(outcome.passed.values()) and outcome.leased > 0
