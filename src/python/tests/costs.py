"""Measures the cost of waiting tasks, of clients and of calls. Compares calls with a bare function, and with limiters
that ask Redis at each call.

    costs.py [--binary FILE] [--rounds N]

Needs the package built with `maturin build --release`, `cargo build -p leaseway`, redis-server, and
`pip install limits pyrate-limiter redis`. Measurements alternate, so ratios hold on a busy machine.
"""

import argparse
import asyncio
import os
import re
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import limits
import pyrate_limiter
import redis

from leaseway import Balancer, Client

MANY = 10**9


def serve(binary, folder):
    config = Path(folder, "resources.yaml")
    template = "- identifier_glob: '{}'\n  capacity: {}\n  algorithm:\n    kind: FAIR_SHARE\n    lease_length: 60\n"
    template += "    refresh_interval: 1\n    learning_mode_duration: 0\n"
    config.write_text("resources:\n" + template.format("line", 5000) + template.format("*", MANY))
    server = subprocess.Popen(
        [binary, "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--config", str(config)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )
    return server, re.search(r"gRPC on (\S+?),", server.stdout.readline()).group(1)


def start_redis(folder):
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    options = ["--port", str(port), "--save", "", "--dir", folder, "--bind", "127.0.0.1"]
    process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
    connection = redis.Redis(port=port)
    while True:
        try:
            connection.ping()
            return process, port, connection
        except redis.ConnectionError:
            time.sleep(0.05)


def nothing():
    return True


def timed(call, times):
    """Nanoseconds per call."""
    begun = time.perf_counter_ns()
    for _ in range(times):
        call()
    return (time.perf_counter_ns() - begun) / times


def timed_async(call, times):
    async def main():
        begun = time.perf_counter_ns()
        for _ in range(times):
            await call()
        return (time.perf_counter_ns() - begun) / times

    return asyncio.run(main())


async def no_wait():
    return True


def calls(address, redis_port, connection, rounds):
    with Client(address) as client:
        rate = client.rate("calls", wants=MANY)
        client.ready(10)
        storage = limits.storage.RedisStorage(f"redis://127.0.0.1:{redis_port}")
        second = limits.RateLimitItemPerSecond(MANY)
        fixed = limits.strategies.FixedWindowRateLimiter(storage)
        moving = limits.strategies.MovingWindowRateLimiter(storage)
        memory = limits.strategies.FixedWindowRateLimiter(limits.storage.MemoryStorage())
        balancer = Balancer("abcd", weights=[1, 2, 3, 4])
        # Expired entries keep the set in Redis as short as in production.
        rates = [pyrate_limiter.Rate(MANY, 1000)]
        bucket = pyrate_limiter.RedisBucket.init(rates, connection, "pyrate")
        pyrate = pyrate_limiter.Limiter(bucket)
        measured = {
            "a bare function": lambda: timed(nothing, 200_000),
            "leaseway try_acquire": lambda: timed(rate.try_acquire, 100_000),
            "leaseway wait, free": lambda: timed(rate.wait, 100_000),
            "leaseway Balancer.pick, 4 backends": lambda: timed(balancer.pick, 100_000),
            "a bare coroutine": lambda: timed_async(no_wait, 100_000),
            "leaseway wait_async, free": lambda: timed_async(rate.wait_async, 50_000),
            "limits, fixed window in memory": lambda: timed(lambda: memory.hit(second, "calls"), 10_000),
            "limits, fixed window in Redis": lambda: timed(lambda: fixed.hit(second, "calls"), 1_000),
            "limits, moving window in Redis": lambda: timed(lambda: moving.hit(second, "moving"), 300),
            "pyrate-limiter in Redis": lambda: timed(lambda: pyrate.try_acquire("calls", blocking=False), 300),
        }
        times = {name: [] for name in measured}
        for _ in range(rounds):
            for name, measure in measured.items():
                times[name].append(measure())
        bare = times["a bare function"]
        print(f"calls, medians of {rounds} rounds in turns:")
        for name, found in times.items():
            ratio = statistics.median(one / other for one, other in zip(found, bare))
            print(f"  {name:32} {statistics.median(found) / 1000:10.3f} µs  {ratio:8.1f} bare calls")
        pyrate.close()


def rss():
    """Resident memory in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def waiters(address, number=10_000):
    """The time for a loop to serve this number of waiting tasks, and its largest delay meanwhile."""

    async def main():
        async with Client(address) as client:
            line = client.rate("line", wants=5000)
            await client.ready_async(10)
            late = []

            async def tick():
                while True:
                    due = time.perf_counter() + 0.01
                    await asyncio.sleep(0.01)
                    late.append(time.perf_counter() - due)

            before, begun = rss(), time.perf_counter()
            tasks = [asyncio.create_task(line.wait_async()) for _ in range(number)]
            await asyncio.sleep(0)
            standing, memory = time.perf_counter() - begun, rss() - before
            ticker = asyncio.create_task(tick())
            await asyncio.gather(*tasks)
            took = time.perf_counter() - begun
            ticker.cancel()
            print(f"{number} asyncio waiters at 5,000/s: in line after {1000 * standing:.0f} ms, all through after "
                  f"{took:.2f} s ({number / 5000:.0f} s at least), the loop late by {1000 * statistics.median(late):.1f} ms "
                  f"(median), {1000 * max(late):.0f} ms (worst); {memory / number:.0f} bytes each")
            # Cancelled tasks take no permits.
            tasks = [asyncio.create_task(line.wait_async(5000)) for _ in range(number)]
            await asyncio.sleep(0)
            begun = time.perf_counter()
            [task.cancel() for task in tasks]
            await asyncio.gather(*tasks, return_exceptions=True)
            print(f"  {number} that give up: {1000 * (time.perf_counter() - begun):.0f} ms")

    asyncio.run(main())


def clients(address, number=1_000):
    first = Client(address)
    first.rate("memory", wants=1).ready(10)
    before = rss()
    others = [Client(address) for _ in range(number)]
    rates = [client.rate("memory", wants=1) for client in others]
    [client.ready(60) for client in others]
    each = (rss() - before) / number
    print(f"{number} clients in one process, each with a thread, a connection and a rate: {each / 1024:.0f} KiB each")
    assert all(rate.basis == "lease" for rate in rates)
    [client.close() for client in others]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--binary", default=Path(__file__).parents[3] / "target" / "debug" / "leaseway", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server, address = serve(options.binary, folder)
        keeper, port, connection = start_redis(folder)
        try:
            calls(address, port, connection, options.rounds)
            waiters(address)
            clients(address)
        finally:
            for process in (server, keeper):
                process.terminate()
                process.wait(20)


if __name__ == "__main__":
    main()
