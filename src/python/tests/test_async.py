"""Event loops."""

import asyncio
import gc
import time

import pytest
from conftest import eventually

import leaseway
from leaseway import Client


def test_the_loop_keeps_running_while_a_task_waits(client):
    searches = client.rate("nothing", wants=0)

    async def main():
        waiting = asyncio.ensure_future(searches.wait_async())
        lags = []
        for _ in range(50):
            begun = time.monotonic()
            await asyncio.sleep(0.01)
            lags.append(time.monotonic() - begun)
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert sorted(lags)[25] < 0.1

    asyncio.run(main())


def test_tasks_are_served_in_order(client):
    searches = client.rate("searches", wants=100)
    order = []

    async def wait(number):
        await searches.wait_async()
        order.append(number)

    async def main():
        await asyncio.gather(*(wait(number) for number in range(50)))

    asyncio.run(main())
    assert order == list(range(50))


def test_a_cancelled_wait_takes_nothing(client):
    searches = client.rate("searches", wants=10, burst=10)
    eventually(lambda: searches.available == 10)

    async def main():
        await searches.wait_async(10)
        tasks = [asyncio.ensure_future(searches.wait_async(5)) for _ in range(200)]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await searches.wait_async(1, timeout=2)

    asyncio.run(main())


def test_permits_granted_during_a_cancellation_are_returned(client):
    jobs = client.gauge("jobs", wants=1)
    tokens = client.rate("tokens", wants=1, burst=40)
    eventually(lambda: jobs.capacity == 1)
    eventually(lambda: tokens.available == 40, 60)

    async def main():
        held = await jobs.acquire_async()
        waiting = asyncio.ensure_future(jobs.acquire_async())
        await asyncio.sleep(0.05)
        held.release()
        time.sleep(0.2)  # The client's thread has granted the permit; the task was not scheduled yet.
        assert jobs.in_use == 1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        eventually(lambda: jobs.in_use == 0)

        for stands in (tokens.wait_async, tokens.reserve_async):
            taken = await tokens.reserve_async(40)
            waiting = asyncio.ensure_future(stands(20))
            await asyncio.sleep(0.05)
            taken.settle(0)
            time.sleep(0.2)
            assert tokens.available <= 21, "twenty are on their way to the task"
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            eventually(lambda: tokens.available >= 39)

    asyncio.run(main())


def test_both_kinds_of_timeout(client):
    searches = client.rate("nothing", wants=0)

    async def main():
        with pytest.raises(leaseway.Timeout, match="nothing of `nothing` within 0.1 s"):
            await searches.wait_async(timeout=0.1)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(searches.wait_async(), 0.1)

    asyncio.run(main())


def test_permits_and_reservations_in_async_with(client):
    jobs = client.gauge("jobs", wants=3)
    tokens = client.rate("tokens", wants=100, burst=50)

    @jobs.limit
    async def work():
        return jobs.in_use

    @tokens.limit(n=2)
    async def speak():
        return "spoken"

    async def main():
        async with jobs.acquire_async(3):
            assert jobs.in_use == 3
        async with jobs, jobs:
            assert jobs.in_use == 2
        assert await work() == 1
        assert jobs.in_use == 0
        task = asyncio.get_running_loop().create_task(jobs.acquire_async())
        (await task).release()
        async with tokens.reserve_async(10) as reservation:
            reservation.settle(3)
        assert await speak() == "spoken"
        async with tokens:
            pass

    asyncio.run(main())


def test_threads_and_tasks_share_a_queue(client):
    searches = client.rate("searches", wants=100)
    eventually(lambda: searches.capacity == 100)

    async def main():
        loop = asyncio.get_running_loop()
        begun = time.monotonic()
        threads = [loop.run_in_executor(None, searches.wait) for _ in range(4) for _ in range(10)]
        await asyncio.gather(*threads, *(searches.wait_async() for _ in range(60)))
        assert time.monotonic() - begun >= (100 - 3) / 100

    asyncio.run(main())


def test_one_client_in_many_loops(client):
    searches = client.rate("searches", wants=100)
    for _ in range(5):
        asyncio.run(searches.wait_async(5))
    gc.collect()
    from leaseway import awaitable

    assert len(awaitable._wakers) <= 1, "loops that are gone leave nothing"


def test_a_client_in_a_loop(server):
    async def main():
        async with Client(server.address) as client:
            searches = client.rate("searches", wants=5)
            await client.ready_async()
            await searches.ready_async()
            await searches.wait_async()
            waiting = asyncio.ensure_future(searches.wait_async(1000))
            await asyncio.sleep(0.05)
        with pytest.raises(leaseway.Closed):
            await waiting
        with pytest.raises(leaseway.Closed):
            await searches.wait_async()

    asyncio.run(main())


def test_ten_thousand_tasks_wait(serve):
    from conftest import template

    server = serve(template("*", 5000))
    with Client(server.address) as client:
        searches = client.rate("searches", wants=5000)
        eventually(lambda: searches.capacity == 5000)

        async def main():
            begun = time.monotonic()
            await asyncio.gather(*(searches.wait_async() for _ in range(10_000)))
            return time.monotonic() - begun

        took = asyncio.run(main())
        assert took >= (10_000 - 102) / 5000
