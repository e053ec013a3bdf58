"""Budgets in threads and event loops."""

import asyncio
import threading

import pytest
from conftest import eventually

import leaseway

AMOUNT = 500

BUDGET = f"""- identifier_glob: "tokens"
  capacity: {AMOUNT}
  algorithm: {{kind: BUDGET, refresh_interval: 1, learning_mode_duration: 0, parameters: {{period: none}}}}
"""


@pytest.fixture
def tokens(serve):
    with leaseway.Client(serve(BUDGET).address) as client:
        yield client.budget("tokens")


def test_threads_and_tasks_spend_the_whole_amount_and_no_more(serve):
    address = serve(BUDGET).address
    spent = []

    def spend():
        with leaseway.Client(address) as client:
            tokens = client.budget("tokens")
            while True:
                try:
                    tokens.spend(1, timeout=5)
                except leaseway.Timeout:
                    spent.append(tokens.spent)
                    return

    threads = [threading.Thread(target=spend) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(spent) == AMOUNT


def test_an_amount_that_is_not_covered_is_not_spent(tokens):
    tokens.spend(10)
    assert tokens.spent == 10
    assert tokens.period is None, "it is spent once"
    assert not tokens.try_spend(AMOUNT)
    with pytest.raises(leaseway.Timeout, match="tokens"):
        tokens.spend(AMOUNT, timeout=0.05)
    assert tokens.spent == 10
    assert repr(tokens).startswith('Budget("tokens", left=')
    for amount in (-1, float("nan"), 1e16):
        with pytest.raises(ValueError, match="not an amount"):
            tokens.spend(amount)
    eventually(lambda: tokens.left > 0)


def test_event_loops_and_decorated_functions_spend(tokens):
    @tokens.limit(n=5)
    async def ask():
        return tokens.spent

    @tokens.limit(n=5)
    def ask_in_a_thread():
        return tokens.spent

    async def run():
        await tokens.spend_async(1.5, timeout=10)
        with pytest.raises(leaseway.Timeout):
            await tokens.spend_async(AMOUNT, timeout=0.05)
        return await ask()

    assert asyncio.run(run()) == 6.5
    assert ask_in_a_thread() == 11.5


def test_a_budget_is_no_rate_and_a_closed_client_spends_nothing(serve):
    client = leaseway.Client(serve(BUDGET).address)
    tokens = client.budget("tokens")
    with pytest.raises(leaseway.OpenError, match="already open as a budget"):
        client.rate("tokens")
    reservation = tokens.reserve(1, timeout=10)
    client.close()
    with pytest.raises(leaseway.Closed):
        tokens.spend(1)
    with pytest.raises(leaseway.Closed):
        tokens.charge(1)
    with pytest.raises(leaseway.Closed):
        reservation.settle(2)


def test_a_reservation_is_settled_once(tokens):
    with tokens.reserve(20, timeout=10) as reservation:
        assert (reservation.reserved, tokens.spent) == (20, 20)
        reservation.settle(2.5)
        assert tokens.spent == 2.5
        with pytest.raises(RuntimeError, match="already settled"):
            reservation.settle(0)
    with tokens.reserve(1.5, timeout=10):
        pass
    assert tokens.spent == 4, "it was not settled"
    tokens.reserve(1, timeout=10).settle(3)
    eventually(lambda: tokens.spent == 7 and tokens.owed == 0)
    with pytest.raises(ValueError, match="used=-1"):
        tokens.reserve(1, timeout=10).settle(-1)
    with pytest.raises(ValueError, match="not an amount"):
        tokens.reserve(-1)
    eventually(lambda: tokens.left > 1)
    reservation = tokens.try_reserve(1)
    reservation.settle(0)
    assert tokens.try_reserve(2 * AMOUNT) is None and tokens.spent == 8


def test_what_was_used_is_charged_and_owed(tokens):
    tokens.charge(12.5)
    eventually(lambda: tokens.owed == 0)
    assert tokens.spent == 12.5
    tokens.charge(AMOUNT)
    assert tokens.owed + tokens.spent == AMOUNT + 12.5 and tokens.left == 0
    assert not tokens.try_spend(0) and tokens.try_reserve(1) is None
    eventually(lambda: tokens.spent > AMOUNT / 10)
    assert tokens.owed + tokens.spent == AMOUNT + 12.5 and tokens.left == 0
    with pytest.raises(ValueError, match="not an amount"):
        tokens.charge(float("inf"))


def test_event_loops_reserve_and_a_cancelled_task_reserves_nothing(tokens):
    async def main():
        async with tokens.reserve_async(10, timeout=10) as reservation:
            reservation.settle(4)
        with pytest.raises(leaseway.Timeout):
            await tokens.reserve_async(2 * AMOUNT, timeout=0.05)
        waiting = asyncio.ensure_future(tokens.reserve_async(2 * AMOUNT))
        await asyncio.sleep(0.02)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        (await tokens.reserve_async(1, timeout=10)).settle(1)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert tokens.spent == 5
