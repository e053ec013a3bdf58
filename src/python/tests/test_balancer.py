"""Load balancing across backends."""

import asyncio
import gc
import json
import os
import subprocess
import threading
from collections import Counter
from math import inf, nan
from pathlib import Path

import pytest
from conftest import eventually, python, template

import leaseway
from leaseway import Balanced, Balancer, Rate

TESTDATA = Path(__file__).parents[2] / "client" / "testdata"
SCENARIOS = json.loads((TESTDATA / "balancer.json").read_text())["scenarios"]
VECTORS = json.loads((TESTDATA / "byrequests.json").read_text())["vectors"]


def picks(balancer, count):
    picked = [balancer.pick() for _ in range(count)]
    return "".join("-" if pick is None else pick.backend for pick in picked)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["name"])
def test_sequences_of_the_rust_client(scenario):
    """`balancer.json` describes its fields. Time cannot be advanced here, so steps after that are left out."""
    capacities = scenario.get("capacities", [])
    names = "abcdefgh"[: len(scenario.get("weights", capacities))]
    balancer = Balancer(names, weights=scenario.get("weights"), retry=scenario.get("retry", 60) + 3600)
    for index, capacity in enumerate(capacities):
        balancer.set_capacity(index, capacity)
    for op, *step in scenario["steps"]:
        if op == "advance":
            break
        index = names.find(step[0]) if isinstance(step[0], str) else None
        if op == "pick":
            assert picks(balancer, len(step[0])) == step[0]
        elif op == "where":
            asked = []
            pick = balancer.pick_where(lambda name: asked.append(name) or name not in step[0])
            assert ("".join(asked), pick.backend if pick else "-") == (step[1], step[2])
        elif op == "sticky":
            assert (balancer.pick_sticky(index) is not None) == step[1]
        elif op == "capacity":
            balancer.set_capacity(index, inf if step[1] == "unlimited" else step[1])
        elif op == "weight":
            balancer.set_weight(index, step[1])
        elif op == "enabled":
            assert "".join(name for index, name in enumerate(names) if balancer.is_enabled(index)) == step[0]
        elif op == "next_retry":
            assert (balancer.next_retry() is None) == (step[0] is None)
        else:
            {"pause": balancer.pause, "resume": balancer.resume, "fail": balancer.failed}[op](index)


def replayable(vector):
    operations = {event["op"] for event in vector.get("events", [])}
    return operations <= {"disable", "enable", "force"} and "initial_lbstatus" not in vector


@pytest.mark.parametrize("vector", list(filter(replayable, VECTORS)), ids=lambda vector: vector["id"])
def test_vectors_of_the_rust_client(vector):
    """`byrequests.json` describes its fields. Those with operations that a balancer lacks are left out."""
    names = [member["name"] for member in vector["members"]]
    balancer = Balancer(names, weights=[member["lbfactor"] for member in vector["members"]])
    for index, member in enumerate(vector["members"]):
        if not member.get("enabled", True):
            balancer.pause(index)
    picked = []
    for number in range(vector["picks_count"]):
        forced = None
        for event in vector.get("events", []):
            if event["before_pick"] == number:
                index = names.index(event["member"])
                if event["op"] == "force":
                    forced = index
                else:
                    {"disable": balancer.pause, "enable": balancer.resume}[event["op"]](index)
        pick = balancer.pick() if forced is None else balancer.pick_sticky(forced)
        picked.append(pick and pick.backend)
    expected = vector.get("first_picks", vector.get("picks"))
    assert picked[: len(expected)] == expected
    assert {name: picked.count(name) for name in names} == vector["counts"]


def test_most_vectors_are_replayed():
    assert sum(map(replayable, VECTORS)) >= 15


def test_picks_are_of_any_objects():
    one, other = object(), {"not": "hashable"}
    balancer = Balancer([one, other], weights=[2, 1], retry=0.2)
    pick = balancer.pick()
    assert pick.backend is one and pick.index == 0 and "index=0" in repr(pick)
    pick.failed()
    assert balancer.pick().backend is other and balancer.backends == (one, other)
    assert 0 < balancer.next_retry() <= 0.2
    eventually(lambda: balancer.is_enabled(0))
    assert balancer.next_retry() is None
    assert Balancer[str](["a"]).pick() is None


def test_arguments_are_checked():
    balancer = Balancer("ab", weights=[1, 1])
    for call in (
        lambda: Balancer("ab", weights=[1]),
        lambda: Balancer("ab", weights=[1, -1]),
        lambda: Balancer("a", retry=-1),
        lambda: Balancer(range(65_537)),
        lambda: balancer.set_weight(0, 2**32),
        lambda: balancer.set_capacity(0, nan),
        lambda: balancer.set_capacity(0, -1),
        lambda: Balanced([]),
    ):
        with pytest.raises(ValueError, match=r"\d|expected"):
            call()
    for call in (balancer.pause, balancer.resume, balancer.failed, balancer.is_enabled, balancer.pick_sticky):
        for index in (-1, 2):
            with pytest.raises(IndexError, match="there are 2 backends"):
                call(index)
    assert picks(balancer, 4) == "abab"


def test_an_exception_in_a_predicate_changes_nothing():
    balancer = Balancer("ab", weights=[2, 1])

    def fails(name):
        raise KeyError(name)

    with pytest.raises(KeyError):
        balancer.pick_where(fails)
    assert picks(balancer, 6) == "abaaba"


def test_predicates_may_use_the_balancer_and_let_other_threads_run():
    balancer = Balancer("ab", weights=[1, 1])
    assert balancer.pick_where(lambda name: balancer.pick().backend == "b").backend == "b"
    # The picks inside charged both, and then b was picked.
    assert picks(balancer, 2) == "ab"

    counts = Counter()

    def work():
        for _ in range(300):
            event = threading.Event()
            timer = threading.Timer(0, event.set) if _ % 50 == 0 else None
            if timer:
                timer.start()
            pick = balancer.pick_where(lambda _: timer is None or event.wait(10))
            counts[pick.backend] += 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert counts["a"] + counts["b"] == 1200 and abs(counts["a"] - counts["b"]) <= 8


def test_threads_keep_exact_shares():
    balancer, counts = Balancer("ab", weights=[7, 3]), Counter()

    def work():
        counts.update(picks(balancer, 1000))

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert counts == {"a": 2800, "b": 1200}


@pytest.fixture
def search(serve):
    """Two backends, with leases of 700 and 300."""
    server = serve(template("search/a", 700), template("search/b", 300))
    with leaseway.Client(server.address) as client:
        search = Balanced((client.rate(name, wants=1000) for name in ("search/a", "search/b")), retry=3600)
        eventually(lambda: search.is_enabled(0) and search.is_enabled(1))
        yield search


def turns(search, count):
    return "".join(search.wait(timeout=20).backend.id[-1] for _ in range(count))


def test_shares_follow_the_leases(search):
    assert turns(search, 20) == "abaaabaabaabaaabaaba"
    pick = search.wait()
    assert isinstance(pick.backend, Rate) and pick.backend is search.backends[pick.index]
    pick.failed()
    assert turns(search, 5) == "bbbbb"
    search.failed(1)
    assert search.pick() is None and 3500 < search.next_retry() <= 3600
    with pytest.raises(leaseway.Timeout, match="search/a, search/b"):
        search.wait(timeout=0.05)


def test_waits_end_with_the_pause_of_all_backends(search):
    search.pause(0)
    search.pause(1)
    picked = []
    thread = threading.Thread(target=lambda: picked.append(search.wait(timeout=20).backend.id))
    thread.start()
    search.resume(1)
    thread.join()
    assert picked == ["search/b"]


def test_tasks_wait_for_picks(search):
    async def run():
        pick = await search.wait_async()
        assert pick.backend.id == "search/a"
        search.pause(0)
        assert [(await search.wait_async(timeout=20)).index for _ in range(3)] == [1, 1, 1]
        search.pause(1)
        with pytest.raises(leaseway.Timeout):
            await search.wait_async(timeout=0.05)
        waiting = asyncio.ensure_future(search.wait_async())
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        waiting = [asyncio.ensure_future(search.wait_async(timeout=20)) for _ in range(10)]
        await asyncio.sleep(0.05)
        search.resume(0)
        assert {pick.index for pick in await asyncio.gather(*waiting)} == {0}

    asyncio.run(run())


def test_permits_are_taken_without_waiting(serve):
    server = serve(template("*", 10))
    with leaseway.Client(server.address) as client:
        search = Balanced(client.rate(name, wants=10, window=3600) for name in "ab")
        eventually(lambda: all(search.is_enabled(index) for index in (0, 1)))
        search.backends[0].charge(100_000)
        eventually(lambda: search.backends[1].available >= 3)
        assert [search.pick_where(Rate.try_acquire).backend.id for _ in range(3)] == ["b", "b", "b"]


def test_a_backend_that_loses_its_lease_is_left_by_those_who_wait_there(serve):
    slow, other = serve(template("*", 0.001, lease=2)), serve(template("*", 1000))
    with leaseway.Client(slow.address, mode="pessimistic") as first, leaseway.Client(other.address) as second:
        search = Balanced([first.rate("a", wants=1000), second.rate("b", wants=1000)])
        search.pause(1)
        eventually(lambda: search.is_enabled(0))
        picked = []
        thread = threading.Thread(target=lambda: picked.append(search.wait(timeout=60).backend.id))
        thread.start()
        slow.kill()
        eventually(lambda: not search.is_enabled(0))
        search.resume(1)
        thread.join()
        assert picked == ["b"]


def test_wants_must_be_set(client):
    with pytest.raises(leaseway.OpenError, match="the wants of `a` cannot be estimated"):
        Balanced([client.rate("a")])


def test_waits_end_when_the_client_is_closed(serve):
    server = serve(template("*", 1))
    client = leaseway.Client(server.address)
    search = Balanced([client.rate("a", wants=1)])
    search.pause(0)
    raised = []

    def work():
        try:
            search.wait()
        except leaseway.Closed as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    client.close()
    thread.join()
    assert raised


def test_the_lease_is_released_with_the_balancer(serve):
    server = serve(template("*", 10))
    with leaseway.Client(server.address) as client, leaseway.Client(server.address) as other:
        search = Balanced([client.rate("a", wants=10)])
        eventually(lambda: search.is_enabled(0))
        rest = other.rate("a", wants=10)
        eventually(lambda: rest.capacity == 5)
        del search
        gc.collect()
        eventually(lambda: rest.capacity == 10)


def test_a_forked_process_has_leases_of_its_own(search):
    search.pause(0)
    child = os.fork()
    if child == 0:
        # Pauses of the parent do not apply, and half of each capacity arrives.
        good = {search.wait(timeout=20).backend.id for _ in range(40)} == {"search/a", "search/b"}
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert turns(search, 3) == "bbb"


def test_programs_end_while_a_thread_waits():
    program = python(
        "import threading, leaseway\n"
        "client = leaseway.Client('127.0.0.1:1')\n"
        "search = leaseway.Balanced([client.rate('a', wants=1)])\n"
        "threading.Thread(target=search.wait, daemon=True).start()\n"
        "print('ended')\n",
        stderr=subprocess.PIPE,
    )
    assert program.communicate(timeout=60) == ("ended\n", "") and program.returncode == 0
