"""A session with ZooKeeper, opened at HOST:PORT[,HOST:PORT..][/chroot] and maintained by kazoo.

Rules:

- Only this package imports kazoo, and only when it opens a session.
- An error names what is unavailable before anything else is tried: no host answers
  (UnreachableError), the chroot is missing, or kazoo is not installed (UsageError). Only brokers
  create a missing chroot.
- Callbacks run in the threads of kazoo. They must return at once and send no request.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headworks.errors import UnreachableError, UsageError

DEFAULT_PORT = 2181
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/,\[\]]+)(?::(?P<port>\d{1,5}))?")
_CHROOT = re.compile(r"(/[^/\s,]+)+")  # a comma: another host, behind the chroot of the first


class SessionState(StrEnum):
    """The state of a session.

    CONNECTED: the session is open. SUSPENDED: no server answers, and the session may end at any
    time. LOST: it has ended, with its ephemeral nodes; a new one opens when a server answers.
    """

    CONNECTED = "CONNECTED"
    SUSPENDED = "SUSPENDED"
    LOST = "LOST"


@dataclass(frozen=True, slots=True)
class EnsembleAddress:
    """The address of an ensemble."""

    hosts: tuple[str, ...]  # HOST:PORT of each server
    chroot: str = ""  # the node below which all our nodes are; "": the root

    def __str__(self) -> str:
        return ",".join(self.hosts) + self.chroot


def parse_address(text: str) -> EnsembleAddress:
    """Parse HOST:PORT[,HOST:PORT..][/chroot]; UsageError if it is invalid."""
    servers, slash, rest = text.strip().partition("/")
    chroot = f"/{rest}".rstrip("/") if slash else ""
    hosts = []
    for server in servers.split(","):
        found = _HOST.fullmatch(server.strip())
        port = int(found["port"] or DEFAULT_PORT) if found else 0
        if found is None or not 0 < port <= 65535:
            raise UsageError(
                f"ZooKeeper address {text!r}: {server.strip()!r} is not HOST:PORT",
                fix="for example 127.0.0.1:2181, or zk1:2181,zk2:2181,zk3:2181/headworks",
            )
        hosts.append(f"{found['host']}:{port}")
    if chroot and (not _CHROOT.fullmatch(chroot) or {".", ".."} & set(chroot.split("/"))):
        raise UsageError(
            f"ZooKeeper address {text!r}: {chroot!r} cannot be a node's path",
            fix="the chroot comes once, after the last host: zk1:2181,zk2:2181/headworks",
        )
    return EnsembleAddress(tuple(hosts), chroot)


def kazoo(module: str = "client") -> Any:
    """Import a module of kazoo; UsageError with the extra to install if it is missing."""
    try:
        return importlib.import_module(f"kazoo.{module}")
    except ModuleNotFoundError:
        raise UsageError(
            "ZooKeeper needs kazoo, which is not installed",
            fix="pip install 'headworks[zookeeper]'",
        ) from None


class ZooKeeperSession:
    """An open session."""

    def __init__(self, client: Any, address: EnsembleAddress) -> None:
        self.client = client  # of kazoo
        self.address = address
        # seconds of silence after which the servers end the session; each connection renegotiates
        self.timeout = 0.0
        self._listeners: list[tuple[Callable[[SessionState], None], Any]] = []
        self._watch_timeout()
        self._survive_lost_answers()
        self._leave_silent_servers()

    @property
    def id(self) -> int:
        """The id of the session, also while no server answers; 0 when it has ended."""
        return int(self.client._session_id or 0)

    @property
    def state(self) -> SessionState:
        """The present state."""
        return SessionState(str(self.client.state))

    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        """Call back at every change of state, in a thread of kazoo."""

        def listener(state: object) -> None:
            callback(SessionState(str(state)))

        self._listeners.append((callback, listener))
        self.client.add_listener(listener)

    def off_state(self, callback: Callable[[SessionState], None]) -> None:
        """Stop calling back."""
        for entry in [entry for entry in self._listeners if entry[0] == callback]:
            self._listeners.remove(entry)
            self.client.remove_listener(entry[1])

    def close(self) -> None:
        """End the session. Its ephemeral nodes are deleted at once."""
        with contextlib.suppress(Exception):  # the servers may be gone: they time it out
            self.client.stop()
        with contextlib.suppress(Exception):
            self.client.close()

    def _watch_timeout(self) -> None:
        """Note the agreed timeout, which kazoo does not publish: its read timeout is two thirds."""
        connection = self.client._connection
        connect = connection._connect

        def noting(*arguments: Any) -> Any:
            read_ms, connect_ms = connect(*arguments)
            self.timeout = read_ms * 1.5 / 1000
            return read_ms, connect_ms

        connection._connect = noting

    def _survive_lost_answers(self) -> None:
        """Treat a skipped answer as a lost connection.

        A server that loses its leader may leave a request unanswered and answer the next one. The
        thread of kazoo would end with that, and no session could be opened any more.
        """
        connection = self.client._connection
        read = connection._read_response
        dropped = kazoo("exceptions").ConnectionDropped

        def reading(header: Any, *more: Any) -> Any:
            pending = self.client._pending
            if pending and header.xid != pending[0][2]:
                raise dropped("an answer was lost")
            return read(header, *more)

        connection._read_response = reading

    def _leave_silent_servers(self) -> None:
        """Give each attempt to connect a part of the session's timeout.

        A server may accept a connection and never answer, and a host may answer nothing. Kazoo
        would wait for it until the session has ended, while other servers, or the same one, answer.
        """
        connection, handler = self.client._connection, self.client.handler
        create, invoke = handler.create_connection, connection._invoke

        def part(seconds: float) -> float:
            tries = len(self.client.hosts) + 1  # of which all are over before the session is
            return min(seconds, float(self.client._session_timeout) / 1000 / tries)

        def creating(*arguments: Any, timeout: float, **options: Any) -> Any:
            return create(*arguments, timeout=part(timeout), **options)

        def invoking(timeout: float, *arguments: Any, **options: Any) -> Any:
            return invoke(part(timeout), *arguments, **options)

        handler.create_connection, connection._invoke = creating, invoking

    def __enter__(self) -> ZooKeeperSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_session(
    address: str | EnsembleAddress,
    *,
    timeout: float = 6.0,
    wait: float = 15.0,
    create_chroot: bool = False,
) -> ZooKeeperSession:
    """Open a session that ZooKeeper ends after `timeout` seconds of silence.

    Wait up to `wait` seconds for a server, and raise UnreachableError if none answers. Raises
    UsageError for an invalid address, a missing chroot unless `create_chroot`, or without kazoo.
    """
    where = parse_address(address) if isinstance(address, str) else address
    client = _client(where, timeout)
    session = ZooKeeperSession(client, where)
    deadline = time.monotonic() + wait
    try:
        client.start(wait)
        while not _entered_chroot(client, where, create=create_chroot):
            if time.monotonic() > deadline:
                raise kazoo("exceptions").ConnectionLoss
    except BaseException as error:
        session.close()
        if isinstance(error, _unreachable()):
            raise UnreachableError(
                f"no ZooKeeper answers at {', '.join(where.hosts)} (tried for {wait:.0f} s)",
                fix="start it, or correct the address; `headworks up --zookeeper embedded` starts"
                " one to play with",
            ) from None
        raise
    return session


def _client(where: EnsembleAddress, timeout: float) -> Any:
    quick = {"max_tries": -1, "delay": 0.05, "backoff": 1.5, "max_delay": 1.0}
    logger = logging.getLogger(f"{__name__}.kazoo")
    logger.setLevel(logging.ERROR)  # it logs every lost connection; our listeners log it once
    return kazoo().KazooClient(
        hosts=",".join(where.hosts),
        timeout=timeout,
        connection_retry=quick,
        logger=logger,
    )


def _entered_chroot(client: Any, where: EnsembleAddress, *, create: bool) -> bool:
    """Enter the chroot; return false if the connection was lost meanwhile."""
    if not where.chroot:
        return True
    try:
        if create:
            client.ensure_path(where.chroot)
            there = True
        else:
            there = client.exists(where.chroot) is not None
    except kazoo("exceptions").ConnectionLoss:
        return False
    if not there:
        raise UsageError(
            f"the ZooKeeper at {', '.join(where.hosts)} has no node {where.chroot}",
            fix="correct the chroot, or start a broker there first: it creates the node",
        )
    client.chroot = where.chroot
    return True


def _unreachable() -> tuple[type[BaseException], ...]:
    exceptions = kazoo("exceptions")
    timeouts = kazoo("handlers.threading").KazooTimeoutError
    return (timeouts, exceptions.ConnectionLoss, exceptions.SessionExpiredError)
