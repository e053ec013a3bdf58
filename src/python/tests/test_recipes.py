"""The recipes of docs/guide/python.md with their libraries. Recipes of missing libraries are skipped."""

import asyncio
import http.server
import threading
import time

import celery_rates
import pytest
from conftest import eventually, python, seconds, template

import leaseway
from leaseway import Client


asked = []


@pytest.fixture
def page():
    """A web server that records the times of requests."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(time.monotonic())
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    asked.clear()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def test_celery_workers_share_a_rate(serve, tmp_path):
    pytest.importorskip("celery")
    began = celery_rates.run(tmp_path, serve(template("mails", 50)).address, seconds=8, queued=1500)
    print(f"{len(began) / 8:.2f} mails per second from three workers of two processes")
    # The lower bound depends on the speed of the machine, the upper bound does not.
    assert 0 < len(began) <= 50 * 8 + 2 * celery_rates.PROCESSES


CRAWL = """
import sys
import scrapy
from scrapy.crawler import CrawlerProcess
from leaseway import Client

server, page = sys.argv[1:]

class Limited:
    def __init__(self):
        self.pages = Client(server).rate("pages")

    async def process_request(self, request):
        await self.pages.wait_async()

class Pages(scrapy.Spider):
    name = "pages"
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Limited: 950}, "LOG_LEVEL": "WARNING", "TELNETCONSOLE_ENABLED": False}

    async def start(self):
        for number in range(20):
            yield scrapy.Request(f"{page}?{number}", dont_filter=True)

    def parse(self, response):
        pass

process = CrawlerProcess()
process.crawl(Pages)
process.start()
"""


def test_scrapy_crawlers_share_a_rate(serve, page):
    pytest.importorskip("scrapy")
    server = serve(template("pages", 20))
    crawlers = [python(CRAWL, server.address, page) for _ in range(2)]
    assert [crawler.wait(120) for crawler in crawlers] == [0, 0]
    assert len(asked) == 40
    # Two bursts, each one permit and 20 ms of capacity, pass at once.
    assert max(asked) - min(asked) >= (40 - 2 * 1.4) / 20 - 0.1


def test_httpx_requests_wait_for_a_permit(client, page):
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


def test_requests_wait_for_a_permit(client, page):
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


def test_sqlalchemy_connections_hold_permits(serve, tmp_path):
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
    # The used fraction depends on the speed of the machine; the upper bound does not.
    assert 0 < used <= 1000 * took + 1000
