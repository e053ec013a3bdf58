"""The recipes of docs/guide/python.md, with the libraries that they are for. A library that is not there is skipped."""

import asyncio
import http.server
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import eventually, seconds, template

import leaseway
from leaseway import Client


@pytest.fixture
def page():
    """A web server."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def test_celery_workers_keep_to_one_rate_together(serve, tmp_path):
    pytest.importorskip("celery")
    server = serve(template("mails", 50))
    for folder in ("queue", "control"):
        (tmp_path / folder).mkdir()
    environment = {**os.environ, "MAILS": str(tmp_path), "LEASEWAY_SERVER": server.address}
    environment["PYTHONPATH"] = str(Path(__file__).parent)
    command = [sys.executable, "-P"] if sys.version_info >= (3, 11) else [sys.executable]
    queue = "from celery_app import send\nfor number in range(1500): send.delay(number)"
    subprocess.run([sys.executable, "-c", queue], env=environment, cwd=tmp_path, check=True)
    start = [*command, "-m", "celery", "-A", "celery_app", "worker", "--concurrency", "2", "--loglevel", "WARNING"]
    start += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    workers = [
        subprocess.Popen([*start, "-n", f"worker{number}@test"], env=environment, cwd=tmp_path) for number in range(3)
    ]

    def sent():
        return sorted(float(line) for file in tmp_path.glob("sent-*") for line in file.read_text().splitlines(True)
                      if line.endswith("\n"))

    try:
        eventually(lambda: len(sent()) > 50 and len(list(tmp_path.glob("sent-*"))) == 6, 60)
        begin = time.monotonic() + 1
        time.sleep(9)
        counted = sum(begin <= at < begin + 8 for at in sent())
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(30)
    print(f"{counted / 8:.2f} mails per second from three workers of two processes")
    assert 0.9 * 50 * 8 <= counted <= 50 * 8 + 6 * 2


def test_httpx_requests_wait_for_their_turn(client, page):
    httpx = pytest.importorskip("httpx")

    class Limited(httpx.BaseTransport):
        def __init__(self, rate, transport):
            self.rate, self.transport = rate, transport

        def handle_request(self, request):
            self.rate.wait()
            return self.transport.handle_request(request)

    api = client.rate("api", wants=20)
    eventually(lambda: api.capacity == 20)
    with httpx.Client(transport=Limited(api, httpx.HTTPTransport())) as limited:
        assert limited.get(page).status_code == 204
        assert seconds(lambda: [limited.get(page) for _ in range(20)]) >= 0.9


def test_requests_wait_for_their_turn(client, page):
    requests = pytest.importorskip("requests")

    class Limited(requests.adapters.HTTPAdapter):
        def __init__(self, rate):
            super().__init__()
            self.rate = rate

        def send(self, *arguments, **named):
            self.rate.wait()
            return super().send(*arguments, **named)

    api = client.rate("api", wants=20)
    eventually(lambda: api.capacity == 20)
    with requests.Session() as session:
        session.mount("http://", Limited(api))
        assert session.get(page).status_code == 204
        assert seconds(lambda: [session.get(page) for _ in range(20)]) >= 0.9


def test_connections_of_sqlalchemy_have_permits(serve, tmp_path):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    server = serve(template("connections", 2))
    with Client(server.address) as client:
        connections = client.gauge("connections", wants=2)
        eventually(lambda: connections.capacity == 2)
        pool = sqlalchemy.pool.QueuePool
        engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/data", poolclass=pool, pool_size=5)

        @sqlalchemy.event.listens_for(engine, "do_connect")
        def wait(dialect, record, arguments, named):
            record.info["permit"] = connections.acquire(timeout=0.2)

        @sqlalchemy.event.listens_for(engine, "close")
        def give_back(connection, record):
            record.info.pop("permit").release()

        with engine.connect() as one:
            assert one.execute(sqlalchemy.text("select 1")).scalar() == 1
            with engine.connect():
                assert connections.in_use == 2
                with pytest.raises(leaseway.Timeout):
                    engine.connect()
            one.invalidate()
            assert connections.in_use == 1
        with engine.connect(), engine.connect():
            assert connections.in_use == 2
        engine.dispose()
        assert connections.in_use == 0


def test_litellm_replicas_share_a_budget(serve, monkeypatch):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm = pytest.importorskip("litellm")
    server = serve(template("tokens", 1000))

    async def completion(tokens, **request):
        async with tokens.reserve_async(request.get("max_tokens", 1000)) as reservation:
            answer = await litellm.acompletion(**request)
            reservation.settle(answer.usage.total_tokens)
            return answer

    async def replica(address, until):
        used = 0
        async with Client(address) as client:
            tokens = client.rate("tokens", window=1)
            while time.monotonic() < until:
                messages = [{"role": "user", "content": "a question"}]
                answer = await completion(
                    tokens, model="gpt-4o", max_tokens=100, messages=messages, mock_response="an answer " * 20
                )
                used += answer.usage.total_tokens
        return used

    async def main():
        begun = time.monotonic()
        used = await asyncio.gather(*(replica(server.address, begun + 6) for _ in range(3)))
        return sum(used), time.monotonic() - begun

    used, took = asyncio.run(main())
    print(f"{used} tokens in {took:.1f} s, of {1000 * took:.0f}")
    # How much of it is used depends on how fast the machine is; that it is not passed does not.
    assert 0 < used <= 1000 * took + 1000
