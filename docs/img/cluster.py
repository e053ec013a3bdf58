#!/usr/bin/env python3
"""Draws docs/img/cluster.svg from a run of three peers and three clients. The master is killed in the middle.

    docs/img/cluster.py target/release/leaseway > docs/img/cluster.svg

Each sample is what the three clients believe they may use (`show` of one `leaseway shell`). The script fails if a sample
is above the capacity. It needs the ports of `leaseway up`.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

CAPACITY, SECONDS, KILL = 100, 40, 20
EVENTS = [(0, "alice", 100), (4, "bob", 60), (12, "carol", 1000), (28, "bob", 10), (34, "bob", 60)]
CONFIG = f"""
resources:
- identifier_glob: "*"
  capacity: {CAPACITY}
  algorithm: {{kind: FAIR_SHARE, lease_length: 20, refresh_interval: 1, learning_mode_duration: 0}}
"""


def run(leaseway, directory):
    """Returns samples (seconds, {client: capacity}), the moment of the kill, and seconds without a master."""
    path = lambda name: os.path.join(directory, name)
    example = subprocess.run([leaseway, "up", "--example"], capture_output=True, text=True, check=True).stdout
    open(path("limits.yaml"), "w").write(CONFIG)
    open(path("set.yaml"), "w").write(re.sub(r"# config: resources\.yaml .*", "config: limits.yaml", example))
    environment = {**os.environ, "LEASEWAY_RUN_DIR": path("run")}
    up = subprocess.Popen([leaseway, "up", path("set.yaml")], env=environment, cwd=directory,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(4)
    shell = subprocess.Popen([leaseway, "shell"], env=environment, text=True, bufsize=1,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    os.set_blocking(shell.stdout.fileno(), False)

    def peers():
        said = subprocess.run([leaseway, "peers", "list", "-o", "json"], env=environment, capture_output=True, text=True)
        return json.loads(said.stdout) if said.returncode == 0 else {}

    samples, text, killed = [], "", None
    events = list(EVENTS)
    try:
        master = peers()["master"]
        begin = time.monotonic()
        while (now := time.monotonic() - begin) < SECONDS:
            while events and events[0][0] <= now:
                _, client, wants = events.pop(0)
                shell.stdin.write(f"get {client} tokens {wants}\n")
            if killed is None and now >= KILL:
                pid = subprocess.run(["pgrep", "-f", f"serve --id {master} "], capture_output=True, text=True).stdout
                os.kill(int(pid.split()[0]), signal.SIGKILL)
                killed = now
            shell.stdin.write("show\n")
            time.sleep(0.2)
            text = shell.stdout.read() or ""
            shown = re.findall(r'client: "(\w+)"\s+resource: "tokens"\s+capacity: ([\d.]+)', text)
            sample = {client: float(capacity) for client, capacity in shown}
            if sample and (not samples or samples[-1][1] != sample):
                samples.append((now, sample))
        assert peers()["master"] not in ("", master), "no other peer became master"
    finally:
        shell.kill()
        up.terminate()
        up.wait()
    return samples, killed


def draw(samples, killed):
    left, top, width, height, most = 64, 56, 660, 200, 120
    x = lambda second: left + width * second / SECONDS
    y = lambda amount: top + height * (1 - amount / most)
    clients = ["alice", "bob", "carol"]
    bases = [0.0] * len(samples)
    out = [f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 310" width="760" height="310" role="img" aria-label="Three clients share a capacity of 100 while the master is killed; their sum never exceeds it">
<style>
:root {{ --paper: #ffffff; --ink: #1c1f24; --soft: #5b6675; --rule: #c3cad3; --a: #0b63c5; --b: #2e8b74; --c: #b4530a; }}
@media (prefers-color-scheme: dark) {{ :root {{ --paper: #14171c; --ink: #e8eaee; --soft: #a3adbb; --rule: #46505d; --a: #4a8fe0; --b: #43a78d; --c: #d9813a; }} }}
svg {{ font: 13px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; }}
text {{ fill: var(--ink); }} text.soft {{ fill: var(--soft); font-size: 12px; }} text.on {{ fill: #ffffff; font-weight: 600; text-anchor: middle; }}
.alice {{ fill: var(--a); }} .bob {{ fill: var(--b); }} .carol {{ fill: var(--c); }}
.line {{ stroke: var(--ink); stroke-width: 1.5; }} .rule {{ stroke: var(--rule); }} .event {{ stroke: var(--ink); stroke-dasharray: 4 3; }}
</style>
<rect width="100%" height="100%" style="fill: var(--paper)"/>"""]
    for amount in (0, 50):
        out.append(f'<path class="rule" d="M{left} {y(amount):.1f} H{left + width}"/>')
    for client in clients:
        tops = [base + sample.get(client, 0) for base, (_, sample) in zip(bases, samples)]
        upper, lower = [], []
        for index, (second, _) in enumerate(samples):
            end = samples[index + 1][0] if index + 1 < len(samples) else SECONDS
            upper += [f"{x(second):.1f},{y(tops[index]):.1f}", f"{x(end):.1f},{y(tops[index]):.1f}"]
            lower += [f"{x(second):.1f},{y(bases[index]):.1f}", f"{x(end):.1f},{y(bases[index]):.1f}"]
        out.append(f'<polygon class="{client}" points="{" ".join(upper + lower[::-1])}"/>')
        near = max(index for index, (second, _) in enumerate(samples) if second <= KILL)
        middle = (tops[near] + bases[near]) / 2
        out.append(f'<text class="on" x="{x(KILL - 4):.1f}" y="{y(middle) + 4:.1f}">{client} {samples[near][1].get(client, 0):.0f}</text>')
        bases = tops
    for amount in (0, 50, 100):
        out.append(f'<text class="soft" x="{left - 8}" y="{y(amount) + 4:.1f}" text-anchor="end">{amount}</text>')
    out.append(f'<path class="line" d="M{left} {y(CAPACITY):.1f} H{left + width}"/>')
    out.append(f'<text x="{left}" y="20">capacity 100, shared by three clients; what each may use, as it believes</text>')
    notes = [(4, "bob wants 60"), (12, "carol wants 1000"), (28, "bob wants 10"), (34, "bob wants 60")]
    for second, note in notes:
        out.append(f'<path class="rule" d="M{x(second):.1f} {y(CAPACITY):.1f} V{top + height + 6}"/>')
        out.append(f'<text class="soft" x="{x(second) + 3:.1f}" y="{top + height + 36}">{note}</text>')
    out.append(f'<path class="event" d="M{x(killed):.1f} {top - 12} V{top + height}"/>')
    out.append(f'<text x="{x(killed) + 6:.1f}" y="{top - 2}">kill -9 of the master: no lease is lost</text>')
    for second in range(0, SECONDS + 1, 10):
        out.append(f'<text class="soft" x="{x(second):.1f}" y="{top + height + 18}" text-anchor="middle">{second} s</text>')
    most_seen = max(sum(sample.values()) for _, sample in samples)
    out.append(f'<text class="soft" x="{left}" y="{top - 14}">largest sum seen: {most_seen:g}</text></svg>')
    return "\n".join(out)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as temporary:
        seen, at = run(os.path.abspath(sys.argv[1]), temporary)
    over = [sample for sample in seen if sum(sample[1].values()) > CAPACITY + 1e-6]
    assert not over, f"over the capacity: {over}"
    print(draw(seen, at))
