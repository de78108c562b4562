"""The content of nodes: JSON, read into frozen records and written from them.

Rules:

- These are pure functions of bytes.
- A reader ignores unknown fields, so that brokers of two releases can live in one cluster. It
  raises CorruptError with the path of a node that it cannot use.
- A committed offset without further data is a bare number, which every tool of this layout reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from headworks._host_port import join_host_port
from headworks.errors import CorruptError


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A living broker."""

    host: str  # for clients
    port: int
    folder: str = ""  # the unique name of its data folder
    place: str = ""  # the machine and path of the folder

    @property
    def address(self) -> str:
        """HOST:PORT as clients write it."""
        return join_host_port(self.host, self.port)

    def dump(self) -> bytes:
        """Return the value of the node."""
        return _dump(
            {"host": self.host, "port": self.port, "folder": self.folder, "place": self.place}
        )

    @classmethod
    def load(cls, value: bytes, path: str) -> BrokerNode:
        """Read the broker at `path`."""
        with _reading(path):
            found = _object(value)
            words = (str(found.get("folder", "")), str(found.get("place", "")))
            return cls(str(found["host"]), int(found["port"]), *words)


@dataclass(frozen=True, slots=True)
class TopicNode:
    """A topic."""

    assignment: tuple[int, ...]  # the broker of each partition
    configs: Mapping[str, str] = field(default_factory=dict)  # that differ from the defaults
    deleting: bool = False
    left: tuple[int, ...] = ()  # while deleting: the brokers that still have files of it
    topic_id: UUID | None = None  # None: of a release that had no topic ids

    def dump(self) -> bytes:
        """Return the value of the node."""
        fields: dict[str, Any] = {
            "partitions": {str(index): broker for index, broker in enumerate(self.assignment)},
            "configs": dict(self.configs),
        }
        if self.topic_id is not None:
            fields["topic_id"] = str(self.topic_id)
        if self.deleting:
            fields["deleting"] = list(self.left)
        return _dump(fields)

    @classmethod
    def load(cls, value: bytes, path: str) -> TopicNode:
        """Read the topic at `path`."""
        with _reading(path):
            found = _object(value)
            partitions = {int(index): int(at) for index, at in found["partitions"].items()}
            assignment = tuple(partitions[index] for index in range(len(partitions)))
            configs = {str(name): str(text) for name, text in found.get("configs", {}).items()}
            left = tuple(int(broker) for broker in found.get("deleting", ()))
            topic_id = UUID(found["topic_id"]) if "topic_id" in found else None
            return cls(assignment, configs, "deleting" in found, left, topic_id)


@dataclass(frozen=True, slots=True)
class GroupConfigsNode:
    """The configs of the groups that have own ones, by group."""

    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def dump(self) -> bytes:
        """Return the value of the node."""
        return _dump({group: dict(configs) for group, configs in self.groups.items()})

    @classmethod
    def load(cls, value: bytes, path: str) -> GroupConfigsNode:
        """Read the node at `path`; an empty one has no groups."""
        with _reading(path):
            found = _object(value or b"{}")
            return cls(
                {
                    group: {str(name): str(text) for name, text in configs.items()}
                    for group, configs in found.items()
                }
            )


@dataclass(frozen=True, slots=True)
class MemberNode:
    """A decentralized consumer: topics with its number of streams, or a pattern of topics."""

    topics: Mapping[str, int] = field(default_factory=dict)  # streams for each; without a pattern
    pattern: str | None = None  # a regular expression for topics
    excludes: bool = False  # whether the pattern matches the topics that are excluded
    streams: int = 1  # for each topic that the pattern selects

    def dump(self) -> bytes:
        """Return the value of the node."""
        if self.pattern is None:
            return _dump(dict(self.topics))
        kind = "black_list" if self.excludes else "white_list"
        return _dump({kind: self.pattern, "streams": self.streams, "topics": {}})

    @classmethod
    def load(cls, value: bytes, path: str) -> MemberNode:
        """Read the member at `path`."""
        with _reading(path):
            found = _object(value)
            for kind in ("white_list", "black_list"):
                # a topic may have this name too: its value is a number of streams
                if isinstance(found.get(kind), str):
                    streams = int(found.get("streams", 1))
                    return cls({}, found[kind], kind == "black_list", streams)
            return cls({str(name): int(streams) for name, streams in found.items()})


@dataclass(frozen=True, slots=True)
class GroupNode:
    """A group; its node is empty unless members with a coordinator have committed offsets."""

    protocol_type: str = ""

    def dump(self) -> bytes:
        """Return the value of the node."""
        return _dump({"protocol_type": self.protocol_type})

    @classmethod
    def load(cls, value: bytes) -> GroupNode:
        """Read a group. Other programs write this node too: an unknown value has no type."""
        try:
            return cls(str(_object(value).get("protocol_type", "")))
        except (ValueError, TypeError):
            return cls()


@dataclass(frozen=True, slots=True)
class OffsetNode:
    """A committed offset."""

    offset: int  # the next to read
    leader_epoch: int = -1  # as the consumer gave it; -1: none
    metadata: str = ""  # as the consumer gave it
    topic_id: UUID | None = None  # of the topic that it is an offset of; None: not known

    def dump(self) -> bytes:
        """Return the value of the node."""
        if self.leader_epoch == -1 and not self.metadata and self.topic_id is None:
            return b"%d" % self.offset
        fields: dict[str, Any] = {
            "offset": self.offset,
            "leader_epoch": self.leader_epoch,
            "metadata": self.metadata,
        }
        if self.topic_id is not None:
            fields["topic_id"] = str(self.topic_id)
        return _dump(fields)

    @classmethod
    def load(cls, value: bytes, path: str) -> OffsetNode:
        """Read the committed offset at `path`."""
        with _reading(path):
            found = json.loads(value)
            if isinstance(found, int):
                return cls(found)
            return cls(
                int(found["offset"]),
                int(found.get("leader_epoch", -1)),
                str(found.get("metadata", "")),
                UUID(found["topic_id"]) if "topic_id" in found else None,
            )


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Raise CorruptError with the path for a value that cannot be read."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CorruptError(
            f"the ZooKeeper node {path} has a value that Headworks did not write ({error!r})",
            fix="give Headworks a chroot of its own (HOST:PORT/NAME), or repair the node",
        ) from None


def _object(value: bytes) -> dict[str, Any]:
    found = json.loads(value)
    if not isinstance(found, dict):
        raise TypeError("it is not a JSON object")
    return found


def _dump(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
