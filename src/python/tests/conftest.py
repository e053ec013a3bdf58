"""Fixtures. LEASEWAY_BINARY is the `leaseway` to run; by default the debug build of this repository."""

from __future__ import annotations

import os
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, Optional

import pytest

from leaseway import Client

BINARY = os.environ.get("LEASEWAY_BINARY", str(Path(__file__).parents[3] / "target" / "debug" / "leaseway"))


def template(glob: str, capacity: float, lease: int = 60, refresh: int = 1, kind: str = "FAIR_SHARE") -> str:
    return f"""- identifier_glob: "{glob}"
  capacity: {capacity}
  algorithm:
    kind: {kind}
    lease_length: {lease}
    refresh_interval: {refresh}
    learning_mode_duration: 0
"""


def budget(glob: str, amount: float, period: str = "month", lease: int = 60) -> str:
    """The template of a budget."""
    return f"""- identifier_glob: "{glob}"
  capacity: {amount}
  algorithm:
    kind: BUDGET
    lease_length: {lease}
    refresh_interval: 1
    learning_mode_duration: 0
    parameters: {{period: {period}}}
"""


class Server:
    """A running `leaseway serve`."""

    def __init__(self, *flags: str, listen: str = "127.0.0.1:0") -> None:
        command = [BINARY, "serve", "--listen", listen, "--http", "127.0.0.1:0", "--threads", "2", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"gRPC on (\S+?),", line)
        assert found, f"the server wrote {line!r}"
        self.address = found.group(1)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers with resource templates. They end with the test."""
    servers: list[Server] = []

    def start(*templates: str, flags: tuple[str, ...] = (), listen: str = "127.0.0.1:0") -> Server:
        config = tmp_path / f"resources{len(servers)}.yaml"
        config.write_text("resources:\n" + "".join(templates or (template("*", 100),)))
        servers.append(Server("--config", str(config), *flags, listen=listen))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


@pytest.fixture
def server(serve: Callable[..., Server]) -> Server:
    """A server whose resources have a capacity of 100."""
    return serve()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.address) as client:
        yield client


def python(program: str, *arguments: str, stderr: Optional[int] = None) -> subprocess.Popen[str]:
    """Starts a Python process with this program."""
    command = [sys.executable, "-I", "-c", program, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)


def eventually(condition: Callable[[], object], seconds: float = 20) -> None:
    """Waits until `condition` is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.01)


def free_address() -> str:
    """An address that nobody listens on. Its port lies below those that the system gives to outgoing connections, so
    none takes it before a server listens."""
    while True:
        port = random.randrange(10_000, 30_000)
        with socket.socket() as found:
            if found.connect_ex(("127.0.0.1", port)) != 0:
                return f"127.0.0.1:{port}"


def seconds(of: Callable[[], object]) -> float:
    begun = time.monotonic()
    of()
    return time.monotonic() - begun

