"""Which cluster a process writes to, so that what it leaves in a folder goes to no other cluster.

A process knows the addresses that it starts with, and the cluster's id once a broker has answered.

Rules:

- Two known ids decide. Otherwise one address in common decides, of those that either process
  started with or that its cluster named. So two bootstrap lists of one cluster agree.
- A file that names no cluster is of an earlier release, and belongs to the first that finds it.
- The packed form has a fixed size, because it is written over in files whose disk may be full.
  Addresses beyond that size are left out.
"""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass
from typing import Final

import confluent_kafka

from headworks._kafka.clients import KafkaProducer, metadata, threads_are_greenlets

PACKED_BYTES: Final = 496
_HEAD_BYTES = 8  # the CRC-32 and the length of the text, 4 bytes each
_DEFAULT_PORT = 9092
_GREENLET_PAUSES = 20  # of the time of a try without an answer


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """A cluster as one process knows it."""

    id: str | None  # None: no broker has answered yet, or the brokers have no id
    addresses: frozenset[str]  # HOST:PORT in lower case

    def __str__(self) -> str:
        """The id, or else the addresses."""
        return self.id or ",".join(sorted(self.addresses))

    def takes(self, left: ClusterIdentity | None) -> bool:
        """Return whether what a process left for the cluster `left` is for this one."""
        if left is None:
            return True
        if self.id is not None and left.id is not None:
            return self.id == left.id
        return not self.addresses.isdisjoint(left.addresses)

    def packed(self) -> bytes:
        """Return PACKED_BYTES bytes."""
        text = (self.id or "").encode()
        for address in sorted(self.addresses):
            longer = text + b"\n" + address.encode()
            if len(longer) <= PACKED_BYTES - _HEAD_BYTES:
                text = longer
        head = zlib.crc32(text).to_bytes(4, "little") + len(text).to_bytes(4, "little")
        return (head + text).ljust(PACKED_BYTES, b"\0")


def unpacked(packed: bytes) -> ClusterIdentity | None:
    """Return what was packed; None if the process died while it wrote."""
    size = int.from_bytes(packed[4:_HEAD_BYTES], "little")
    text = packed[_HEAD_BYTES : _HEAD_BYTES + size]
    if not text or zlib.crc32(text) != int.from_bytes(packed[:4], "little"):
        return None
    found, *addresses = text.decode().split("\n")
    return ClusterIdentity(found or None, frozenset(addresses))


def reached_by(bootstrap: str) -> ClusterIdentity:
    """Return the cluster of these brokers, HOST[:PORT][,..], before one of them has answered."""
    named = (each.strip().rpartition("://")[2].lower() for each in bootstrap.split(","))
    return ClusterIdentity(None, frozenset(_with_port(each) for each in named if each))


def _with_port(address: str) -> str:
    has_port = address.rpartition(":")[2].isdecimal() and not address.endswith("]")
    return address if has_port else f"{address}:{_DEFAULT_PORT}"


class ClusterOfClient:
    """The cluster that `client` writes to, which started with `bootstrap`. For one thread."""

    def __init__(self, client: KafkaProducer, bootstrap: str, topic: str) -> None:
        self._client = client
        # The topic that a broker is asked about: a question about all costs much in a large cluster
        self._topic = topic
        # The cluster as it is known before a broker has answered.
        self.assumed = reached_by(bootstrap)
        self._known: ClusterIdentity | None = None  # after that
        self._tries = 0
        self._next_try = 0.0  # by the monotonic clock

    def known(self) -> ClusterIdentity | None:
        """Return the cluster by what a broker says; None if none answers within a second.

        Greenlets would wait with it, so it then asks in a twentieth of the time at most.
        """
        began = time.monotonic()
        if self._known is None and began >= self._next_try:
            try:
                found = metadata(self._client, self._topic, self._tries)
            except confluent_kafka.KafkaException:
                self._tries += 1
                if threads_are_greenlets():
                    self._next_try = began + _GREENLET_PAUSES * (time.monotonic() - began)
                return None
            named = {f"{each.host}:{each.port}".lower() for each in found.brokers.values()}
            self._known = ClusterIdentity(found.cluster_id or None, self.assumed.addresses | named)
        return self._known
