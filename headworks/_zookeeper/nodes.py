"""What stands in the nodes: JSON, read into frozen records and written from them.

Rules: pure. A reader ignores fields that it does not know, so that brokers of two releases live in
one cluster, and raises CorruptError, naming the node, for what it cannot use. A position is a bare
number when there is nothing to say beside it, which is what every tool of this layout reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from headworks.errors import CorruptError

__all__ = ["BrokerNode", "MemberNode", "OffsetNode", "TopicNode"]


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A living broker: where clients reach it, its data folder's name, and where that lies."""

    host: str
    port: int
    folder: str = ""
    place: str = ""

    @property
    def address(self) -> str:
        """HOST:PORT as clients write it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def dump(self) -> bytes:
        """The node's value."""
        return _dump(
            {"host": self.host, "port": self.port, "folder": self.folder, "place": self.place}
        )

    @classmethod
    def load(cls, value: bytes, path: str) -> BrokerNode:
        """The broker at `path`."""
        with _reading(path):
            found = _object(value)
            words = (str(found.get("folder", "")), str(found.get("place", "")))
            return cls(str(found["host"]), int(found["port"]), *words)


@dataclass(frozen=True, slots=True)
class TopicNode:
    """A topic: the broker of each partition, its configs, and who has still to delete its part."""

    assignment: tuple[int, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    deleting: bool = False
    left: tuple[int, ...] = ()

    def dump(self) -> bytes:
        """The node's value."""
        fields: dict[str, Any] = {
            "partitions": {str(index): broker for index, broker in enumerate(self.assignment)},
            "configs": dict(self.configs),
        }
        if self.deleting:
            fields["deleting"] = list(self.left)
        return _dump(fields)

    @classmethod
    def load(cls, value: bytes, path: str) -> TopicNode:
        """The topic at `path`."""
        with _reading(path):
            found = _object(value)
            partitions = {int(index): int(at) for index, at in found["partitions"].items()}
            assignment = tuple(partitions[index] for index in range(len(partitions)))
            configs = {str(name): str(text) for name, text in found.get("configs", {}).items()}
            left = tuple(int(broker) for broker in found.get("deleting", ()))
            return cls(assignment, configs, "deleting" in found, left)


@dataclass(frozen=True, slots=True)
class MemberNode:
    """A consumer: topics with the number of its streams, or a pattern that selects topics.

    `pattern` is the regular expression of a filter (`refused`: of topics that it leaves out), with
    `streams` for every topic that it lets through; without one, `topics` says it all.
    """

    topics: Mapping[str, int] = field(default_factory=dict)
    pattern: str | None = None
    refused: bool = False
    streams: int = 1

    def dump(self) -> bytes:
        """The node's value."""
        if self.pattern is None:
            return _dump(dict(self.topics))
        kind = "black_list" if self.refused else "white_list"
        return _dump({kind: self.pattern, "streams": self.streams, "topics": {}})

    @classmethod
    def load(cls, value: bytes, path: str) -> MemberNode:
        """The member at `path`."""
        with _reading(path):
            found = _object(value)
            for kind in ("white_list", "black_list"):
                # a topic may bear that name too: its value is a number of streams
                if isinstance(found.get(kind), str):
                    streams = int(found.get("streams", 1))
                    return cls({}, found[kind], kind == "black_list", streams)
            return cls({str(name): int(streams) for name, streams in found.items()})


@dataclass(frozen=True, slots=True)
class OffsetNode:
    """A group's position: the next offset to read, and what the consumer said with it."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""

    def dump(self) -> bytes:
        """The node's value."""
        if self.leader_epoch == -1 and not self.metadata:
            return b"%d" % self.offset
        return _dump(
            {"offset": self.offset, "leader_epoch": self.leader_epoch, "metadata": self.metadata}
        )

    @classmethod
    def load(cls, value: bytes, path: str) -> OffsetNode:
        """The position at `path`."""
        with _reading(path):
            found = json.loads(value)
            if isinstance(found, int):
                return cls(found)
            return cls(
                int(found["offset"]),
                int(found.get("leader_epoch", -1)),
                str(found.get("metadata", "")),
            )


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Tells which node holds what cannot be read."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CorruptError(
            f"the ZooKeeper node {path} does not hold what Headworks writes there ({error!r})",
            fix="give Headworks a chroot of its own (HOST:PORT/NAME), or mend the node",
        ) from None


def _object(value: bytes) -> dict[str, Any]:
    found = json.loads(value)
    if not isinstance(found, dict):
        raise TypeError("it is not a JSON object")
    return found


def _dump(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
