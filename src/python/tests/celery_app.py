"""The Celery app of `celery_rates.py`: sends mails, limited by a shared rate or by Celery's own limit."""

import os
import time

from celery import Celery

from leaseway import Client

folder = os.environ["MAILS"]
app = Celery("mails", broker=os.environ.get("BROKER", "filesystem://"))
if "BROKER" not in os.environ:
    app.conf.broker_transport_options = {"data_folder_in": f"{folder}/queue", "data_folder_out": f"{folder}/queue"}
    app.conf.control_folder = f"{folder}/control"
app.conf.broker_connection_retry_on_startup = True


def note(number: int) -> None:
    with open(f"{folder}/sent-{os.getpid()}", "a") as sent:
        sent.write(f"{time.monotonic()}\n")


if "OWN_LIMIT" in os.environ:
    send = app.task(rate_limit=os.environ["OWN_LIMIT"], name="send")(note)
else:
    send = app.task(name="send")(Client(os.environ["LEASEWAY_SERVER"]).rate("mails").limit(note))
