"""Forked, spawned and ending processes, and unreachable servers."""

import multiprocessing
import os
import pydoc
import signal
import threading
import time

import pytest
from conftest import eventually, free_address, python

import leaseway
from leaseway import Client


def in_child(work):
    """The result of `work` in a forked process. Fails after 10 seconds, because a child must not hang."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            result = repr(work())
        except BaseException as error:
            result = f"{type(error).__name__}: {error}"
        os.write(write, result.encode())
        os._exit(0)
    os.close(write)
    stuck = threading.Timer(10, os.kill, [child, signal.SIGKILL])
    stuck.start()
    with os.fdopen(read) as pipe:
        result = pipe.read()
    stuck.cancel()
    os.waitpid(child, 0)
    return result


def test_a_forked_process_has_a_client_of_its_own(client):
    searches = client.rate("searches")
    searches.wait()

    def work():
        searches.wait(timeout=8)
        return client.id

    ids = {in_child(work) for _ in range(3)} | {repr(client.id)}
    assert len(ids) == 4, ids
    searches.wait()


def test_a_client_with_an_id_is_not_copied(server):
    with Client(server.address, id="crawler") as one, Client(server.address, id="crawler-{pid}") as many:
        assert many.id == f"crawler-{os.getpid()}"
        of_one, of_many = one.rate("searches"), many.rate("searches")
        assert in_child(of_one.wait).startswith("Forked: the client `crawler` belongs to the process that this one was")
        assert in_child(lambda: of_many.wait(timeout=8) or many.id).startswith("'crawler-")


def test_permits_taken_before_a_fork_stay_with_the_parent(client):
    jobs, tokens = client.gauge("jobs", wants=2), client.rate("tokens", wants=10)
    permit, reservation = jobs.acquire(), tokens.reserve(1)

    def work():
        permit.release()
        with pytest.raises(leaseway.Forked):
            reservation.settle(0)
        return jobs.in_use

    assert in_child(work) == "0"
    assert jobs.in_use == 1
    reservation.settle(1)


def test_forks_while_threads_wait_do_not_hang(client):
    # Small enough for the leases of 20 children, which outlive them, and of the parent.
    searches, end = client.rate("searches", wants=4), threading.Event()

    def work():
        while not end.is_set():
            searches.wait()

    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    try:
        for _ in range(20):
            assert in_child(lambda: searches.wait(timeout=8)) == "None"
    finally:
        end.set()
        [thread.join() for thread in threads]


inherited = None


def worker(address):
    client = inherited or Client(address)
    client.rate("searches").wait(3, timeout=8)
    return client.id


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pools_of_multiprocessing(server, client, method, monkeypatch):
    monkeypatch.setattr(f"{__name__}.inherited", client)
    client.rate("searches").wait()
    with multiprocessing.get_context(method).Pool(3) as pool:
        ids = pool.map(worker, [server.address] * 6, chunksize=1)
    assert client.id not in ids and len(ids) == 6


def test_leases_are_released_at_exit(server, client):
    program = """
import sys
from leaseway import Client
rate = Client(sys.argv[1]).rate("searches", wants=100)
rate.ready()
"""
    assert python(program, server.address).wait(20) == 0
    searches = client.rate("searches", wants=100)
    eventually(lambda: searches.capacity == 100)


def test_an_unreachable_server_is_no_error():
    with Client(free_address(), deadline=0.5) as client:
        searches = client.rate("searches", wants=10)
        with pytest.raises(leaseway.NotReady, match="no lease yet for `searches`") as raised:
            client.ready(0.5)
        assert raised.value.resources == ["searches"] and raised.value.why
        eventually(lambda: client.health.failures > 0)
        assert client.health.last_error
        with pytest.raises(leaseway.Timeout):
            searches.wait(timeout=0.1)
        eager = client.rate("eager", wants=10, mode="optimistic")
        eventually(lambda: eager.basis == "fallback")
        assert eager.capacity == 10
        assert searches.capacity == 0


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"servers": []}, "no endpoint: pass at least one server"),
        ({"servers": "a:b:c"}, "a:b:c"),
        ({"mode": "brave"}, 'mode="brave": expected "safe", "pessimistic" or "optimistic"'),
        ({"id": "x" * 300}, "is 300 bytes long; at most 256 are allowed"),
        ({"token": "two\nlines"}, "a token is one line of visible ASCII characters"),
        ({"token_file": "/nowhere/token"}, "cannot read the token in /nowhere/token"),
        ({"token": "a", "token_file": "b"}, "token and token_file exclude each other"),
        ({"tls_ca": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
        ({"deadline": -1}, "deadline=-1: expected seconds"),
    ],
)
def test_invalid_options_are_reported(options, expected):
    with pytest.raises(ValueError, match=expected):
        Client(**{"servers": "127.0.0.1:5100", **options})


def test_options_can_be_stored_and_passed():
    options: leaseway.Options = {"mode": "pessimistic", "deadline": 0.5}
    with Client("127.0.0.1:1,127.0.0.1:3", **options) as client, Client.from_env({}, servers=["127.0.0.1:2"], **options) as other:
        assert client.health.endpoints == ["127.0.0.1:1", "127.0.0.1:3"] and other.health.endpoints == ["127.0.0.1:2"]


def test_the_environment_names_servers():
    with Client.from_env({"LEASEWAY_SERVER": "127.0.0.1:1,127.0.0.1:2"}) as client:
        assert client.health.endpoints == ["127.0.0.1:1", "127.0.0.1:2"]
    with pytest.raises(leaseway.BuildError, match="LEASEWAY_TLS='maybe': expected true or false"):
        Client.from_env({"LEASEWAY_TLS": "maybe"})


def test_the_process_environment_is_the_default_and_not_in_help(monkeypatch):
    monkeypatch.setenv("LEASEWAY_SERVER", "127.0.0.1:3")
    with Client.from_env() as client:
        assert client.health.endpoints == ["127.0.0.1:3"]
    text = pydoc.plain(pydoc.render_doc(Client))
    assert "from_env" in text and "environ({" not in text and os.environ["PATH"] not in text


def test_lease_traces_use_the_monotonic_clock_of_the_machine(server):
    begun = time.monotonic()
    with Client(server.address, lease_trace=True) as client:
        searches = client.rate("searches", wants=10)
        searches.wait()
        (at, resource, capacity) = client.take_lease_trace()[-1]
    assert resource == "searches" and capacity == 10 and begun <= at <= time.monotonic()
