"""HOST:PORT is split in one place, and wrong addresses of brokers are refused where they stand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from consumer_sdk import Consumer
from headworks._host_port import join_host_port, split_host_port
from headworks._kafka.bootstrap import resolve_bootstrap
from headworks.errors import UsageError
from producer_sdk import Producer

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        (" kafka-1.internal:65535 ", ("kafka-1.internal", 65535)),
        ("[::1]:9092", ("::1", 9092)),
        ("[fe80::1%eth0]:9092", ("fe80::1%eth0", 9092)),
        ("localhost:65536", None),
        ("localhost:", None),
        (":9092", None),
        ("9092", None),
        ("localhost:\u0661", None),
        ("localhost:-1", None),
        ("::1:9092", None),
        ("[]:9092", None),
        ("[::1:9092", None),
        ("http://localhost:9092", None),
        ("a b:9092", None),
        ("", None),
    ],
)
def test_a_text_is_host_and_port_or_neither(text: str, found: tuple[str, int] | None) -> None:
    assert split_host_port(text) == found
    if found is not None:
        assert join_host_port(*found) == text.strip()


@pytest.mark.parametrize(
    "servers", ["a:1", "a", "[::1]", "a:1, b:2,", "PLAINTEXT://a:1,sasl_ssl://[::1]:2"]
)
def test_what_librdkafka_takes_is_taken(servers: str) -> None:
    assert resolve_bootstrap(servers) == servers


@pytest.mark.parametrize("servers", ["a:99999", "a:1,b:", "http://a:1", "a:port", ",", "::1:9092"])
def test_a_wrong_broker_address_is_refused_where_it_is_given(servers: str, tmp_path: Path) -> None:
    made: list[Callable[[], object]] = [
        lambda: Producer(bootstrap=servers, application="a", state_dir=tmp_path),
        lambda: Consumer(topics=["t"], group="g", bootstrap=servers),
    ]
    for make in made:
        with pytest.raises(UsageError) as refused:
            make()
        assert repr(servers) in str(refused.value)
