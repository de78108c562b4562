"""Input and moments that once ended the process, stopped it, or counted an event that was none."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import Consumer
from headworks._server.child_process import Service
from headworks.errors import UnreachableError, UsageError
from producer_sdk import Producer, event_headers
from tests.producer_sdk.events import Site, new_site
from tests.waiting import within_some_time

pytestmark = pytest.mark.e2e


@pytest.fixture
def site(tmp_path: Path, broker: Service, registry: Service) -> Site:
    return new_site(tmp_path, broker.address, registry.url)


def producing(site: Site, **options: Any) -> Producer:
    return Producer(
        site.bootstrap, site.registry, application="test", state_dir=site.state, **options
    )


@pytest.mark.parametrize(
    "given",
    [
        {"headers": {"\ud800": "x"}},  # it crashed the interpreter inside confluent_kafka
        {"headers": {"name": "\ud800"}},
        {"headers": {"a\0b": "x"}},
        {"key": "\ud800"},
        {"partition": 1 << 31},
        {"partition": 1 << 40},
    ],
)
def test_what_librdkafka_cannot_take_is_an_error_before_it_is_counted(
    site: Site, given: dict[str, Any]
) -> None:
    with producing(site) as producer:
        with pytest.raises(UsageError):
            producer.send(site.visit(), **given)
        assert producer.totals.attempted == 0
    headers = given.get("headers")
    if headers is not None:
        with pytest.raises(UsageError):
            producing(site, headers=headers)
        with pytest.raises(UsageError), event_headers(**headers):
            pass


@pytest.mark.parametrize(
    "option",
    [
        {"audit_every": 0},
        {"registry_timeout": 0},
        {"spill_bytes": 0},
        {"queue_messages": "5"},
        {"events": int},
        {"application": "a\0b"},
        {"config": {"client.id": "\ud800"}},
    ],
)
def test_a_wrong_option_is_refused_where_it_is_given(
    tmp_path: Path, option: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        Producer(**{"application": "test", "state_dir": tmp_path, **option})


@pytest.mark.parametrize(
    "option",
    [
        {"topics": ["a\ud800b"]},  # it crashed the interpreter, and so did this name of a group
        {"group": "a\ud800b"},
        {"group": "a\0b"},
        {"topics": ["a b"]},
        {"topics": [], "matching": "("},
        {"topics": [], "matching": "\ud800"},
        {"commit_every": float("nan")},
        {"unreachable_after": -1.0},
        {"unreachable_after": "60"},
    ],
)
def test_a_consumer_refuses_what_librdkafka_cannot_take(option: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Consumer[Any](**{"topics": ["t"], "group": "g", **option})


def test_an_error_of_the_client_leaves_no_message_open(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing:
        def produce(self, *_message: object) -> None:
            raise TypeError("what no check has seen")

    with producing(site) as producer:
        with monkeypatch.context() as patch:
            patch.setattr(producer._start(), "client", Refusing())
            with pytest.raises(TypeError, match="what no check has seen"):
                producer.send(site.visit())
        assert (producer.totals.queued, producer.totals.dropped["broker_error"]) == (0, 1)


@pytest.fixture
def dripping() -> Iterator[str]:
    """A registry that sends a byte of its answer now and then, for ever."""
    ended = threading.Event()

    def drip(connection: socket.socket) -> None:
        with connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not ended.wait(0.1):
                connection.sendall(b"a")

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=drip, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        ended.set()
        listening.shutdown(socket.SHUT_RDWR)


def test_a_registry_whose_answer_drips_is_given_up(site: Site, dripping: str) -> None:
    """The timeout of the socket began again with each byte."""

    def check(seconds: float) -> None:
        with Producer(
            *(site.bootstrap, dripping),
            application="test",
            state_dir=site.state,
            registry_timeout=seconds,
        ) as producer:
            for _ in range(2):
                with pytest.raises(UnreachableError) as found:
                    producer.send(site.visit())
                assert re.search(rf"answers at .* within {seconds:g} s", found.value.message)

    within_some_time(check, 0.3, 3.0, 30.0)  # a thread that drips late lets the socket give up


_INTERRUPTED = """
import signal, sys, time
from pathlib import Path
from producer_sdk import Producer, close_on_sigterm
from tests.producer_sdk.events import new_site
from headworks._audit_counting.counters import CounterFile

class Interrupted:
    def __init__(self, lock):
        self.lock = lock
    def __enter__(self):
        self.lock.acquire()
        if not sent:
            sent.append(1)
            signal.raise_signal(signal.SIGTERM)
    def __exit__(self, *_):
        self.lock.release()

site, sent = new_site(Path(sys.argv[1]), sys.argv[2], sys.argv[3]), []
producer = Producer(site.bootstrap, site.registry, application="test", state_dir=site.state,
                    registry_timeout=60, close_timeout=60)
close_on_sigterm(producer)
counters = producer._start().counters
counters.lock = Interrupted(counters.lock)
producer.send(site.visit())
print("sent", flush=True)
while True:
    time.sleep(1)
"""


def test_sigterm_while_the_thread_holds_a_lock_of_the_sdk(
    tmp_path: Path, broker: Service, registry: Service
) -> None:
    """The handler closed the producer at once, and waited for the lock of its own thread."""
    command = [sys.executable, "-c", _INTERRUPTED, str(tmp_path), broker.address, registry.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "sent\n"), done.stderr
    assert "not delivered" not in done.stderr
