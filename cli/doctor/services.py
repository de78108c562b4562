"""The servers of the settings: what answers at their addresses, or that nothing does."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headworks._cli.doctor.diagnosis import Diagnosis, note, ok, problem
from headworks._cli.server_options import host_and_port
from headworks._host_port import split_host_port
from headworks._settings import resolve
from headworks.errors import HeadworksError, UnreachableError
from headworks.registry_client._transport import split_urls

_SECONDS = 3.0
_START = "start it with `headworks up`, or set its address"


@dataclass(frozen=True, slots=True)
class _Server:
    """A server: its setting, and the question that only it answers."""

    name: str
    setting: str
    ask: Callable[[str], str]


def services() -> Iterator[Diagnosis]:
    """Check the broker, each registry, and the console of the settings."""
    for server in (
        _Server("broker", "bootstrap", _ask_broker),
        _Server("registry", "registry", _ask_registry),
        _Server("console", "console", _ask_console),
    ):
        try:
            given = resolve(server.setting)
        except HeadworksError as error:
            yield problem(server.name, error.message, error.fix or f"correct `{server.setting}`")
            continue
        for address in split_urls(given) if server.setting == "registry" else [given]:
            yield _checked(server, address)


def _checked(server: _Server, address: str) -> Diagnosis:
    try:
        first = host_and_port(address).partition(",")[0]
        state = _port_state(first)
    except HeadworksError as error:
        return problem(server.name, error.message, error.fix or f"correct `{server.setting}`")
    subject = f"{server.name} {first}"
    if state == "closed":
        return note(subject, "not running: nothing listens there", _START)
    if state != "open":
        return problem(subject, state, f"correct the setting `{server.setting}`")
    try:
        return ok(subject, server.ask(address))
    except (UnreachableError, OSError, http.client.HTTPException) as error:
        reason = error.message if isinstance(error, HeadworksError) else str(error)
        fix = f"stop the program that uses the port, or set `{server.setting}` to another"
        return problem(subject, f"another program answers there: {reason}", fix)
    except HeadworksError as error:  # it is the right server, and refuses
        return note(subject, f"answers: {error.message}", "set `username` and `password`")


def _port_state(address: str) -> str:
    """Return "open", "closed" (nothing listens), or why the address cannot be reached."""
    place = split_host_port(address)
    if place is None:
        return f"{address!r} is not HOST:PORT"
    try:
        socket.create_connection(place, _SECONDS).close()
    except ConnectionRefusedError:
        return "closed"
    except OSError as error:
        return error.strerror or "it does not answer"
    return "open"


def _ask_broker(address: str) -> str:
    from headworks._cli.broker_address import cluster_metadata

    found = cluster_metadata(address)
    return f"answers: {len(found.brokers)} brokers, {len(found.topics)} topics"


def _ask_registry(address: str) -> str:
    from headworks.registry_client import RegistryClient

    return f"answers: {len(RegistryClient(address).subjects())} subjects"


def _ask_console(address: str) -> str:
    connection = http.client.HTTPConnection(host_and_port(address), timeout=_SECONDS)
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        if b"Headworks" not in answer.read():
            raise UnreachableError(f"HTTP {answer.status}, and no page of the console")
    finally:
        connection.close()
    return "answers"
