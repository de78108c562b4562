"""The consumers of a topic: those in `governance.toml`, and the groups of a live broker.

Rules: the broker is queried only if its address is given, and then it must answer, because an
incomplete list is worse than none. A group is a consumer if it has committed offsets of the topic.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headworks._ci.governance import FILE_NAME, GovernanceFile
from headworks._ci.verdict import DownstreamConsumer
from headworks._kafka.client_properties import client_properties
from headworks.errors import UnreachableError
from headworks.schema import subject_of

_TIMEOUT_SECONDS = 5.0


@dataclass(slots=True)
class DownstreamConsumers:
    """The consumers of topics; `bootstrap` is the address of a broker, or None."""

    governance: GovernanceFile
    bootstrap: str | None = None
    _groups: dict[str, list[str]] | None = field(default=None, init=False)

    def of(self, topic: str) -> list[DownstreamConsumer]:
        """Return the consumers of `topic`, declared ones first. Raises UnreachableError."""
        declared = self.governance.of(subject_of(topic)).consumers
        found = [DownstreamConsumer(name, FILE_NAME) for name in declared]
        if self.bootstrap is not None:
            if self._groups is None:
                self._groups = _groups_by_topic(self.bootstrap)
            known = f"broker {self.bootstrap}"
            found += [DownstreamConsumer(name, known) for name in self._groups.get(topic, ())]
        return found


def _groups_by_topic(bootstrap: str) -> dict[str, list[str]]:
    """Return the groups of a broker that have committed offsets, by topic, sorted."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    from headworks._kafka.group_requests import committed_offsets

    client = AdminClient({**client_properties(bootstrap), "log_level": 0})
    try:
        listed = client.list_consumer_groups(request_timeout=_TIMEOUT_SECONDS).result()
        if listed.errors:
            raise KafkaException(listed.errors[0])
        names = sorted(group.group_id for group in listed.valid)
        found: dict[str, list[str]] = {}
        for name in names:
            told = committed_offsets(client, name).result(_TIMEOUT_SECONDS)
            for topic in sorted({p.topic for p in told.topic_partitions if p.offset >= 0}):
                found.setdefault(topic, []).append(name)
    except (KafkaException, TimeoutError) as error:
        problem = error if isinstance(error, KafkaException) else f"{_TIMEOUT_SECONDS:g} s passed"
        raise UnreachableError(
            f"the broker {bootstrap} does not tell its consumer groups: {problem}",
            fix="start it, or leave --bootstrap out: the verdict does not need it",
        ) from None
    return found
