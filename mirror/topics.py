"""The topics to copy, and the partitions of their messages; topics are created on the target.

Rules: a topic is created with the partitions and configs of the source. Later it gains only the
partitions that the source gains. The target keeps its own settings for timestamps and replicas. A
topic of the source is known by its id, because another one may have its name later.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from headworks.errors import RefusedError, UnreachableError, UsageError

_log = logging.getLogger("headworks.mirror")
_TIMEOUT_SECONDS = 10.0
_CHECK_TIMEOUT_SECONDS = 5.0
ANY_PARTITION = -1  # the client's partitioner chooses, by the key
_NOT_INHERITED = re.compile(
    r"message\.timestamp\..*|.*\.replication\.throttled\.replicas|min\.insync\.replicas|"
    r"unclean\.leader\.election\.enable|remote\..*|local\..*"
)
_UNREACHABLE = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
}


@dataclass(frozen=True, slots=True)
class PartitionMapping:
    """The partitions of a topic on both sides, and the target partition of its messages."""

    source: int
    target: int

    @property
    def keeps(self) -> bool:
        """Return whether a message keeps its partition."""
        return self.source == self.target

    def partition(self, partition: int, *, keyed: bool) -> int:
        """Return the target partition of a message.

        With equal numbers of partitions, it stays the same. Otherwise the key decides, as for any
        producer. Messages without a key go from one source partition to one target partition, in
        order.
        """
        if self.source == self.target:
            return partition
        return ANY_PARTITION if keyed else partition % self.target


class MirroredTopics:
    """The topics of one source that `wants` accepts, and their copies on the target."""

    def __init__(
        self,
        source: Mapping[str, Any],
        target: Mapping[str, Any],
        wants: Callable[[str], bool],
    ) -> None:
        self._from, self._to = str(source["bootstrap.servers"]), str(target["bootstrap.servers"])
        self._source = AdminClient({**source, "log_level": 2})
        self._target = AdminClient({**target, "log_level": 2})
        self._wants = wants
        self.ids: Mapping[str, str] = {}  # of the topics on the source, if it has ids
        self.mappings: dict[str, PartitionMapping] = {}  # of the topics to copy, by name
        self.refused: dict[str, str] = {}  # reason by topic

    def check(self) -> None:
        """Check that both sides answer and differ. Raises UnreachableError or UsageError."""
        ours = self._metadata(self._source, self._from, "source", _CHECK_TIMEOUT_SECONDS)
        theirs = self._metadata(self._target, self._to, "target", _CHECK_TIMEOUT_SECONDS)
        if ours.cluster_id is not None and ours.cluster_id == theirs.cluster_id:
            raise UsageError(
                f"{self._from} and {self._to} are one cluster ({ours.cluster_id})",
                fix="mirror into another cluster: its own messages would come back for ever",
            )

    def refresh(self) -> None:
        """Look for topics, and create each wanted one on the target.

        A topic that the target refuses is skipped, and its reason is in `refused`, until the target
        accepts it.
        """
        counts = _counts(self._metadata(self._source, self._from, "source"))
        wanted = {name: count for name, count in counts.items() if self._wants(name)}
        there = _counts(self._metadata(self._target, self._to, "target"))
        refused: dict[str, str] = {}
        for name, count in wanted.items():
            try:
                if name not in there:
                    there[name] = self._create(name, count)
                elif there[name] < count and self._kept(name):
                    there[name] = self._add_partitions(name, count)
            except KafkaException as error:
                refused[name] = error.args[0].str()
        self._log_refusals(refused)
        self.refused = refused
        self.mappings = {
            name: PartitionMapping(count, there[name])
            for name, count in wanted.items()
            if name not in refused
        }

    def recreated(self) -> set[str]:
        """Ask for the ids of the wanted topics; return those that have another one than before."""
        before, self.ids = self.ids, self._source_ids(self.mappings)
        return {name for name, found in self.ids.items() if before.get(name, found) != found}

    def _source_ids(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return the ids of topics; a topic that is gone keeps the one that it had."""
        found = dict(self.ids)
        asked = sorted(names)
        if not asked:
            return found
        described = self._source.describe_topics(
            TopicCollection(asked), request_timeout=_TIMEOUT_SECONDS
        )
        for name, answer in described.items():
            try:
                topic_id = answer.result(_TIMEOUT_SECONDS).topic_id
            except KafkaException:  # it is gone, or may not be seen: the reader reports that
                continue
            if topic_id.get_most_significant_bits() or topic_id.get_least_significant_bits():
                found[name] = str(topic_id)
        return found

    def _kept(self, name: str) -> bool:
        before = self.mappings.get(name)
        return before is not None and before.keeps

    def _create(self, name: str, partitions: int) -> int:
        configs = self._configs(name)
        try:
            self._create_with(name, partitions, configs)
        except KafkaException as error:
            ours = {key for key in configs if key.startswith("headworks.")}
            if error.args[0].code() != KafkaError.INVALID_CONFIG or not ours:
                raise
            # The target is another broker: what only ours knows is left out.
            _log.warning(
                "topic %s is created without %s on the target",
                name,
                sorted(ours),
                extra={"topic": name},
            )
            self._create_with(
                name, partitions, {key: v for key, v in configs.items() if key not in ours}
            )
        _log.info(
            "created topic %s with %d partitions on the target",
            name,
            partitions,
            extra={"topic": name},
        )
        return partitions

    def _create_with(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        topic = NewTopic(name, partitions, -1, config=configs)
        try:
            self._target.create_topics([topic], request_timeout=_TIMEOUT_SECONDS)[name].result(
                _TIMEOUT_SECONDS
            )
        except KafkaException as error:
            # Another mirror into the same target has just done it.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _add_partitions(self, name: str, partitions: int) -> int:
        growing = self._target.create_partitions([NewPartitions(name, partitions)])
        growing[name].result(_TIMEOUT_SECONDS)
        _log.info(
            "topic %s has %d partitions now, on the target too",
            name,
            partitions,
            extra={"topic": name},
        )
        return partitions

    def _configs(self, name: str) -> dict[str, str]:
        """Return the configs that are set for the topic itself on the source."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        found = self._source.describe_configs([resource], request_timeout=_TIMEOUT_SECONDS)
        return {
            entry.name: entry.value
            for entry in found[resource].result(_TIMEOUT_SECONDS).values()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
            and entry.value is not None
            and not _NOT_INHERITED.fullmatch(entry.name)
        }

    def _log_refusals(self, refused: Mapping[str, str]) -> None:
        for name, why in refused.items():
            if self.refused.get(name) != why:
                about = {"topic": name, "error": why}
                _log.error("topic %s is not mirrored: %s", name, why, extra=about)

    def _metadata(
        self, admin: AdminClient, address: str, side: str, timeout: float = _TIMEOUT_SECONDS
    ) -> Any:
        try:
            return admin.list_topics(timeout=timeout)
        except KafkaException as error:
            problem = error.args[0]
            if problem.code() in _UNREACHABLE:
                raise UnreachableError(
                    f"the {side} {address} does not answer: {problem.str()}",
                    fix="see that it runs, and that its address, user and TLS are right",
                ) from None
            raise RefusedError(f"the {side} {address} refuses: {problem.str()}") from None


def _counts(metadata: Any) -> dict[str, int]:
    return {
        name: len(topic.partitions)
        for name, topic in metadata.topics.items()
        if topic.error is None and topic.partitions
    }
