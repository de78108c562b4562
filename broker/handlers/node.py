"""What handlers work with: the node and its parts. Built by the server, passed to every handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker.coordination import Coordination
from broker.groups import GroupCoordinator
from broker.protocol import Header
from broker.protocol.messages import Fields
from broker.topics import Catalogue

__all__ = ["Handler", "Node", "Replies", "Request"]


class Replies:
    """Replies kept as bytes while the topics stay as they are; bounded."""

    def __init__(self, limit: int = 256) -> None:
        self._kept: dict[Hashable, bytes] = {}
        self._version = -1
        self._limit = limit

    def find(self, question: Hashable, version: int) -> bytes | None:
        """The reply to a question, if it was kept since the catalogue had this version."""
        return self._kept.get(question) if version == self._version else None

    def keep(self, question: Hashable, version: int, reply: bytes) -> None:
        """Keep a reply that is true for this version of the catalogue."""
        if version != self._version or len(self._kept) >= self._limit:
            self._kept.clear()
            self._version = version
        self._kept[question] = reply


@dataclass(frozen=True, slots=True)
class Node:
    """One broker: who it is, where clients reach it, and its parts. `clock` is Unix time in s."""

    node_id: int
    host: str
    port: int
    default_partitions: int
    auto_create_topics: bool
    catalogue: Catalogue
    coordination: Coordination
    groups: GroupCoordinator
    clock: Callable[[], float]
    replies: Replies = field(default_factory=Replies)


class Request(NamedTuple):
    """A decoded request: its header, its message (kio's dataclass), and who sent it."""

    header: Header
    message: Any
    peer: str

    @property
    def version(self) -> int:
        """The API version."""
        return self.header.version


# what a handler answers: the fields of the reply, or its body ready made
Handler = Callable[[Node, Request], Awaitable[Fields | bytes]]
