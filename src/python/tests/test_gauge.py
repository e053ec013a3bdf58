"""Gauges in threads."""

import gc

import pytest
from conftest import eventually

import leaseway


def test_permits_are_returned(client):
    jobs = client.gauge("jobs", wants=2)
    eventually(lambda: jobs.capacity == 2)
    permit = jobs.acquire()
    with jobs:
        assert jobs.in_use == 2
        assert jobs.try_acquire() is None
        with pytest.raises(leaseway.Timeout):
            jobs.acquire(timeout=0.05)
    assert jobs.in_use == 1
    permit.release()
    permit.release()
    assert jobs.in_use == 0
    with jobs.acquire(2):
        assert jobs.in_use == 2
    jobs.try_acquire(2)
    gc.collect()
    assert jobs.in_use == 0, "garbage is returned"


def test_a_decorated_function_holds_a_permit(client):
    jobs = client.gauge("jobs", wants=3)

    @jobs.limit(n=2)
    def work():
        return jobs.in_use

    assert work() == 2
    assert jobs.in_use == 0

    @jobs.limit
    def fails():
        raise KeyError(jobs.in_use)

    with pytest.raises(KeyError, match="1"):
        fails()
    assert jobs.in_use == 0
