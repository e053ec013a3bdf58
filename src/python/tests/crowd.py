"""Runs processes of four kinds (Rust, threads, asyncio, forked) that share a rate while their demand changes and the
master is killed. Then adds up the leases and permits that they recorded; no server is asked.

    crowd.py [--processes N] [--seconds N] [--window SECONDS] [--binary FILE] [--example FILE]

Needs the package, `cargo build -p leaseway` and `cargo build -p leaseway-client --example crowd`. Ends with status 1 if
they could ever use more than the capacity, or more passed than capacity and windows allow.
"""

import argparse
import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from leaseway import Client, Timeout

CAPACITY = 1000.0
CALLERS = 4
KINDS = ["rust", "threads", "asyncio", "forked"]
BUILT = Path(__file__).parents[3] / "target" / "debug"


def appetites(until):
    """Yields the ends of consecutive periods of high demand, of 2 to 6 s each."""
    while time.monotonic() < until:
        yield min(until, time.monotonic() + random.uniform(2, 6))


def threads(rate, until):
    passed = Counter()

    def work():
        for hungry in appetites(until):
            while (left := hungry - time.monotonic()) > 0:
                try:
                    rate.wait(timeout=left)
                    passed[int(time.monotonic())] += 1
                except Timeout:
                    break
            time.sleep(random.random())

    workers = [threading.Thread(target=work) for _ in range(CALLERS)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    return passed


def tasks(rate, until):
    passed = Counter()

    async def work():
        for hungry in appetites(until):
            while (left := hungry - time.monotonic()) > 0:
                try:
                    await rate.wait_async(timeout=left)
                    passed[int(time.monotonic())] += 1
                except Timeout:
                    break
            await asyncio.sleep(random.random())

    async def main():
        await asyncio.gather(*(work() for _ in range(CALLERS)))

    asyncio.run(main())
    return passed


def report(client, passed):
    client.close()
    lines = [f"lease {at} {capacity}" for at, _, capacity in client.take_lease_trace()]
    lines += [f"passed {second} {count}" for second, count in sorted(passed.items())]
    print("\n".join([*lines, "end"]), flush=True)


def member(kind, servers, seconds, window):
    client, until = Client(servers, lease_trace=True), time.monotonic() + seconds
    rate = client.rate("shared", window=window)
    if kind == "forked":
        rate.wait()
        child = os.fork()
        if child != 0:
            os.waitpid(child, 0)
            return report(client, {})
    report(client, (tasks if kind == "asyncio" else threads)(rate, until))
    if kind == "forked":
        os._exit(0)


@dataclass
class Process:
    """The output of a process."""

    kind: str
    leases: list = field(default_factory=list)
    passed: Counter = field(default_factory=Counter)

    @staticmethod
    def read(kind, lines):
        """Reads the output of a process, and of its child if it forked one."""
        found = [Process(kind)]
        for what, *numbers in map(str.split, lines):
            if what == "lease":
                found[-1].leases.append(tuple(map(float, numbers)))
            elif what == "passed":
                found[-1].passed[int(numbers[0])] += int(numbers[1])
            else:
                found.append(Process(kind))
        return found[:-1]


def audit(traces, begin, end):
    """The mean and the peak of leased capacity, and the time for which it exceeded the capacity of the resource. All
    changes with the same time are applied before the sum is taken."""
    lines = sorted((at, trace, capacity) for trace, lines in enumerate(traces) for at, capacity in lines)
    usable, area, peak, over = {}, 0.0, 0.0, 0.0
    for (at, trace, capacity), (later, *_) in zip(lines, [*lines[1:], (end, 0, 0)]):
        usable[trace] = capacity
        if later == at:
            continue
        total = sum(usable.values())
        peak = max(peak, total)
        over += (later - at) * (total > CAPACITY * (1 + 1e-9))
        area += total * max(0.0, min(later, end) - max(at, begin))
    return area / (end - begin), peak, over


def peers(binary, folder):
    """Starts three servers. Returns their parent process and their addresses."""
    sockets = [socket.socket() for _ in range(6)]
    [found.bind(("127.0.0.1", 0)) for found in sockets]
    ports = [found.getsockname()[1] for found in sockets]
    [found.close() for found in sockets]
    (folder / "resources.yaml").write_text(
        f"resources:\n- identifier_glob: '*'\n  capacity: {CAPACITY}\n  algorithm:\n    kind: FAIR_SHARE\n"
        "    lease_length: 10\n    refresh_interval: 1\n    learning_mode_duration: 0\n"
    )
    nodes = "".join(
        f"      {name}: {{ grpc: 127.0.0.1:{grpc}, http: 127.0.0.1:0, admin: 127.0.0.1:0, peer: 127.0.0.1:{peer} }}\n"
        for name, grpc, peer in zip("abc", ports[:3], ports[3:])
    )
    (folder / "nodes.yaml").write_text(
        f"data: {folder}/data\nnodes:\n  root:\n    config: resources.yaml\n    peers:\n{nodes}"
    )
    with (folder / "log").open("w") as log:
        up = subprocess.Popen([binary, "up", str(folder / "nodes.yaml")], stdout=log, stderr=log)
    return up, [f"127.0.0.1:{port}" for port in ports[:3]]


def kill(server):
    """Kills the process that listens at this address."""
    listed = subprocess.run(["ps", "-wweo", "pid=,args="], capture_output=True, text=True, check=True).stdout.splitlines()
    victim = next(int(line.split()[0]) for line in listed if f"--listen {server}" in line.replace("=", " "))
    os.kill(victim, signal.SIGKILL)


@dataclass
class Outcome:
    """Results for the seconds in which all processes ran."""

    seconds: int
    leased: float
    peak: float
    over: float
    passed: dict
    saved: float

    @property
    def used(self):
        return sum(self.passed.values()) / (CAPACITY * self.seconds)

    @property
    def is_kept_to(self):
        """Whether the capacity was never exceeded. Permits saved before may have passed as well."""
        return self.over == 0 and sum(self.passed.values()) <= CAPACITY * self.seconds + self.saved

    def __str__(self):
        kinds = ", ".join(f"{kind} {count / self.seconds:.1f}" for kind, count in self.passed.items())
        return (
            f"{self.seconds} s with all of them: leased {100 * self.leased / CAPACITY:.2f} %, used "
            f"{100 * self.used:.2f} % (per second: {kinds})\n"
            f"leases: peak {self.peak:.3f} of {CAPACITY:.0f}, above it for {self.over:.6f} s"
        )


def run(processes, seconds, window=None, binary=BUILT / "leaseway", example=BUILT / "examples" / "crowd"):
    folder = Path(tempfile.mkdtemp())
    up, servers = peers(binary, folder)
    try:
        with Client(servers) as client:
            client.rate("warm", wants=1).ready(60)
            arguments = [",".join(servers), "shared", str(seconds), *([] if window is None else [str(window)])]
            own = [sys.executable, __file__, "--member"]
            commands = [(kind, [example] if kind == "rust" else [*own, kind]) for kind in KINDS]
            started = [
                (kind, subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True))
                for kind, command in (commands[number % len(KINDS)] for number in range(processes))
            ]
            time.sleep(seconds / 2)
            master = client.health.server
            kill(master)
            print(f"killed the master, {master}", flush=True)
            found = [one for kind, process in started for one in Process.read(kind, process.communicate()[0].splitlines())]
    finally:
        up.terminate()
        up.wait(30)
    working = [one for one in found if one.passed]
    begin, end = max(min(one.passed) for one in working) + 2, min(max(one.passed) for one in working) - 1
    passed = {
        kind: sum(one.passed[second] for one in working if one.kind == kind for second in range(begin, end))
        for kind in KINDS
    }
    mean, peak, over = audit([one.leases for one in found], begin, end)
    saved = CAPACITY * (0.02 if window is None else window) + len(working) * CALLERS
    return Outcome(end - begin, mean, peak, over, passed, saved)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--processes", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--window", type=float, help="burst, in seconds of capacity")
    parser.add_argument("--binary", type=Path, default=BUILT / "leaseway")
    parser.add_argument("--example", type=Path, default=BUILT / "examples" / "crowd")
    options = parser.parse_args()
    print(f"{options.processes} processes, {options.seconds:.0f} s, window {options.window}", flush=True)
    outcome = run(**vars(options))
    print(outcome)
    sys.exit(not outcome.is_kept_to)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--member"]:
        kind, servers, _, seconds, *window = sys.argv[2:]
        member(kind, servers.split(","), float(seconds), float(window[0]) if window else None)
    else:
        main()
