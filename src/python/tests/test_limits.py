"""Permits of several limits at once."""

import asyncio
import gc
import os
import threading

import pytest
from conftest import eventually, template

import leaseway


@pytest.fixture
def limits(client):
    """100 tokens are saved up, at 10 per second, and there are two slots."""
    tokens = client.rate("tokens", wants=10, burst=100, max_debt=50)
    slots = client.gauge("slots", wants=2)
    eventually(lambda: tokens.available == 100 and slots.capacity == 2)
    return tokens, slots, client.limits(tokens.of(60), slots.of())


def test_all_permits_are_taken_or_none(limits):
    tokens, slots, both = limits
    assert both.resources == ["tokens", "slots"]
    with both.acquire():
        assert slots.in_use == 1 and tokens.available < 60
        refusal = both.try_acquire()
        assert not refusal and (refusal.index, refusal.resource) == (0, "tokens")
        assert 0 < refusal.retry_after <= 2 and "tokens" in refusal.reason
        assert slots.in_use == 1, "nothing was taken"
    assert slots.in_use == 0
    permit = both.with_permits(1, 2).try_acquire()
    assert permit and slots.in_use == 2
    assert both.with_permits(1, 1).try_acquire().resource == "slots"
    del permit
    gc.collect()
    assert slots.in_use == 0, "garbage is returned"


def test_a_timed_out_wait_takes_nothing(limits):
    tokens, slots, both = limits
    with slots.acquire(2):
        before = tokens.available
        with pytest.raises(leaseway.Timeout, match="tokens, slots"):
            both.acquire(timeout=0.05)
        assert tokens.available >= before and slots.in_use == 2


def test_threads_wait_for_all_limits(limits):
    tokens, slots, both = limits
    small, used = both.with_permits(5, 2), []

    def work():
        with small.acquire(timeout=30):
            used.append(slots.in_use)

    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert used == [2] * 8 and slots.in_use == 0


def test_a_reservation_is_settled_by_limit(limits):
    tokens, slots, both = limits
    with both.reserve() as reservation:
        assert reservation.reserved == [60, 1] and slots.in_use == 1
        reservation.settle(10, 1)
        assert slots.in_use == 0 and tokens.available >= 90
        with pytest.raises(RuntimeError, match="already settled"):
            reservation.settle(10, 1)
    both.charge(20, 0)
    assert tokens.available < 90
    both.refund(20, 0)
    assert tokens.available >= 90
    with pytest.raises(leaseway.DebtExceeded, match="tokens"):
        both.charge(500, 0)
    with pytest.raises(ValueError, match="1 numbers for 2 limits"):
        both.charge(1)
    with pytest.raises(ValueError, match="n=-1"):
        tokens.of(-1)
    refusal = both.try_reserve()
    assert not refusal and refusal.resource == "tokens"


def test_a_cancelled_task_takes_nothing(limits):
    tokens, slots, both = limits

    async def main():
        async with both.acquire_async():
            assert slots.in_use == 1
        held = await slots.acquire_async(2)
        waiting = asyncio.ensure_future(both.with_permits(1, 1).reserve_async())
        await asyncio.sleep(0.02)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        held.release()
        # The client's thread drops the cancelled call soon.
        while slots.in_use > 0:
            await asyncio.sleep(0.01)
        async with both.with_permits(1, 1).reserve_async(timeout=20) as reservation:
            reservation.settle(0, 0)

    asyncio.run(asyncio.wait_for(main(), 60))


BUDGET = """- identifier_glob: "cents*"
  capacity: 500
  algorithm: {kind: BUDGET, refresh_interval: 1, learning_mode_duration: 0, parameters: {period: none}}
"""


@pytest.fixture
def with_budget(serve):
    """As `limits`, with a budget of 500 cents."""
    with leaseway.Client(serve(BUDGET, template("*", 100)).address) as client:
        tokens, slots = client.rate("tokens", wants=10, burst=100, max_debt=50), client.gauge("slots", wants=2)
        cents = client.budget("cents")
        eventually(lambda: tokens.available == 100 and slots.capacity == 2)
        yield cents, tokens, slots, client.limits(cents.of(2.5), tokens.of(60), slots.of())


def test_amounts_of_budgets_are_taken_with_permits(with_budget):
    cents, tokens, slots, limits = with_budget
    with limits.acquire(timeout=10):
        assert cents.spent == 2.5 and slots.in_use == 1 and tokens.available < 60
        more = limits.with_permits(2.5, 100, 1)
        eventually(lambda: more.try_acquire().resource == "tokens")
        assert cents.spent == 2.5 and cents.left >= 2.5 and slots.in_use == 1, "nothing was taken"
    assert cents.spent == 2.5 and slots.in_use == 0
    refusal = limits.with_permits(1000, 0, 1).try_reserve()
    assert not refusal and (refusal.index, refusal.resource, refusal.retry_after) == (0, "cents", None)
    assert slots.in_use == 0
    for wrong in ((1, 0.5, 1), (-1, 1, 1), (float("nan"), 1, 1), (1, 2**32, 1)):
        with pytest.raises(ValueError, match="permits=|n="):
            limits.with_permits(*wrong)
    with pytest.raises(ValueError, match="amount=-1"):
        cents.of(-1)
    assert "0.25" in repr(cents.of(0.25)) and repr(tokens.of(2)).endswith(", 2)")


def test_amounts_of_budgets_are_settled_by_limit(with_budget):
    cents, tokens, slots, limits = with_budget
    with limits.reserve(timeout=10) as reservation:
        assert reservation.reserved == [2.5, 60, 1] and isinstance(reservation.reserved[1], int)
        with pytest.raises(ValueError, match="used=0.5: expected a whole number"):
            reservation.settle(1, 0.5, 1)
        reservation.settle(0.25, 10, 1)
        with pytest.raises(RuntimeError, match="already settled"):
            reservation.settle(0, 0, 0)
    assert cents.spent == 0.25 and slots.in_use == 0 and tokens.available >= 90
    limits.charge(1.5, 0, 0)
    eventually(lambda: cents.spent == 1.75 and cents.owed == 0)
    limits.refund(0.75, 0, 0)
    assert cents.spent == 1.75  # amounts stay spent
    with pytest.raises(ValueError, match="permits=1.5"):
        limits.charge(0, 1.5, 0)
    with limits.with_permits(2, 1, 1).reserve(timeout=10):
        pass
    assert cents.spent == 3.75, "it was not settled"


def test_a_cancelled_wait_gives_amounts_back(with_budget):
    cents, tokens, slots, limits = with_budget
    small = limits.with_permits(2, 0, 1)

    async def main():
        held = await slots.acquire_async(2)
        with pytest.raises(leaseway.Timeout):
            await small.acquire_async(timeout=0.5)
        waiting = asyncio.ensure_future(small.reserve_async())
        while cents.spent != 2:
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        while cents.spent != 0:
            await asyncio.sleep(0.01)
        held.release()
        async with small.reserve_async(timeout=20) as reservation:
            reservation.settle(1, 0, 0)

    asyncio.run(asyncio.wait_for(main(), 60))
    with slots.acquire(2), pytest.raises(leaseway.Timeout, match="cents, tokens, slots"):
        small.acquire(timeout=0.05)
    assert cents.spent == 1


def test_threads_take_several_budgets_in_any_order(serve):
    address, spent = serve(BUDGET).address, []

    def work(first):
        with leaseway.Client(address) as client:
            budgets = [client.budget("cents"), client.budget("cents2")]
            limits = client.limits(budgets[first].of(4), budgets[1 - first].of(4))
            used = 0
            while True:
                try:
                    with limits.reserve(timeout=5) as reservation:
                        reservation.settle(2, 2)
                        used += 2
                except leaseway.Timeout:
                    spent.append(used)
                    return

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 1)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert 480 <= sum(spent) <= 500


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_opens_its_own(limits):
    tokens, slots, both = limits
    small = both.with_permits(1, 1)
    with small.acquire():
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with small.acquire(timeout=20):
                    code = 0 if slots.in_use == 1 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert slots.in_use == 1


def test_a_closed_client_raises(client):
    both = client.limits(client.rate("tokens").of(), client.gauge("slots").of())
    client.close()
    with pytest.raises(leaseway.Closed):
        both.try_acquire()
    with pytest.raises(leaseway.Closed):
        both.acquire()
