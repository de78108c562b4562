"""Why no broker answers, in words that name the fix.

librdkafka reports "Broker transport failure" for a closed port, an unknown host, another protocol,
and a hung broker. Its error callback, and one connection to the address, tell them apart.

Rules: the callback's reason wins. The address is asked only if librdkafka gives no reason, with a
request that no broker answers and that changes nothing.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headworks._host_port import split_host_port
from headworks.errors import UnreachableError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_PROBE_SECONDS = 2.0
_START = "start a broker with `headworks up`, or give the address of yours with {option}"
_REFUSED = re.compile(r"Connect to \S+#(\S+) failed: (.+?)(?: \(after|$)")
_DETAIL = re.compile(r" \(after \d+ms in state \w+.*\)$")
_ABSENT: Final = ("_TRANSPORT", "_RESOLVE")


def nothing_listens(errors: Sequence[KafkaError]) -> bool:
    """Return whether every broker was tried, and none of them has a port or a name."""
    if any("No brokers configured" in error.str() for error in errors):
        return True
    names = {error.name() for error in errors}
    refused = all(
        error.name() != "_TRANSPORT" or "Connection refused" in error.str() for error in errors
    )
    return "_ALL_BROKERS_DOWN" in names and refused and bool(names & set(_ABSENT))


def no_broker_error(
    bootstrap: str, errors: Sequence[KafkaError], option: str = "--bootstrap"
) -> UnreachableError:
    """Return the error for brokers that do not answer; `errors` come from librdkafka's callback.

    `option` is the option of the command that names the brokers.
    """
    by_name = {error.name(): error.str() for error in reversed(errors)}
    for name, fix in (
        ("_AUTHENTICATION", "set `username` and `password` to a user of this broker"),
        ("_SSL", "set `tls_ca` if the broker uses TLS, and unset it if it does not"),
        ("_RESOLVE", "correct the host name in {option} or its setting"),
        ("_TRANSPORT", _START),
    ):
        if name in by_name:
            return _error(bootstrap, _plain(by_name[name]), fix, option)
    return _error(bootstrap, *_probed(bootstrap), option)


def _error(bootstrap: str, reason: str, fix: str, option: str) -> UnreachableError:
    words = f"no broker answers at {bootstrap}: {reason}"
    return UnreachableError(words, fix=fix.replace("{option}", option))


def _plain(reason: str) -> str:
    """Return librdkafka's reason without the name of its thread and its timing."""
    refused = _REFUSED.search(reason)
    if refused is not None:
        return f"{refused[1]}: {refused[2]}"
    return _DETAIL.sub("", reason.partition("bootstrap: ")[2] or reason)


def _probed(bootstrap: str) -> tuple[str, str]:
    """Return the reason and the fix, by what the first address answers."""
    place = split_host_port(bootstrap.partition(",")[0])
    if place is None:
        return f"{bootstrap!r} is not an address", "give HOST:PORT[,HOST:PORT]"
    try:
        asked = socket.create_connection(place, _PROBE_SECONDS)
    except OSError as error:
        return error.strerror or "the address does not answer", _START
    answer = b""
    with asked, suppress(ConnectionError):
        try:
            asked.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
            answer = asked.recv(5)
        except TimeoutError:
            return "the port accepts connections, and nothing answers", "restart the broker"
    if answer.startswith(b"HTTP/"):
        return (
            "a web server answers there, such as the registry or the console",
            "give the broker's address (port 9092 by default) with {option}",
        )
    return (
        "the server there ends the connection, or does not speak Kafka's protocol",
        "give the broker's address with {option}, and set `tls_ca` if it uses TLS",
    )
