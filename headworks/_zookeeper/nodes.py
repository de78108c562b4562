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

from headworks.errors import CorruptError

__all__ = ["BrokerNode", "MemberNode", "OffsetNode", "TopicNode"]


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
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

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

    def dump(self) -> bytes:
        """Return the value of the node."""
        fields: dict[str, Any] = {
            "partitions": {str(index): broker for index, broker in enumerate(self.assignment)},
            "configs": dict(self.configs),
        }
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
            return cls(assignment, configs, "deleting" in found, left)


@dataclass(frozen=True, slots=True)
class MemberNode:
    """A decentralized consumer: topics with its number of streams, or a pattern of topics."""

    topics: Mapping[str, int] = field(default_factory=dict)  # streams for each; without a pattern
    pattern: str | None = None  # a regular expression for topics
    refused: bool = False  # whether the pattern matches the topics that are excluded
    streams: int = 1  # for each topic that the pattern selects

    def dump(self) -> bytes:
        """Return the value of the node."""
        if self.pattern is None:
            return _dump(dict(self.topics))
        kind = "black_list" if self.refused else "white_list"
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
class OffsetNode:
    """A committed offset."""

    offset: int  # the next to read
    leader_epoch: int = -1  # as the consumer gave it; -1: none
    metadata: str = ""  # as the consumer gave it

    def dump(self) -> bytes:
        """Return the value of the node."""
        if self.leader_epoch == -1 and not self.metadata:
            return b"%d" % self.offset
        return _dump(
            {"offset": self.offset, "leader_epoch": self.leader_epoch, "metadata": self.metadata}
        )

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
