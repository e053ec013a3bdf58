"""Real LiteLLM proxies, a real server and a mock model. LEASEWAY_TEST_LITELLM is LiteLLM's command."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from conftest import BINARY, Server, budget, eventually, free_address, template

HERE = Path(__file__).parent
LEASE_SECONDS = 6
#: Tokens per second of the team `tokens`.
TOKENS = 1000
WINDOW_SECONDS = 5
SLOTS = 4
#: Dollars of the teams `money` and `killed`. Slices are whole dollars.
AMOUNT = 6
#: Dollars that a call of `request` reserves at most: 500 tokens of output, and 40 of the prompt.
MOST = 0.1 + 0.004
# A worker whose lease has expired, as on a busy machine, must not use slots of others.
SLOTS_ONLY = "    parameters: {whole_units: true}\n  safe_capacity: 0\n"
RESOURCES = (
    template("litellm/team/tokens/tpm", TOKENS, lease=LEASE_SECONDS),
    template("litellm/team/streams/tpm", 100, lease=LEASE_SECONDS),
    template("litellm/team/slots/parallel", SLOTS, lease=LEASE_SECONDS) + SLOTS_ONLY,
    template("litellm/model/scarce/parallel", 1, lease=LEASE_SECONDS) + SLOTS_ONLY,
    budget("litellm/team/money/budget", AMOUNT, "none", LEASE_SECONDS),
    budget("litellm/team/killed/budget", AMOUNT, "none", LEASE_SECONDS),
    budget("litellm/team/refunds/budget", 1, "none", LEASE_SECONDS),
    budget("litellm/model/dear/budget", 0.01, "month", LEASE_SECONDS),
)
PRICES = "input_cost_per_token: 0.0001, output_cost_per_token: 0.0002"
MODEL = """
- model_name: {name}
  litellm_params: {{model: openai/mock, api_base: "http://{upstream}", api_key: none, max_retries: 0, {prices}}}"""
CONFIG = """
model_list:{models}
litellm_settings:
  callbacks: ["leaseway.litellm.limiter", "bills.recorder"]
  num_retries: 0
  cache: true
  cache_params: {{type: local, mode: default_off}}
router_settings:
  disable_cooldowns: true
  fallbacks: [{{dear: [mock]}}]
general_settings:
  custom_auth: auth.auth
  master_key: sk-{master}
"""


def config(upstream: str) -> str:
    models = (MODEL.format(name=name, upstream=upstream, prices=PRICES) for name in ("mock", "scarce", "dear"))
    return CONFIG.format(models="".join(models), master=secrets.token_hex(32))


class Proxy:
    """A LiteLLM proxy with its workers."""

    def __init__(self, at: Path, upstream: str, workers: int, environ: dict[str, str]) -> None:
        at.mkdir()
        for module in ("auth.py", "bills.py"):
            shutil.copy(HERE / module, at)
        (at / "config.yaml").write_text(config(upstream))
        self.address = free_address()
        command = [os.environ["LEASEWAY_TEST_LITELLM"], "--config", str(at / "config.yaml"), "--host", "127.0.0.1"]
        command += ["--port", self.address.rpartition(":")[2], "--num_workers", str(workers), "--telemetry", "False"]
        # A busy machine starts workers slowly; uvicorn would kill them.
        command += ["--timeout_worker_healthcheck", "120"]
        self.output = at / "output"
        known = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION", "NO_PROXY": "*"}
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **known, **environ},
                cwd=at,
                start_new_session=True,
            )

    def ready(self) -> None:
        def answers() -> bool:
            assert self.process.poll() is None, self.output.read_text()[-3000:]
            try:
                return httpx.get(f"http://{self.address}/health/liveliness", timeout=2).status_code == 200
            except httpx.HTTPError:
                return False

        eventually(answers, 150)

    def kill(self) -> None:
        """Kills the proxy and its workers at once."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


class Setup:
    """A server, a model and proxies with these numbers of workers."""

    def __init__(self, at: Path, *workers: int, window: float = WINDOW_SECONDS) -> None:
        resources = at / "resources.yaml"
        resources.write_text("resources:\n" + "".join(RESOURCES))
        self.server = Server("--config", str(resources))
        self.upstream = free_address()
        self.at, self.record, self.bills = at, at / "record", at / "bills"
        self.bills.touch()
        self.started = 0
        port = self.upstream.rpartition(":")[2]
        self.model = subprocess.Popen([sys.executable, str(HERE / "upstream.py"), port, str(self.record)])
        self.environ = {
            "LEASEWAY_SERVER": self.server.address,
            "LEASEWAY_LITELLM_WINDOW": str(window),
            "TEST_BILLS": str(self.bills),
        }
        self.proxies: list[Proxy] = []
        try:
            for of in workers:
                self.proxies.append(self.start(of))
        except OSError:
            self.stop()
            raise

    def start(self, workers: int) -> Proxy:
        """Starts a proxy in a folder of its own."""
        self.started += 1
        return Proxy(self.at / f"proxy{self.started}", self.upstream, workers, self.environ)

    def ready(self) -> None:
        for proxy in self.proxies:
            proxy.ready()

    def active(self, tag: str) -> tuple[int, int]:
        """Calls of this tag under way at the model, and the maximum so far."""
        now, most = httpx.get(f"http://{self.upstream}/active/{tag}").json()
        return now, most

    def used(self, tag: str) -> list[tuple[float, int]]:
        """When calls of this tag arrived at the model, and the tokens that they used."""
        lines = (line.split() for line in self.record.read_text().splitlines())
        return [(float(at), int(tokens)) for at, of, tokens in lines if of == tag]

    def billed(self, team: str) -> list[float]:
        """What LiteLLM has billed to the calls of a team, in dollars."""
        lines = (line.split() for line in self.bills.read_text().splitlines())
        return [float(dollars) for of, dollars in lines if of == team]

    def spent(self, team: str) -> float:
        """What the cluster knows to be spent of a team's budget."""
        command = [BINARY, "budget", "show", "--json", "--server", self.server.address, f"litellm/team/{team}/budget"]
        shown: float = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["spent"]
        return shown

    def stop(self) -> None:
        for proxy in self.proxies:
            proxy.kill()
        self.model.kill()
        self.model.wait()
        self.server.kill()


def request(proxy: Proxy, key: str, prompt: str, **more: object) -> dict[str, Any]:
    """A call with the key `sk-TEAM-USER`."""
    body = {"model": "mock", "messages": [{"role": "user", "content": prompt}], "max_tokens": 500, **more}
    url = f"http://{proxy.address}/v1/chat/completions"
    return {"url": url, "headers": {"authorization": f"Bearer sk-{key}"}, "json": body, "timeout": 60}


def post(proxy: Proxy, key: str, prompt: str, **more: object) -> httpx.Response:
    return httpx.post(**request(proxy, key, prompt, **more))


async def load(proxies: Sequence[Proxy], seconds: float, callers: int, key: str, prompt: str) -> dict[int, int]:
    """Calls without a pause from several callers, each with a user of its own, and counts status codes."""
    statuses: dict[int, int] = {}
    end = time.monotonic() + seconds
    # A connection for each call, so that all workers get some.
    async with httpx.AsyncClient(limits=httpx.Limits(max_keepalive_connections=0)) as client:

        async def caller(n: int) -> None:
            while time.monotonic() < end:
                asked = request(proxies[n % len(proxies)], f"{key}-u{n}", prompt)
                status = (await client.post(**asked)).status_code
                statuses[status] = statuses.get(status, 0) + 1

        await asyncio.gather(*(caller(n) for n in range(callers)))
    return statuses
