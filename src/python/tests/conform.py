"""The program with which `leaseway-bench conform` drives this library."""

import asyncio
import sys
import threading
import time

import leaseway


class Driver:
    def __init__(self):
        self.client = None
        self.opened = {}
        self.permits = {}
        # Permits of several limits in use.
        self.taken = None
        self.reservations = {}

    def open(self, id, servers, mode):
        self.client = leaseway.Client.from_env(servers=servers.split(","), id=id, mode=mode)

    def rate(self, name, wants):
        self.opened[name] = self.client.rate(name, wants=float(wants))

    def gauge(self, name, wants):
        self.opened[name] = self.client.gauge(name, wants=float(wants))

    def wants(self, name, wants):
        self.opened[name].set_wants(float(wants))

    def capacity(self, name):
        resource = self.opened[name]
        return f"{resource.capacity} {resource.basis}"

    def allow(self, name, n):
        admitted = self.opened[name].try_acquire(int(n))
        if isinstance(admitted, bool):
            return str(admitted).lower()
        if admitted is not None:
            self.permits.setdefault(name, []).append(admitted)
        return "true" if admitted is not None else "false"

    def release(self, name, _):
        self.permits[name].pop().release()

    def count(self, name, seconds):
        end, count = time.monotonic() + float(seconds), 0
        while (left := end - time.monotonic()) > 0:
            try:
                self.opened[name].wait(timeout=left)
            except TimeoutError:
                break
            count += 1
        return count

    def budget(self, name):
        self.opened[name] = self.client.budget(name)

    def spend(self, name, amount, seconds):
        if float(seconds) == 0:
            return str(self.opened[name].try_spend(float(amount))).lower()
        try:
            self.opened[name].spend(float(amount), timeout=float(seconds))
        except TimeoutError:
            return "false"
        return "true"

    def reserve(self, name, amount, seconds):
        try:
            if float(seconds) == 0:
                reservation = self.opened[name].try_reserve(float(amount))
            else:
                reservation = self.opened[name].reserve(float(amount), timeout=float(seconds))
        except TimeoutError:
            return "false"
        self.reservations[name] = reservation
        return "false" if reservation is None else "true"

    def settle(self, name, used):
        self.reservations.pop(name).settle(float(used))

    def period(self, name):
        period = self.opened[name].period
        return "none" if period is None else period[0]

    def left(self, name):
        return self.opened[name].left

    def streams(self):
        # The default of the library.
        return 100

    def limits(self, costs):
        parts = (cost.split("=") for cost in costs.split(","))
        return self.client.limits(*(self.opened[name].of(int(n)) for name, n in parts))

    def all(self, costs, seconds):
        if float(seconds) == 0:
            taken = self.limits(costs).try_acquire()
            if not taken:
                return f"refused {taken.resource}"
            self.taken = taken
            return "true"
        try:
            self.taken = self.limits(costs).acquire(timeout=float(seconds))
        except TimeoutError:
            return "false"
        return "true"

    def cancel(self, costs, seconds):
        limits = self.limits(costs)

        async def wait():
            return await limits.acquire_async()

        try:
            # It cancels the wait.
            self.taken = asyncio.run(asyncio.wait_for(wait(), float(seconds)))
        except asyncio.TimeoutError:
            return "false"
        return "true"

    # The name of the command is a keyword of Python.
    def return_(self):
        self.taken.release()

    def opposite(self, one, other, n, seconds):
        end, counts = time.monotonic() + float(seconds), [0, 0]

        def take_repeatedly(caller, costs):
            limits = self.limits(costs)
            while (left := end - time.monotonic()) > 0:
                try:
                    permits = limits.acquire(timeout=left)
                except TimeoutError:
                    return
                counts[caller] += 1
                permits.release()

        costs = [f"{one}={n},{other}={n}", f"{other}={n},{one}={n}"]
        callers = [threading.Thread(target=take_repeatedly, args=pair) for pair in enumerate(costs)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        return f"{counts[0]} {counts[1]}"

    def close(self, name):
        # The lease is released with the last reference.
        del self.opened[name]

    def exit(self):
        self.client.close()


driver = Driver()
for line in sys.stdin:
    command, *arguments = line.split()
    try:
        answer = getattr(driver, "return_" if command == "return" else command)(*arguments)
    except Exception as error:
        answer = f"error {error!r}"
    print("ok" if answer is None else answer, flush=True)
