"""Processes of four kinds (Rust, threads, asyncio, forked) that share a rate while what they want changes and the master
is killed; then their books are added up. No server is asked.

    crowd.py LEASEWAY RUST_EXAMPLE PROCESSES SECONDS

LEASEWAY is the binary, RUST_EXAMPLE `target/debug/examples/crowd`. Ends with status 1 if the books were ever above the
capacity.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from leaseway import Client, Timeout

CAPACITY = 1000.0
THREADS = 4


def appetite(until):
    """While to be hungry, and to rest then."""
    while time.monotonic() < until:
        yield min(until, time.monotonic() + random.uniform(2, 6))
        time.sleep(0)


def threads(client, until):
    rate, passed = client.rate("shared"), [0] * THREADS

    def work(index):
        for hungry in appetite(until):
            while (left := hungry - time.monotonic()) > 0:
                try:
                    rate.wait(timeout=left)
                    passed[index] += 1
                except Timeout:
                    break
            time.sleep(random.random())

    workers = [threading.Thread(target=work, args=[index]) for index in range(THREADS)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    return sum(passed)


def tasks(client, until):
    rate, passed = client.rate("shared"), [0] * THREADS

    async def work(index):
        for hungry in appetite(until):
            while (left := hungry - time.monotonic()) > 0:
                try:
                    await rate.wait_async(timeout=left)
                    passed[index] += 1
                except Timeout:
                    break
            await asyncio.sleep(random.random())

    async def main():
        await asyncio.gather(*(work(index) for index in range(THREADS)))

    asyncio.run(main())
    return sum(passed)


def report(client, passed):
    client.close()
    book = [f"{at} {capacity}" for at, _, capacity in client.take_book()]
    print("\n".join([*book, f"passed {passed}"]), flush=True)


def child(kind, servers, seconds):
    client, until = Client(servers.split(","), book=True), time.monotonic() + seconds
    if kind == "forked":
        client.rate("shared").wait()
        pid = os.fork()
        if pid != 0:
            os.waitpid(pid, 0)
            return report(client, 0)
    report(client, {"threads": threads, "asyncio": tasks, "forked": threads}[kind](client, until))
    if kind == "forked":
        os._exit(0)


def audit(books, begin, end):
    """The mean, the peak, and for how long it was above the capacity. What is given up at a moment counts before what is
    taken then."""
    lines = sorted((at, book, capacity) for book, lines in enumerate(books) for at, capacity in lines)
    usable, area, peak, over = {}, 0.0, 0.0, 0.0
    for (at, book, capacity), (later, *_) in zip(lines, [*lines[1:], (end, 0, 0)]):
        usable[book] = capacity
        if later == at:
            continue
        total = sum(usable.values())
        peak = max(peak, total)
        over += (later - at) * (total > CAPACITY * (1 + 1e-9))
        area += total * max(0.0, min(later, end) - max(at, begin))
    return area / (end - begin), peak, over


def main(binary, rust, processes, seconds):
    folder = Path(tempfile.mkdtemp())
    ports = list(range(random.randrange(20000, 28000), 30000))[:9]
    names, peers = "abc", ",".join(f"{name}=127.0.0.1:{port}" for name, port in zip("abc", ports))
    (folder / "resources.yaml").write_text(
        f"resources:\n- identifier_glob: '*'\n  capacity: {CAPACITY}\n  algorithm:\n    kind: FAIR_SHARE\n"
        "    lease_length: 10\n    refresh_interval: 1\n    learning_mode_duration: 0\n"
    )
    nodes = "".join(
        f"      {name}: {{ grpc: 127.0.0.1:{ports[i]}, http: 127.0.0.1:0, admin: 127.0.0.1:0, "
        f"peer: 127.0.0.1:{ports[3 + i]} }}\n"
        for i, name in enumerate(names)
    )
    (folder / "nodes.yaml").write_text(
        f"data: {folder}/data\nnodes:\n  root:\n    config: resources.yaml\n    peers:\n{nodes}"
    )
    up = subprocess.Popen([binary, "up", str(folder / "nodes.yaml")], stdout=subprocess.PIPE, text=True)
    said = []
    threading.Thread(target=lambda: said.extend(up.stdout), daemon=True).start()
    servers = ",".join(f"127.0.0.1:{port}" for port in ports[:3])
    with Client(servers.split(",")) as client:
        client.rate("warm", wants=1).ready(60)
        kinds = ["rust", "threads", "asyncio", "forked"]
        started = []
        for number in range(processes):
            kind = kinds[number % 4]
            command = [rust, servers, "shared", str(seconds)]
            if kind != "rust":
                command = [sys.executable, __file__, "--child", kind, servers, str(seconds)]
            started.append((kind, subprocess.Popen(command, stdout=subprocess.PIPE, text=True)))
        begun = time.monotonic()
        time.sleep(seconds / 2)
        master = client.health.server
        pids = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True).stdout.splitlines()
        victim = next(int(line.split()[0]) for line in pids if f"--listen {master}" in line.replace("=", " "))
        os.kill(victim, signal.SIGKILL)
        print(f"killed the master {master} after {time.monotonic() - begun:.0f} s", flush=True)
        outputs = [(kind, process.communicate()[0].splitlines()) for kind, process in started]
    up.terminate()
    up.wait(30)
    books, passed = [], dict.fromkeys(kinds, 0)
    for kind, lines in outputs:
        books.append([])
        for line in lines:
            if line.startswith("passed"):
                books.append([])
            else:
                books[-1].append(tuple(map(float, line.split())))
        passed[kind] += sum(int(line.split()[1]) for line in lines if line.startswith("passed"))
    begin, end = begun + 5, begun + seconds - 1
    mean, peak, over = audit(books, begin, end)
    total = sum(passed.values())
    print(f"{processes} processes, {seconds:.0f} s, capacity {CAPACITY:.0f}; passed: {passed}")
    print(f"books: mean {mean:.1f} ({100 * mean / CAPACITY:.2f} %), peak {peak:.3f}, above for {over:.6f} s")
    print(f"used: {100 * total / (CAPACITY * seconds):.2f} % of what there was from the first moment to the last")
    sys.exit(over > 0)


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        child(sys.argv[2], sys.argv[3], float(sys.argv[4]))
    else:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
