"""The node and its parts, which the server passes to every handler."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headworks._broker.coordination import Coordination
from headworks._broker.groups import GroupCoordinator
from headworks._broker.handlers.client import Client
from headworks._broker.handlers.counters import BrokerCounters
from headworks._broker.topics import HostedTopics, TopicChanges, TopicLookup
from headworks._broker.transactions import TransactionCoordinator
from headworks._kafka.protocol import RequestHeader
from headworks._kafka.protocol.messages import Fields


class ReplyCache:
    """Encoded replies that are valid until a topic changes, bounded in number and in bytes."""

    def __init__(self, limit: int = 256, size: int = 16 << 20) -> None:
        self._kept: dict[Hashable, bytes] = {}
        self._version = -1
        self._limit = limit
        self._left = self._size = size

    def find(self, question: Hashable, version: int) -> bytes | None:
        """Return the reply to a question, if it is valid for this version of the topics."""
        return self._kept.get(question) if version == self._version else None

    def keep(self, question: Hashable, version: int, reply: bytes) -> None:
        """Store a reply that is valid for this version of the topics."""
        if len(reply) > self._size:
            return
        if version != self._version or len(self._kept) >= self._limit or len(reply) > self._left:
            self._kept.clear()
            self._version, self._left = version, self._size
        self._left -= len(reply)
        self._kept[question] = reply


@dataclass(frozen=True, slots=True)
class Node:
    """One broker: who it is, where clients reach it, and its parts. `clock` is Unix time in s."""

    node_id: int
    host: str
    port: int
    default_partitions: int
    auto_create_topics: bool
    hosted: HostedTopics
    topic_changes: TopicChanges
    topic_lookup: TopicLookup
    coordination: Coordination
    groups: GroupCoordinator
    transactions: TransactionCoordinator | None  # None: this broker has none
    clock: Callable[[], float]
    configs: Mapping[str, str] = field(default_factory=dict)  # its start options, by Kafka's names
    verify_fetches: bool = False  # whether it checks the CRC of each batch that it serves
    reply_cache: ReplyCache = field(default_factory=ReplyCache)
    counters: BrokerCounters = field(default_factory=BrokerCounters)
    search_lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # of records, by time
    validation_lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # of large requests


class Request(NamedTuple):
    """A decoded request: its header, its message (kio's dataclass), and who sent it."""

    header: RequestHeader
    message: Any
    client: Client

    @property
    def version(self) -> int:
        """The API version."""
        return self.header.version

    def may_use_topic(self, name: str) -> bool:
        """Return whether the client may use this API on that topic."""
        return self.client.may_use_topic(self.header.key, name)

    def may_use_group(self, name: str) -> bool:
        """Return whether the client may use this API on that group."""
        return self.client.may_use_group(self.header.key, name)

    def may_use_broker(self) -> bool:
        """Return whether the client may use this API on the whole broker."""
        return self.client.may_use_broker(self.header.key)


# A handler returns the fields of the reply, or its encoded body
Handler = Callable[[Node, Request], Awaitable[Fields | bytes]]
