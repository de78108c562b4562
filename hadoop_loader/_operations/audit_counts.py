"""The Hadoop tier's audit counts: a pure function of a commit, published to the audit topic.

Rules:

- Counts come from commits, never from tasks, so no retry can count twice. An event's id is derived
  from commit, topic, and window, so publishing a commit again counts nothing again.
- Counts avoid partitions without a leader. Otherwise a commit could not be finished until their
  broker is back, and nothing else could be loaded.
- The audit topic itself is loaded like any other, and not counted.
"""

from __future__ import annotations

import io
import itertools
import json
import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hadoop_loader._commit.commit_record import Commit, TopicCommit
from headworks._audit_counting import AUDIT_TOPIC, WINDOW_MS
from headworks._bundled_schemas import audit_schema
from headworks._wire import prefix
from headworks.errors import RefusedError, UnreachableError
from headworks.registry_client import RegistryClient
from headworks.schema import subject_of

if TYPE_CHECKING:
    from confluent_kafka import Producer

_NAMESPACE = uuid.UUID("6f2d2c1e-6a0b-5a44-9d4f-6c8f3b1f7f30")
_TIER = "hadoop"
_LATE_MS = 3_600_000
_PARTITION_BY_KEY = -1
_METADATA_TIMEOUT_SECONDS = 20.0


# By topic: the id of each version of its subject that a commit names.
SchemaIdsByTopic = Mapping[str, Mapping[int, int]]


def audit_events(
    commit: Commit, *, warehouse: str, host: str, schema_ids: SchemaIdsByTopic | None = None
) -> Iterator[dict[str, Any]]:
    """Return the audit events of a commit; `warehouse` names the log that its number belongs to.

    The schemas of a topic are in its first event. They are not counted for a topic that
    `schema_ids` lacks.
    """
    for topic, found in sorted(commit.topics.items()):
        if topic == AUDIT_TOPIC:
            continue
        ranges = [
            {"partition_number": int(partition), "first_offset": first, "end_offset": end}
            for partition, (first, end) in sorted(found.ranges.items())
            if commit.kind == "load"  # a rewind repeats ranges that were published before
        ]
        schemas = _schemas(commit, topic, (schema_ids or {}).get(topic))
        for window, counts in sorted(_windows(found, commit.created_ms).items()):
            outcomes = {k: n for k, n in counts.items() if k != "bytes" and n}
            if not outcomes and not ranges:
                continue  # a rewind that changed nothing
            name = "/".join(
                (_TIER, warehouse, commit.previous, str(commit.number), topic, str(window))
            )
            yield {
                "id": str(uuid.uuid5(_NAMESPACE, name)),
                "topic": topic,
                "tier": _TIER,
                "window_start": window,
                "counts": outcomes,
                "bytes": counts["bytes"],
                "host": host,
                "application": "headworks-loader",
                "sent_at": commit.created_ms,
                "load_number": commit.number,
                "ranges": ranges,
                "schemas": schemas,
            }
            schemas = schemas and []


def _schemas(
    commit: Commit, topic: str, ids: Mapping[int, int] | None
) -> list[dict[str, int]] | None:
    """Return the schemas that a topic's rows were written and read with; None without ids."""
    versions = commit.topics[topic].versions if commit.kind == "load" else {}
    if ids is None or not all(int(one) in ids for one in versions):
        return None
    if not versions:
        return []
    read = int(commit.tables[topic].projections[-1][2])
    return [
        {"written": ids[int(version)], "read": read, "messages": rows}
        for version, rows in sorted(versions.items())
    ]


def _windows(found: TopicCommit, committed_ms: int) -> dict[int, dict[str, int]]:
    """Return a topic's counts by window, late ones included.

    Lost messages, and those in damaged batches, are in window 0: their times are unknown.
    """
    windows = {int(window): dict(counts) for window, counts in found.windows.items()}
    for window, counts in windows.items():
        if window + WINDOW_MS + _LATE_MS <= committed_ms:
            counts["late"] = counts.get("loaded", 0)
    if found.lost:
        windows.setdefault(0, {"bytes": 0})["lost"] = found.lost
    if found.damaged:
        windows.setdefault(0, {"bytes": 0})["damaged"] = found.damaged
    return windows


class CommitCountsPublisher:
    """Publishes the counts of commits; `client` holds librdkafka's properties."""

    def __init__(self, client: Mapping[str, Any], registry: RegistryClient, warehouse: str) -> None:
        self._client = client
        self._registry = registry
        self._warehouse = warehouse
        self._ids: dict[tuple[str, int], int] = {}  # by topic and version

    def __call__(self, commit: Commit) -> None:
        """Publish the counts; UnreachableError unless the broker acknowledges all of them."""
        found = list(
            audit_events(
                commit,
                warehouse=self._warehouse,
                host=socket.gethostname(),
                schema_ids={topic: self._schema_ids(commit, topic) for topic in commit.topics},
            )
        )
        if not found:
            return
        self._send([self._encoded(event) for event in found])

    def _schema_ids(self, commit: Commit, topic: str) -> dict[int, int]:
        """Return the ids of the versions that a commit read of a topic, as far as known."""
        found = {}
        for version in map(int, commit.topics[topic].versions):
            if (topic, version) not in self._ids:
                try:
                    subject = commit.tables[topic].subject
                    known = self._registry.version(subject, version, deleted=True)
                except (RefusedError, KeyError):  # hard-deleted, or the topic has no table any more
                    continue
                self._ids[topic, version] = known.id
            found[version] = self._ids[topic, version]
        return found

    def _encoded(self, event: dict[str, Any]) -> tuple[bytes, bytes, int]:
        from fastavro import schemaless_writer

        schema_id, schema = self._schema()
        out = io.BytesIO()
        schemaless_writer(out, schema, event)
        return event["topic"].encode(), prefix(schema_id) + out.getvalue(), event["sent_at"]

    def _schema(self) -> tuple[int, Any]:
        from fastavro.schema import parse_schema

        if not hasattr(self, "_pinned"):
            text = audit_schema()
            subject = subject_of(AUDIT_TOPIC)
            known = self._registry.lookup(subject, text) or self._registry.register(subject, text)
            self._pinned = (known.id, parse_schema(json.loads(text)))
        return self._pinned

    def _send(self, messages: list[tuple[bytes, bytes, int]]) -> None:
        from confluent_kafka import KafkaException, Producer

        failed: list[object] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        producer = Producer(
            {
                **self._client,
                # The event id removes duplicates. Idempotence would start half a second later:
                # librdkafka asks for a producer id before it has a connection, and then waits.
                "acks": "all",
                "linger.ms": 5,
                "log_level": 2,  # the error contains what matters
                "message.timeout.ms": 20_000,
            }
        )
        try:
            partitions = itertools.cycle(_partitions_to_use(producer))
            for key, value, timestamp in messages:
                to = next(partitions)
                while True:
                    try:
                        producer.produce(
                            AUDIT_TOPIC, value, key, to, timestamp=timestamp, on_delivery=delivered
                        )
                        break
                    except BufferError:
                        producer.poll(0.1)
            left = producer.flush(30)
        except KafkaException as error:
            failed.append(error)
            left = 0
        if failed or left:
            raise UnreachableError(
                f"broker {self._client['bootstrap.servers']} does not take audit counts: "
                f"{failed[0] if failed else f'{left} left after 30 s'}",
                fix="the rows are committed; load again when the broker answers, "
                "and the counts are published then",
            )


def _partitions_to_use(producer: Producer) -> Sequence[int]:
    """Return the partitions with a leader if some have none, else let the key choose."""
    found = (
        producer.list_topics(AUDIT_TOPIC, timeout=_METADATA_TIMEOUT_SECONDS)
        .topics[AUDIT_TOPIC]
        .partitions
    )
    led = [number for number, partition in found.items() if partition.leader >= 0]
    return led if 0 < len(led) < len(found) else [_PARTITION_BY_KEY]
