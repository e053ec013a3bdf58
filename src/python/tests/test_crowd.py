"""Processes of four kinds at one rate, for a short time; `crowd.py` does it for as long as wanted."""

import crowd
from conftest import BINARY


def test_a_crowd_never_uses_more_than_there_is_also_when_its_master_is_killed():
    outcome = crowd.run(processes=8, seconds=16, window=1, binary=BINARY)
    print(outcome)
    assert outcome.is_kept_to
    # How much of it is used depends on how fast the machine is.
    assert all(outcome.passed.values()) and outcome.leased > 0
