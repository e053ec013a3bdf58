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
    client.close()
    with pytest.raises(leaseway.Closed):
        tokens.spend(1)
