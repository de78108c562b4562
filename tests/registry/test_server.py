"""Starting and stopping: addresses, stores, signals, and errors that say what to do."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from headworks._registry.server import bind
from headworks._registry.store.database import RegistryStore
from headworks._server import child_process
from headworks.errors import UnreachableError, UsageError
from tests.registry.conftest import start_on, start_registry
from tests.registry.postgresql import Cluster, running_cluster
from tests.registry.rest import Rest, record
from tests.sqlite_store import execute
from tests.tools import needs

pytestmark = pytest.mark.e2e


def start(*arguments: str) -> child_process.Service:
    return child_process.start(["registry", "start", *arguments])


def test_a_taken_address(registry: child_process.Service, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'r.db'}"
    with pytest.raises(UsageError, match=f"cannot listen on {registry.address}") as refused:
        start("--listen", registry.address, "--store", store)
    assert "--listen" in str(refused.value)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_exit_code_0(tmp_path: Path, number: signal.Signals) -> None:
    with start_registry(tmp_path) as running:
        assert Rest(running.url)("GET", "/health").status == 200
        running.process.send_signal(number)
        assert running.process.wait(60) == 0


@pytest.mark.parametrize(
    ("store", "words"),
    [
        ("mysql://localhost/x", "is not the address of a store"),
        ("nonsense", "is not the address of a store"),
        ("sqlite://", "in memory"),
        ("sqlite:////no/such/folder/r.db", "mkdir -p /no/such/folder"),
    ],
)
def test_a_store_that_cannot_be(store: str, words: str) -> None:
    """In this process: the next test shows how the command ends."""
    with pytest.raises(UsageError, match=words):
        RegistryStore(store)


def test_a_file_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "r.db").write_text("not a database, and longer than its header" * 100)
    with pytest.raises(UsageError, match="cannot open the store"):
        start("--listen", "127.0.0.1:0", "--store", f"sqlite:///{tmp_path / 'r.db'}")


def test_a_store_that_does_not_answer() -> None:
    with pytest.raises(UnreachableError, match="cannot open the store") as away:
        RegistryStore("postgresql://me:secret@127.0.0.1:1/registry")
    assert "secret" not in str(away.value)


@needs("postgresql")
def test_a_store_that_refuses(cluster: Cluster) -> None:
    store = f"postgresql://postgres:secret@127.0.0.1:{cluster.port}/no_such_database"
    with pytest.raises(UsageError, match='database "no_such_database" does not exist') as refused:
        start("--listen", "127.0.0.1:0", "--store", store)
    assert "secret" not in str(refused.value)


@needs("postgresql")
def test_a_store_that_goes_and_comes_back() -> None:
    """Meanwhile every answer is a 500 that a client repeats; afterwards all is as it was."""
    with running_cluster() as cluster, start_on(cluster.new_store()) as running:
        client = Rest(running.url)
        assert client.register("s", record("a:int")).status == 200
        cluster.stop()
        for method, path in (("GET", "/subjects"), ("DELETE", "/subjects/s")):
            reply = client(method, path)
            assert (reply.status, reply.code) == (500, 50001)
        assert client("GET", "/health").status == 200
        cluster.start()
        assert client("GET", "/subjects").body == ["s"]
        assert client.register("s", record("a:int", "b:int=0")).body["version"] == 2


def test_a_store_of_a_newer_program(tmp_path: Path) -> None:
    start_registry(tmp_path).stop()
    execute(tmp_path / "registry.db", "INSERT INTO schema_migrations VALUES (99, 'later', 0)")
    with pytest.raises(UsageError, match="the store is at migration 99"):
        start_registry(tmp_path)


@pytest.mark.parametrize("listen", ["8081", "127.0.0.1:port", "127.0.0.1:99999"])
def test_an_address_that_is_none(listen: str) -> None:
    with pytest.raises(UsageError, match="is not HOST:PORT"):
        bind(listen)


def test_an_address_that_others_reach_must_be_asked_for() -> None:
    with pytest.raises(UsageError, match="other machines can reach"):
        bind("0.0.0.0:0")
    bind("0.0.0.0:0", insecure=True).close()
    bind("0.0.0.0:0", authenticates=True).close()
    bind("127.0.0.2:0").close()
    bind("localhost:0").close()
