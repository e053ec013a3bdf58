"""Clients of the Python package that want something else now and then. On SIGTERM they leave and write down what they
could use, and when, as the records that `leaseway-bench chaos` adds up."""

import argparse
import json
import random
import signal
import threading

import leaseway

flags = argparse.ArgumentParser()
flags.add_argument("--servers", required=True)
flags.add_argument("--resource", required=True)
flags.add_argument("--clients", type=int, required=True)
flags.add_argument("--seed", type=int, required=True)
flags.add_argument("--records", required=True)
flags.add_argument("--tls-cert")
flags.add_argument("--tls-key")
flags.add_argument("--tls-ca")
flags = flags.parse_args()

ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
draw = random.Random(flags.seed)


def wants():
    """From little to more than there is."""
    return draw.choice([0.0, 1.0, 20.0, 50.0, 100.0, 3000.0])


def client(number):
    tls = {name: getattr(flags, name) for name in ("tls_cert", "tls_key", "tls_ca") if getattr(flags, name)}
    return leaseway.Client(flags.servers.split(","), id=f"python:{number}", lease_trace=True, **tls)


clients = [client(number) for number in range(flags.clients)]
rates = [leaseway.Rate(client, flags.resource, wants=wants()) for client in clients]
while not ended.wait(0.2):
    draw.choice(rates).set_wants(wants())
with open(flags.records, "w") as records:
    for client in clients:
        client.close()
        for at, resource, capacity in client.take_lease_trace():
            line = {"at_us": int(at * 1e6), "client": client.id, "resource": resource, "capacity": capacity}
            records.write(json.dumps(line) + "\n")
