"""A list of registries on one store: a client goes to the next when one fails, and stays there."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headworks._server.child_process import Service
from headworks.errors import UnreachableError, UsageError
from headworks.registry_client import RegistryClient
from tests.registry.conftest import start_on
from tests.registry.prepared_server import canned
from tests.registry.rest import record, text_of

pytestmark = pytest.mark.e2e

V1 = text_of(record("id:long"))
V2 = text_of(record("id:long", "n:int=0"))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[list[Service]]:
    with ExitStack() as running:
        store = f"sqlite:///{tmp_path / 'registry.db'}"
        yield [running.enter_context(start_on(store)) for _ in range(2)]


def listed(pair: list[Service]) -> str:
    return ",".join(one.url for one in pair)


def test_a_killed_registry_is_left_and_the_next_one_serves_the_same(
    pair: list[Service], caplog: pytest.LogCaptureFixture
) -> None:
    client = RegistryClient(listed(pair))
    assert client.register("s", V1).version == 1
    pair[0].kill()
    with caplog.at_level(logging.WARNING, "headworks.registry"):
        assert [client.register("s", V2).version for _ in range(3)] == [2, 2, 2]
    [warning] = caplog.messages
    assert pair[0].url in warning
    assert f"asking {pair[1].url} from now on" in warning
    pair[1].kill()
    with pytest.raises(UnreachableError, match="none of the registries") as failed:
        RegistryClient(listed(pair), attempts=2).versions("s")
    assert all(one.url in str(failed.value) for one in pair)


def test_a_hung_registry_is_waited_for_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hung, canned((200, [1])) as (second, other):
        first = f"http://127.0.0.1:{hung.getsockname()[1]}"
        client = RegistryClient(f"{first},{second}", timeout=10.0, attempts=1)
        for _ in range(20):
            assert client.versions("s") == [1]
        hung.setblocking(False)
        hung.accept()[0].close()
        with pytest.raises(BlockingIOError):
            hung.accept()
    assert len(other) == 20


def test_a_registry_without_its_store_is_left_before_any_pause() -> None:
    pauses: list[float] = []
    away = {"error_code": 50001, "message": "away"}
    with canned((500, away)) as (first, bad), canned((200, [1, 2])) as (second, good):
        client = RegistryClient(f"{first}, {second}", sleep=pauses.append)
        assert client.versions("s") == [1, 2]
        assert client.versions("s") == [1, 2]
    assert (len(bad), len(good), pauses) == (1, 2, [])


def test_what_is_no_registry_is_left() -> None:
    with canned((200, b"<html>")) as (first, bad), canned((200, [1])) as (second, good):
        client = RegistryClient(f"{first},{second}")
        assert [client.versions("s") for _ in range(3)] == [[1]] * 3
        assert (len(bad), len(good)) == (1, 3)
    with (
        canned((200, b"<html>")) as (first, _),
        canned((200, b"<html>")) as (second, _),
        pytest.raises(UnreachableError, match=r"none of the registries .* instead of JSON"),
    ):
        RegistryClient(f"{first},{second}", attempts=1).versions("s")


def test_what_one_registry_refuses_is_not_asked_of_another() -> None:
    gone = {"error_code": 40401, "message": "no"}
    with canned((404, gone)) as (first, _), canned((200, [1])) as (second, other):
        assert RegistryClient(f"{first},{second}").versions("s") == []
    assert other == []


def test_a_list_has_one_user_and_its_password_may_have_a_comma() -> None:
    client = RegistryClient("http://u:a,b@one.example,https://u:a,b@two.example/x")
    assert client.url == "http://one.example,https://two.example/x"
    assert client._transport.credentials.password == "a,b"
    with pytest.raises(UsageError, match="different credentials"):
        RegistryClient("http://u:a@one.example,http://v:a@two.example")
    with pytest.raises(UsageError, match="not the address"):
        RegistryClient("http://one.example,http://")
    with pytest.raises(UsageError, match="http://one:8081,http://two:8081"):
        RegistryClient("http://one.example,two.example:8081")
