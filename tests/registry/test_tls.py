"""TLS: a certificate of a CA of our own, and clients that trust it or not."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from headworks._server import child_process
from headworks.errors import UnreachableError, UsageError
from headworks.registry_client import RegistryClient
from tests.registry.guarding import PASSWORDS, start, write_files
from tests.registry.rest import record, text_of

pytestmark = pytest.mark.e2e

V1 = text_of(record("id:long"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def secure(folder: Path) -> Iterator[child_process.Service]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    pair = authority.issue_cert("127.0.0.1", "localhost")
    pair.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    pair.private_key_pem.write_to_path(folder / "key.pem")
    options = ["--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem")]
    with start(folder, *write_files(folder), *options) as running:
        yield running


def test_confluents_client(secure: child_process.Service, folder: Path) -> None:
    with SchemaRegistryClient(
        {
            "url": f"https://{secure.address}",
            "ssl.ca.location": str(folder / "ca.pem"),
            "basic.auth.user.info": f"root:{PASSWORDS['root']}",
        }
    ) as client:
        schema_id = client.register_schema("shop.tls", Schema(V1, "AVRO"))
        assert client.get_schema(schema_id).schema_str


def test_our_client(
    secure: child_process.Service, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"https://root:root's%20words@{secure.address}"
    assert RegistryClient(url, tls_ca=folder / "ca.pem").subjects() is not None
    with pytest.raises(UnreachableError, match="is not trusted") as untrusted:
        RegistryClient(url).subjects()
    assert "tls_ca" in str(untrusted.value)
    assert "words" not in str(untrusted.value)
    monkeypatch.setenv("HEADWORKS_TLS_CA", str(folder / "ca.pem"))
    assert RegistryClient(url).subjects() is not None
    with pytest.raises(UsageError, match="tls_ca"):
        RegistryClient(url, tls_ca="/no/such/file")
    with pytest.raises(UnreachableError, match="its URL begins with https:"):
        RegistryClient(url.replace("https", "http"), sleep=lambda _: None).subjects()


def test_our_client_asks_a_server_without_tls_for_it(registry: child_process.Service) -> None:
    with pytest.raises(UnreachableError, match="does not use TLS as this client does") as refused:
        RegistryClient(f"https://{registry.address}").subjects()
    assert "http://" in str(refused.value)


def test_old_versions_of_tls_are_refused(secure: child_process.Service, folder: Path) -> None:
    host, _, port = secure.address.partition(":")

    def speak(version: ssl.TLSVersion) -> str | None:
        context = ssl.create_default_context(cafile=folder / "ca.pem")
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = version
        with (
            socket.create_connection((host, int(port)), 60) as plain,
            context.wrap_socket(plain, server_hostname=host) as wrapped,
        ):
            return wrapped.version()

    assert speak(ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
    assert speak(ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
    with (
        pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"),
        pytest.raises(ssl.SSLError, match=r"(?i)alert|eof|version"),
    ):
        speak(ssl.TLSVersion.TLSv1_1)


def test_the_ready_line_says_https(
    secure: child_process.Service, folder: Path, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'r.db'}"
    options = ["--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem")]
    command = ["registry", "start", "--listen", "127.0.0.1:0", "--store", store, *options]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "headworks._cli", *command, "--format", "json"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        process.terminate()
        assert process.wait(60) == 0
    assert (ready["service"], ready["scheme"]) == ("registry", "https")
