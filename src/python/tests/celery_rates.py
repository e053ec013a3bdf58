"""How many tasks a second three Celery workers of two processes begin together.

    celery_rates.py SERVER [SECONDS] [OWN_LIMIT]

SERVER has `mails`; with OWN_LIMIT, as `50/s`, it is Celery's own `rate_limit` that holds them instead. BROKER is the URL
of a broker; without it messages are files, which is slow when there are many.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROCESSES = 6


def sent(folder):
    """Times of the sent mails, in order."""
    lines = [line for file in folder.glob("sent-*") for line in file.read_text().splitlines(True)]
    return sorted(float(line) for line in lines if line.endswith("\n"))


def run(folder, server, seconds, queued, own_limit=None, patience=60):
    """Start times of tasks, for `seconds` from when all workers are busy."""
    for name in ("queue", "control"):
        (folder / name).mkdir()
    environment = {**os.environ, "MAILS": str(folder), "LEASEWAY_SERVER": server}
    environment["PYTHONPATH"] = str(Path(__file__).parent)
    if own_limit:
        environment["OWN_LIMIT"] = own_limit
    python = [sys.executable, "-P"] if sys.version_info >= (3, 11) else [sys.executable]
    queue = f"from celery_app import send\nfor number in range({queued}): send.delay(number)"
    subprocess.run([sys.executable, "-c", queue], env=environment, cwd=folder, check=True)
    start = [*python, "-m", "celery", "-A", "celery_app", "worker", "--concurrency", "2", "--loglevel", "WARNING"]
    start += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    workers = [
        subprocess.Popen([*start, "-n", f"worker{number}@test"], env=environment, cwd=folder) for number in range(3)
    ]
    try:
        end = time.monotonic() + patience
        # With Celery's own limit a worker may leave one of its processes idle.
        while len(sent(folder)) <= 50 or len(list(folder.glob("sent-*"))) < (3 if own_limit else PROCESSES):
            assert time.monotonic() < end, "not all have begun"
            time.sleep(0.1)
        begin = time.monotonic() + 1
        time.sleep(seconds + 1)
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(30)
    return [at for at in sent(folder) if begin <= at < begin + seconds]


def main(server, seconds="60", own_limit=None):
    with tempfile.TemporaryDirectory() as folder:
        began = len(run(Path(folder), server, float(seconds), int(float(seconds) * 250), own_limit))
    print(f"{own_limit or 'leaseway'}: {began / float(seconds):.2f} tasks per second from three workers of two processes")


if __name__ == "__main__":
    main(*sys.argv[1:])
