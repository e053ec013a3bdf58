"""What the workers of `test_recipes.py` run: mails, limited together."""

import os
import time

from celery import Celery

from leaseway import Client

folder = os.environ["MAILS"]
app = Celery("mails", broker="filesystem://")
app.conf.broker_transport_options = {"data_folder_in": f"{folder}/queue", "data_folder_out": f"{folder}/queue"}
app.conf.control_folder = f"{folder}/control"
app.conf.broker_connection_retry_on_startup = True
mails = Client(os.environ["LEASEWAY_SERVER"]).rate("mails")


@app.task
@mails.limit
def send(number: int) -> None:
    with open(f"{folder}/sent-{os.getpid()}", "a") as sent:
        sent.write(f"{time.monotonic()}\n")
