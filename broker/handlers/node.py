"""What handlers work with: the node and its parts. Built by the server, passed to every handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from broker.coordination import Coordination
from broker.groups import GroupCoordinator
from broker.protocol import Header
from broker.protocol.messages import Fields
from broker.topics import Catalogue

__all__ = ["Handler", "Node", "Request"]


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


class Request(NamedTuple):
    """A decoded request: its header, its message (kio's dataclass), and who sent it."""

    header: Header
    message: Any
    peer: str

    @property
    def version(self) -> int:
        """The API version."""
        return self.header.version


Handler = Callable[[Node, Request], Awaitable[Fields]]
