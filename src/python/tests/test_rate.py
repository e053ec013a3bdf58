"""Rates in threads."""

import math
import os
import signal
import threading
import time

import pytest
from conftest import eventually, seconds, template

import leaseway
from leaseway import Client


def test_a_rate_keeps_to_its_lease(client):
    searches = client.rate("searches", wants=100)
    eventually(lambda: searches.capacity == 100)
    assert searches.basis == "lease"
    capacity, left = searches.lease
    assert capacity == 100 and 50 < left <= 60
    searches.wait()
    took = seconds(lambda: [searches.wait() for _ in range(100)])
    assert took >= (100 - 3) / 100, "the burst is one and 20 ms' worth"


def test_threads_share_a_queue(client):
    searches = client.rate("searches", wants=100)
    eventually(lambda: searches.capacity == 100)
    had, end = [0] * 8, time.monotonic() + 1.0

    def work(index):
        while time.monotonic() < end:
            searches.wait()
            had[index] += 1

    threads = [threading.Thread(target=work, args=[index]) for index in range(8)]
    begun = time.monotonic()
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sum(had) <= 100 * (time.monotonic() - begun) + 3
    assert max(had) - min(had) <= 2, f"first come, first served: {had}"


def test_try_acquire_and_standing(client):
    searches = client.rate("searches", wants=10, burst=4)
    eventually(lambda: searches.available == 4)
    assert searches.try_acquire(4) is True
    assert searches.try_acquire() is False
    assert searches.try_acquire(5) is False, "more than there ever is at once"
    standing = searches.standing
    assert standing.burst == 4 and standing.capacity == 10 and standing.available < 1
    assert 0 < standing.ready_in() <= 0.1
    assert 0.3 < standing.ready_in(4) <= 0.4


def test_a_timed_out_wait_takes_nothing(client):
    searches = client.rate("searches", wants=10, burst=20)
    eventually(lambda: searches.available == 20)
    searches.wait(20)
    with pytest.raises(leaseway.Timeout, match="nothing of `searches` within 0.2 s") as raised:
        searches.wait(20, timeout=0.2)
    assert isinstance(raised.value, TimeoutError) and isinstance(raised.value, leaseway.LeasewayError)
    searches.wait(2, timeout=0.5)


def test_waiting_releases_the_interpreter_lock(client):
    searches = client.rate("nothing", wants=0)
    thread = threading.Thread(target=lambda: pytest.raises(leaseway.Timeout, searches.wait, timeout=1.0))
    thread.start()
    steps = 0
    while thread.is_alive():
        steps += 1
        time.sleep(0.001)
    assert steps > 100


def test_control_c_ends_a_wait(client):
    # A shell that starts the tests in the background makes them ignore the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    searches = client.rate("searches", wants=10, burst=20)
    eventually(lambda: searches.available == 20)
    searches.wait(20)
    threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        searches.wait(1000)
    assert time.monotonic() - begun < 2
    searches.wait(1, timeout=1)


def test_costs_known_afterwards(client):
    tokens = client.rate("tokens", wants=100, burst=50, max_debt=1000)
    eventually(lambda: tokens.available == 50)
    with tokens.reserve(50) as reservation:
        assert reservation.reserved == 50
        reservation.settle(10)
    assert 39 <= tokens.available <= 41 or tokens.available <= 50, "40 permits were returned"
    with pytest.raises(RuntimeError, match="already settled"):
        reservation.settle(1)
    tokens.charge(200)
    assert 100 < tokens.debt <= 160
    assert client.health.debts == {"tokens": pytest.approx(tokens.debt, abs=5)}
    assert tokens.standing.available < -100
    assert tokens.try_acquire() is False
    assert tokens.try_reserve(1) is None
    with pytest.raises(leaseway.DebtExceeded, match="maximum debt of 1000 exceeded") as raised:
        tokens.charge(10_000)
    assert raised.value.max_debt == 1000 and raised.value.uncharged > 8000


def test_an_unsettled_reservation_counts_as_used(client):
    tokens = client.rate("tokens", wants=10, burst=50)
    eventually(lambda: tokens.available == 50)
    with tokens.reserve(50):
        pass
    assert tokens.available <= 1
    tokens.refund(50)
    assert tokens.available >= 48


def test_a_window_saves_up_its_capacity(client):
    calls = client.rate("calls", wants=60, window=2)
    eventually(lambda: calls.available >= 60)
    assert calls.standing.burst == 120


def test_decorators_and_with(client):
    searches = client.rate("searches", wants=10, burst=6)
    eventually(lambda: searches.available == 6)

    @searches.limit
    def one(number):
        "counts"
        return number + 1

    @searches.limit(n=3, timeout=0.05)
    def three():
        return "three"

    assert one(1) == 2 and one.__doc__ == "counts"
    assert three() == "three"
    with searches:
        pass
    with pytest.raises(leaseway.Timeout):
        three()


def test_wants_are_estimated_until_they_are_set(client):
    searches = client.rate("searches")
    assert searches.capacity == 0 and searches.basis in ("unknown", "lease")
    searches.set_wants(30)
    eventually(lambda: searches.capacity == 30)
    searches.estimate_wants()
    with pytest.raises(leaseway.OpenError, match="invalid wants -1: expected a number"):
        searches.set_wants(-1)


def test_handles_of_a_resource_share_lease_and_queue(client):
    one, other = client.rate("searches", wants=30), client.rate("searches")
    eventually(lambda: other.capacity == 30)
    assert one.client is client
    with pytest.raises(leaseway.OpenError, match="is already open as a rate"):
        client.gauge("searches")
    for options in ({"wants": 31}, {"priority": 1}, {"mode": "optimistic"}, {"burst": 5}, {"window": 60}):
        with pytest.raises(leaseway.OpenError, match="already open with another"):
            client.rate("searches", **options)
    client.rate("searches", wants=30, priority=0, mode="safe")
    del one, other
    client.gauge("searches")


def test_an_unlimited_capacity_admits_everybody(serve):
    server = serve(template("*", 0, kind="NO_ALGORITHM"))
    with Client(server.address) as client:
        free = client.rate("free", wants=1e6)
        eventually(lambda: free.capacity > 0)
        assert math.isinf(free.capacity) or free.capacity == 1e6
        for _ in range(1000):
            free.wait()


@pytest.mark.parametrize(
    "call, expected",
    [
        (lambda rate: rate.wait(-1), "n=-1: expected a whole number from 0 to 4294967295"),
        (lambda rate: rate.try_acquire(2**32), "n=4294967296: expected"),
        (lambda rate: rate.wait(timeout=-1), "timeout=-1: expected seconds, 0 or more"),
        (lambda rate: rate.wait(timeout=math.nan), "timeout=NaN: expected seconds"),
        (lambda rate: rate.charge(-5), "n=-5: expected a whole number, 0 or more"),
    ],
)
def test_numbers_out_of_range_are_named(client, call, expected):
    with pytest.raises(ValueError, match=expected):
        call(client.rate("searches"))


def test_an_infinite_timeout_is_allowed(client):
    searches = client.rate("searches", wants=50)
    searches.wait(timeout=math.inf)
    searches.wait(timeout=1e300)
