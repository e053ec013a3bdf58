"""TLS, client certificates and tokens."""

import subprocess

import pytest
from conftest import BINARY, eventually, template

import leaseway
from leaseway import Client


@pytest.fixture
def certificates(tmp_path):
    """A CA, a server certificate, and a client certificate of `alice`."""
    folder = tmp_path / "certs"
    for what in (["init"], ["issue", "node", "--host", "127.0.0.1"], ["issue", "alice"]):
        made = subprocess.run([BINARY, "certs", *what], cwd=tmp_path, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture
def secured(serve, certificates):
    """A server with TLS that requires client certificates."""
    of = {"cert": "node.pem", "key": "node.key", "ca": "ca.pem"}
    return serve(flags=tuple(f"--tls-{flag}={certificates / file}" for flag, file in of.items()))


def why_not_ready(client):
    searches = client.rate("searches", wants=10)
    eventually(lambda: client.health.last_error)
    with pytest.raises(leaseway.NotReady) as raised:
        searches.ready(0)
    return raised.value.why


def test_a_client_with_a_certificate_gets_leases(secured, certificates):
    own = {"tls_cert": certificates / "alice.pem", "tls_key": str(certificates / "alice.key")}
    with Client(f"https://{secured.address}", tls_ca=certificates / "ca.pem", **own) as client:
        searches = client.rate("searches", wants=10)
        client.ready(60)
        assert searches.capacity == 10


def test_rejected_certificates_are_reported(secured, certificates):
    ca = {"tls_ca": certificates / "ca.pem"}
    own = {"tls_cert": certificates / "alice.pem", "tls_key": certificates / "alice.key"}
    for options, expected in [
        (ca, "certificate"),
        ({**ca, **own, "tls_server_name": "elsewhere"}, "is for other names (127.0.0.1)"),
        ({}, "TLS"),
    ]:
        with Client(secured.address, **options) as client:
            assert expected in why_not_ready(client), (options, client.health)


def test_a_certificate_without_its_key_is_an_error(certificates):
    with pytest.raises(leaseway.BuildError, match="alice.pem|key"):
        Client("127.0.0.1:5100", tls_ca=certificates / "ca.pem", tls_cert=certificates / "alice.pem")


def test_a_token_authenticates_the_client(serve, tmp_path):
    token, tokens = tmp_path / "robot.token", tmp_path / "tokens"
    made = subprocess.run([BINARY, "token", "new", "robot", "--out", token], capture_output=True, text=True, check=True)
    tokens.write_text(made.stdout)
    access = "access:\n- who: robot\n  may: ask\n"
    server = serve(template("*", 100), access, flags=("--tokens", str(tokens)))
    for options in ({"token_file": token}, {"token": token.read_text().strip()}):
        with Client(server.address, id="robot/1", **options) as client:
            searches = client.rate("searches", wants=10)
            client.ready(60)
            assert searches.capacity == 10
    with Client(server.address, id="other", token_file=token) as client:
        assert "robot" in why_not_ready(client)
    with Client(server.address, id="robot/1", token="made-up") as client:
        assert "token" in why_not_ready(client)
