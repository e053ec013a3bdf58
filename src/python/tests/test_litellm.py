"""The LiteLLM proxy with `leaseway.litellm.limiter`: real proxies of several workers, a real server, a mock model."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Server, eventually, free_address, template

httpx = pytest.importorskip("httpx")
pytest.importorskip("apscheduler", reason="needs litellm[proxy]")

HERE = Path(__file__).parent / "litellm_proxy"
LEASE_SECONDS = 6
LIMITS = "team/tpm,team/rpm,team/parallel,key/tpm"
RESOURCES = (
    template("litellm/team/tokens/tpm", 1000, lease=LEASE_SECONDS),
    template("litellm/team/calls/rpm", 5, lease=LEASE_SECONDS),
    template("litellm/team/slots/parallel", 4, lease=LEASE_SECONDS),
    template("litellm/key/*/tpm", 500, lease=LEASE_SECONDS),
    template("litellm/team/*/parallel", 100, lease=LEASE_SECONDS),
    template("litellm/team/*/*", 100_000, lease=LEASE_SECONDS),
)
CONFIG = """
model_list:
  - model_name: mock
    litellm_params: {{model: openai/mock, api_base: "http://{upstream}", api_key: none, max_retries: 0}}
litellm_settings:
  callbacks: [{callbacks}]
  num_retries: 0
general_settings:
  custom_auth: auth.auth
  master_key: sk-{master}
"""


class Proxy:
    """A LiteLLM proxy with its workers."""

    def __init__(self, at: Path, upstream: str, workers: int, environ: dict[str, str], limiter: bool = True) -> None:
        at.mkdir()
        shutil.copy(HERE / "auth.py", at)
        callbacks = '"leaseway.litellm.limiter"' if limiter else ""
        (at / "config.yaml").write_text(CONFIG.format(upstream=upstream, callbacks=callbacks, master=secrets.token_hex(32)))
        self.address = free_address()
        litellm = Path(sys.executable).parent / "litellm"
        command = [str(litellm), "--config", str(at / "config.yaml"), "--host", "127.0.0.1"]
        command += ["--port", self.address.rpartition(":")[2], "--num_workers", str(workers), "--telemetry", "False"]
        # A busy machine starts workers slowly; uvicorn would kill them.
        command += ["--timeout_worker_healthcheck", "120"]
        self.output = at / "output"
        known = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION", "NO_PROXY": "*"}
        environ = {**os.environ, **known, **environ}
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=environ, cwd=at, start_new_session=True
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
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Setup:
    def __init__(self, at: Path, proxies: int, workers: int) -> None:
        config = at / "resources.yaml"
        config.write_text("resources:\n" + "".join(RESOURCES))
        self.server = Server("--config", str(config))
        self.upstream = free_address()
        self.record = at / "record"
        port = self.upstream.rpartition(":")[2]
        self.model = subprocess.Popen([sys.executable, str(HERE / "upstream.py"), port, str(self.record)])
        environ = {
            "LEASEWAY_SERVER": self.server.address,
            "LEASEWAY_LITELLM_LIMITS": LIMITS,
            "LEASEWAY_LITELLM_WINDOW": "5",
            "LEASEWAY_LITELLM_WAIT": "2",
        }
        self.proxies = [Proxy(at / f"proxy{n}", self.upstream, workers, environ) for n in range(proxies)]

    def active(self) -> int:
        return int(httpx.get(f"http://{self.upstream}/active").text)

    def stop(self) -> None:
        for proxy in self.proxies:
            proxy.kill()
        self.model.kill()
        self.model.wait()
        self.server.kill()


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    setup = Setup(tmp_path_factory.mktemp("litellm"), proxies=2, workers=2)
    try:
        for proxy in setup.proxies:
            proxy.ready()
        yield setup
    finally:
        setup.stop()


def request(proxy: Proxy, key: str, prompt: str = "hello", **more: object) -> dict[str, object]:
    body = {"model": "mock", "messages": [{"role": "user", "content": prompt}], "max_tokens": 100, **more}
    url = f"http://{proxy.address}/v1/chat/completions"
    return {"url": url, "headers": {"authorization": f"Bearer sk-{key}"}, "json": body, "timeout": 60}


def post(proxy: Proxy, key: str, prompt: str = "hello", **more: object) -> httpx.Response:
    return httpx.post(**request(proxy, key, prompt, **more))


async def load(proxies: list[Proxy], seconds: float, callers: int, prompt: str, keys: list[str]) -> dict[int, int]:
    """Calls without a pause from several callers, and counts status codes."""
    statuses: dict[int, int] = {}
    end = time.monotonic() + seconds
    async with httpx.AsyncClient(limits=httpx.Limits(max_keepalive_connections=0)) as client:

        async def caller(n: int) -> None:
            while time.monotonic() < end:
                asked = request(proxies[n % len(proxies)], keys[n % len(keys)], prompt)
                status = (await client.post(**asked)).status_code
                statuses[status] = statuses.get(status, 0) + 1

        await asyncio.gather(*(caller(n) for n in range(callers)))
    return statuses


def test_a_team_alone_reaches_its_tokens_and_not_more(setup):
    begun = time.time()
    seconds = 30
    keys = [f"tokens-u{n}" for n in range(6)]
    statuses = asyncio.run(load(setup.proxies, seconds, 24, "hello", keys))
    lines = [line.split() for line in setup.record.read_text().splitlines()]
    used = [(float(at), int(tokens)) for at, tokens in lines if float(at) >= begun]
    total = sum(tokens for _, tokens in used)
    took = max(at for at, _ in used) - begun
    allowed = 1000 * took
    late = sum(tokens for at, tokens in used if begun + 10 <= at < begun + 30) / 20_000
    print(f"{statuses}, used {total} of {allowed:.0f} ({total / allowed:.1%}), after 10 s {late:.1%}")
    assert set(statuses) <= {200, 429}
    assert total <= allowed, "no limiter begins with a full bucket"
    assert late > 0.9


def test_a_refusal_names_the_limit(setup):
    proxy = setup.proxies[0]
    refused = None
    for _ in range(60):
        answer = post(proxy, "big-u1", max_tokens=50_000)
        if answer.status_code == 429:
            refused = answer
            break
    assert refused is not None
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["x-ratelimit-scope"] == "key"
    assert re.fullmatch(r"litellm/key/\S+/tpm", refused.headers["x-ratelimit-resource"])
    assert "tokens per minute of this key (resource litellm/key/" in refused.json()["error"]["message"]


def test_answers_say_limit_and_remaining(setup):
    answer = post(setup.proxies[0], "plain-u2")
    assert answer.status_code == 200, answer.text
    assert int(answer.headers["x-ratelimit-team-limit-tokens"]) > 0
    assert int(answer.headers["x-ratelimit-key-limit-tokens"]) > 0
    assert "x-ratelimit-team-remaining-requests" in answer.headers


async def slots(setup, prompt: str, callers: int, **more: object) -> list[int]:
    async with httpx.AsyncClient() as client:
        asked = (request(setup.proxies[n % 2], "slots-u3", prompt, **more) for n in range(callers))
        answers = await asyncio.gather(*(client.post(**one) for one in asked))
    return sorted(answer.status_code for answer in answers)


def all_slots_are_free(setup) -> None:
    """Eight calls of 4 s find four slots, however they are spread."""

    def four() -> bool:
        statuses = asyncio.run(slots(setup, "sleep=4", 8))
        print(statuses)
        assert statuses.count(200) <= 4
        return statuses.count(200) == 4

    eventually(four, 40)


def test_parallel_calls_are_shared(setup):
    all_slots_are_free(setup)


def test_failures_release_once(setup):
    statuses = asyncio.run(slots(setup, "fail", 20))
    assert set(statuses) <= {400, 429}
    all_slots_are_free(setup)


def test_streams_settle(setup):
    for prompt in ("hello", "hello nousage"):
        answer = post(setup.proxies[0], "plain-u4", prompt, stream=True)
        assert answer.status_code == 200
        assert answer.text.rstrip().endswith("[DONE]")


def test_a_client_that_leaves_mid_stream_returns_its_slot(setup):
    for _ in range(6):
        asked = request(setup.proxies[0], "slots-u5", "sleep=0.5", stream=True)
        with httpx.stream("POST", **asked) as answer:
            if answer.status_code == 200:
                next(answer.iter_lines())
    all_slots_are_free(setup)


def test_a_killed_worker_loses_its_slots_within_a_lease(setup):
    async def fill() -> None:
        async with httpx.AsyncClient() as client:
            asked = [client.post(**request(setup.proxies[1], "slots-u6", "sleep=30")) for _ in range(4)]
            calls = [asyncio.ensure_future(one) for one in asked]
            while setup.active() < 3:
                await asyncio.sleep(0.1)
            setup.proxies[1].kill()
            await asyncio.gather(*calls, return_exceptions=True)

    asyncio.run(fill())
    begun = time.monotonic()

    async def four() -> list[int]:
        async with httpx.AsyncClient() as client:
            asked = (client.post(**request(setup.proxies[0], "slots-u6", "sleep=3")) for _ in range(4))
            return [answer.status_code for answer in await asyncio.gather(*asked)]

    eventually(lambda: asyncio.run(four()) == [200] * 4, LEASE_SECONDS + 15)
    print(f"four slots after {time.monotonic() - begun - 3:.1f} s")
