"""A session with ZooKeeper: opened at HOST:PORT[,HOST:PORT..][/chroot], kept by kazoo.

Rules:

- kazoo is imported in this package only, and only when a session is opened.
- What cannot be reached, or is not there, is said by name before anything is tried with it: no
  host answers (UnreachableError), the chroot is missing (UsageError, unless the caller makes it:
  the first broker does, clients never), kazoo is not installed.
- Callbacks come in kazoo's threads: they must return at once and must not ask ZooKeeper anything.
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
from types import TracebackType
from typing import Any

from headworks.errors import UnreachableError, UsageError

__all__ = [
    "EnsembleAddress",
    "SessionState",
    "ZooKeeperSession",
    "kazoo",
    "open_session",
    "parse_address",
]

DEFAULT_PORT = 2181
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/,\[\]]+)(?::(?P<port>\d{1,5}))?")
_CHROOT = re.compile(r"(/[^/\s,]+)+")  # a comma: another host, behind the chroot of the first


class SessionState(StrEnum):
    """What is known of a session.

    CONNECTED: it stands. SUSPENDED: no server answers; the session may end any time. LOST: it has
    ended, with everything ephemeral; a new one is opened as soon as a server answers.
    """

    CONNECTED = "CONNECTED"
    SUSPENDED = "SUSPENDED"
    LOST = "LOST"


@dataclass(frozen=True, slots=True)
class EnsembleAddress:
    """The servers of an ensemble, and the node below which everything of ours lies ("": all)."""

    hosts: tuple[str, ...]
    chroot: str = ""

    def __str__(self) -> str:
        return ",".join(self.hosts) + self.chroot


def parse_address(text: str) -> EnsembleAddress:
    """The address HOST:PORT[,HOST:PORT..][/chroot]; UsageError if it is none."""
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
    """A module of kazoo; UsageError naming the extra that brings it."""
    try:
        return importlib.import_module(f"kazoo.{module}")
    except ModuleNotFoundError:
        raise UsageError(
            "speaking to ZooKeeper needs kazoo, which is not installed",
            fix="pip install 'headworks[zookeeper]'",
        ) from None


class ZooKeeperSession:
    """An open session; `client` is kazoo's.

    `timeout` is after how many seconds of silence the servers end it: they may agree to less, or
    more, than they were asked for, and each time that a connection is made.
    """

    def __init__(self, client: Any, address: EnsembleAddress) -> None:
        self.client = client
        self.address = address
        self.timeout = 0.0
        self._listeners: list[tuple[Callable[[SessionState], None], Any]] = []
        self._watch_timeout()
        self._survive_lost_answers()

    @property
    def id(self) -> int:
        """The session's number, also while no server answers; 0 when it has ended."""
        return int(self.client._session_id or 0)

    @property
    def state(self) -> SessionState:
        """What is known of it now."""
        return SessionState(str(self.client.state))

    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        """Call back at every change of state, in kazoo's thread. The state now is not told."""

        def listener(state: object) -> None:
            callback(SessionState(str(state)))

        self._listeners.append((callback, listener))
        self.client.add_listener(listener)

    def off_state(self, callback: Callable[[SessionState], None]) -> None:
        """Do not call back any more."""
        for entry in [entry for entry in self._listeners if entry[0] == callback]:
            self._listeners.remove(entry)
            self.client.remove_listener(entry[1])

    def close(self) -> None:
        """End the session: what is ephemeral of it goes at once."""
        with contextlib.suppress(Exception):  # the servers may be gone: they time it out
            self.client.stop()
        with contextlib.suppress(Exception):
            self.client.close()

    def _watch_timeout(self) -> None:
        """kazoo keeps what was agreed to itself: its read timeout is two thirds of it."""
        connection = self.client._connection
        connect = connection._connect

        def noting(*arguments: Any) -> Any:
            read_ms, connect_ms = connect(*arguments)
            self.timeout = read_ms * 1.5 / 1000
            return read_ms, connect_ms

        connection._connect = noting

    def _survive_lost_answers(self) -> None:
        """A server that loses its leader may leave a question unanswered and answer the next.

        kazoo's thread ends with that, and with it every session there could be: instead, the
        connection is taken for lost, as it is of no use any more.
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

    def __enter__(self) -> ZooKeeperSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def open_session(
    address: str | EnsembleAddress,
    *,
    timeout: float = 6.0,
    wait: float = 15.0,
    create_chroot: bool = False,
    listener: Callable[[SessionState], None] | None = None,
) -> ZooKeeperSession:
    """Open a session that ZooKeeper ends after `timeout` seconds of silence.

    Waits up to `wait` seconds for a server. UnreachableError if none answers; UsageError for a
    bad address, for a chroot that is missing and is not to be created, or without kazoo.
    `listener` is told every change of state, the first included.
    """
    where = parse_address(address) if isinstance(address, str) else address
    client = _client(where, timeout)
    session = ZooKeeperSession(client, where)
    if listener is not None:
        session.on_state(listener)
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
    logger.setLevel(logging.ERROR)  # it tells every lost connection; whoever listens says it once
    return kazoo().KazooClient(
        hosts=",".join(where.hosts),
        timeout=timeout,
        connection_retry=quick,
        logger=logger,
    )


def _entered_chroot(client: Any, where: EnsembleAddress, *, create: bool) -> bool:
    """Whether all paths are the chroot's from now on; not if the connection was lost meanwhile."""
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
