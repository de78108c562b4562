"""Four clients over TLS and SASL, admitted and refused; the files are reloaded meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headworks._server import child_process
from tests.broker.clients import eventually
from tests.broker.conftest import start_broker
from tests.broker.secure import CLIENTS, PASSWORDS, DeniedError, Files, Way
from tests.tools import needs

pytestmark = pytest.mark.contract

EVERY = [pytest.param(name, marks=[needs("kcat")] * (name == "kcat")) for name in CLIENTS]
PROTOCOLS = ["SASL_SSL", "SASL_PLAINTEXT"]
MECHANISMS = ["PLAIN", "SCRAM-SHA-256"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files.make(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def brokers(
    files: Files, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, child_process.Service]]:
    """One of each kind."""
    options = {
        "SSL": files.tls_options,
        "SASL_SSL": files.tls_options + files.user_options,
        "SASL_PLAINTEXT": files.user_options,
    }
    running = {
        kind: start_broker(tmp_path_factory.mktemp(kind), "--default-partitions", "1", *more)
        for kind, more in options.items()
    }
    yield running
    for process in running.values():
        process.stop()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("client", EVERY)
def test_a_user_is_let_in(
    brokers: dict[str, child_process.Service],
    files: Files,
    client: str,
    protocol: str,
    mechanism: str,
) -> None:
    for user in ("alice", "bob"):
        way = Way(files, protocol, mechanism, user, PASSWORDS[user])
        topic = f"{client}-{mechanism}-{user}"
        assert CLIENTS[client](brokers[protocol].address, topic, way, b"hello") == b"hello"


@pytest.mark.parametrize("client", EVERY)
def test_tls_without_users(
    brokers: dict[str, child_process.Service], files: Files, client: str
) -> None:
    large = b"x" * 900_000  # many TLS records, each way
    found = CLIENTS[client](brokers["SSL"].address, client, Way(files, "SSL"), large)
    assert found == large


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", EVERY)
def test_a_wrong_password_is_kept_out(
    brokers: dict[str, child_process.Service], files: Files, client: str, mechanism: str
) -> None:
    way = Way(files, "SASL_PLAINTEXT", mechanism, "alice", "looking glass", 4.0)
    with pytest.raises(DeniedError):
        CLIENTS[client](brokers["SASL_PLAINTEXT"].address, "never", way, b"hello")


def test_a_client_that_says_nothing_of_users_is_kept_out(
    brokers: dict[str, child_process.Service], files: Files
) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": brokers["SASL_PLAINTEXT"].address})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)


def test_a_client_that_does_not_know_the_certificate_keeps_out(
    brokers: dict[str, child_process.Service], tmp_path: Path
) -> None:
    way = Way(Files.make(tmp_path), "SSL", patience=4.0)
    with pytest.raises(DeniedError):
        CLIENTS["confluent-kafka"](brokers["SSL"].address, "never", way, b"hello")


def test_a_new_password_counts_and_the_old_one_does_not(tmp_path: Path) -> None:
    files = Files.make(tmp_path / "files")
    with start_broker(tmp_path / "data", *files.user_options) as process:
        for mechanism in MECHANISMS:
            old = Way(files, "SASL_PLAINTEXT", mechanism)
            new = replace(old, password="another")
            files.set_passwords(PASSWORDS)
            eventually(lambda way=old: gets_in(process, way))  # type: ignore[misc]
            files.set_passwords(PASSWORDS | {"alice": "another"})
            eventually(lambda way=new: gets_in(process, way))  # type: ignore[misc]
            assert not gets_in(process, old)
            files.users.write_text("nonsense")
            eventually(lambda way=new: not gets_in(process, way))  # type: ignore[misc]


def gets_in(process: child_process.Service, way: Way) -> bool:
    """Whether the broker, which looks at the file once a second, lets somebody in."""
    try:
        return CLIENTS["confluent-kafka"](process.address, "t", way, b"1") == b"1"
    except DeniedError:
        return False
