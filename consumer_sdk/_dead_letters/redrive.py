"""Dead letters sent back, to the topic that they belong to or to one group alone.

Rules:

- A letter is committed only after the broker has acknowledged its copy. A redrive that is killed
  and started again continues at its last commit: it loses no letter, and repeats only those behind
  that commit.
- A letter that was redriven `max_redrives` times stays, so no message circles for ever.
- The copy keeps its key, its time, its partition, and its bytes. It counts as produced in the
  audit, by the application `headworks-redrive`, because every reader of the topic gets it.
- The letters stay in the dead-letter topic until its retention removes them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from consumer_sdk._dead_letters.letter import DeadLetter, letter_of
from consumer_sdk._dead_letters.reading import LetterReader
from consumer_sdk._dead_letters.selection import LetterSelection
from consumer_sdk._message import Partition
from headworks._audit_counting.publishing import AuditPublisher
from headworks._kafka.clients import KafkaProducer
from headworks._kafka.headers import Headers
from headworks._kafka.retry_topics import create_like, redriven_topic
from headworks.errors import UnreachableError, UsageError
from headworks.registry_client._schema_ids import EventSchemaIds

_APPLICATION = "headworks-redrive"
_ANY_PARTITION = -1
_TIMEOUT_SECONDS = 30.0
_AUDIT_SECONDS = 10.0
_FULL_PAUSE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class RedriveOptions:
    """The letters that a redrive sends, and their target.

    `source` is the dead-letter topic. With `to_group`, the copies go to that group alone. `name`
    identifies the redrive when it is started again; by default it comes from the selection.
    `maximum` is how many letters one run sends.
    """

    source: str
    selection: LetterSelection
    to_group: str | None = None
    max_redrives: int = 3
    maximum: int | None = None
    name: str | None = None

    @property
    def group(self) -> str:
        """The group that holds the offsets of this redrive."""
        name = self.name or self.selection.name(self.to_group)
        return f"headworks-redrive.{self.source}.{name}"


@dataclass(slots=True)
class RedriveReport:
    """The letters of one run: sent back by topic, and left by the reason."""

    sent: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)


class _Full(Exception):  # noqa: N818 - it ends a run as it should
    """The run has sent as many letters as it may."""


class Redrive:
    """One redrive on the brokers of `client`; `state_dir` keeps its counts for the audit."""

    def __init__(
        self, options: RedriveOptions, client: Mapping[str, Any], registry: str, state_dir: Path
    ) -> None:
        self._options = options
        self._client = client
        self._registry = registry
        self._folder = state_dir / "redrive"
        self._targets: dict[str, int] = {}  # the partitions of each topic that is written to
        self.report = RedriveReport()

    def preview(self) -> RedriveReport:
        """Return what `run` would do, and change nothing."""
        report = RedriveReport()
        for letter in self.letters():
            reason = self._reason_to_stay(letter)
            if reason is not None:
                report.left[reason] += 1
            elif letter is not None and sum(report.sent.values()) != self._options.maximum:
                report.sent[self._target_name(letter)] += 1
        return report

    def letters(self) -> Iterator[DeadLetter | None]:
        """Yield the selected letters that this redrive has not committed; None: no headers."""
        selection = self._options.selection
        with LetterReader(self._client, self._options.source, self._options.group) as reader:
            bounds = reader.uncommitted(selection.bounded(reader.bounds()))
            for batch in reader.batches(bounds):
                for message in batch:
                    letter = letter_of(message)
                    if letter is None or selection.includes(letter):
                        yield letter

    def run(self) -> RedriveReport:
        """Send the letters, and return the report.

        Raises UnreachableError if the broker acknowledges none for long; the same redrive then
        continues where this one committed.
        """
        options = self._options
        with LetterReader(self._client, options.source, options.group) as reader:
            bounds = reader.uncommitted(options.selection.bounded(reader.bounds()))
            publisher = AuditPublisher(
                self._client,
                EventSchemaIds(self._registry, self._folder),
                self._folder,
                tier="producer",
                application=_APPLICATION,
                every=_AUDIT_SECONDS,
            )
            try:
                sender = _Sender(self._client, publisher)
                for batch in reader.batches(bounds):
                    done: dict[Partition, int] = {}
                    is_full = False
                    try:
                        for message in batch:
                            self._send(sender, message)
                            place = Partition(message.topic() or "", message.partition() or 0)
                            done[place] = (message.offset() or 0) + 1
                    except _Full:
                        is_full = True
                    sender.wait()
                    if done:
                        reader.commit(done)
                    if is_full:
                        break
            finally:
                publisher.close()
        return self.report

    def _reason_to_stay(self, letter: DeadLetter | None) -> str | None:
        """Return why a letter is not sent back; None if it is."""
        if letter is None:
            return "have no headers of Headworks"
        most = self._options.max_redrives
        if letter.redrives >= most:
            return f"were redriven {most} times before"
        return None

    def _send(self, sender: _Sender, message: Any) -> None:
        """Send one letter back, unless it is to stay."""
        options, letter = self._options, letter_of(message)
        if letter is not None and not options.selection.includes(letter):
            return
        reason = self._reason_to_stay(letter)
        if letter is None or reason is not None:
            self.report.left[reason or ""] += 1
            return
        if sum(self.report.sent.values()) == options.maximum:
            raise _Full
        target = self._target_name(letter)
        partitions = self._partitions(target, letter.topic, sender)
        if not partitions:
            self.report.left[f"belong to {target}, which does not exist"] += 1
            return
        there = letter.origin_partition < partitions
        sender.send(target, letter, letter.origin_partition if there else _ANY_PARTITION)
        self.report.sent[target] += 1

    def _target_name(self, letter: DeadLetter) -> str:
        group = self._options.to_group
        return letter.topic if group is None else redriven_topic(letter.topic, group)

    def _partitions(self, target: str, topic: str, sender: _Sender) -> int:
        """Return how many partitions the target has, 0 if its topic does not exist."""
        if target not in self._targets:
            known = sender.topics()
            if self._options.to_group is not None and topic in known and target not in known:
                create_like(self._client, {target: topic})
                known = sender.topics()
            self._targets[target] = known.get(target, 0)
        return self._targets[target]


class _Sender:
    """Sends letters, counts them, and waits for all acknowledgements."""

    def __init__(self, client: Mapping[str, Any], publisher: AuditPublisher) -> None:
        self._counters = publisher.counters
        self._failure: KafkaError | None = None
        self._producer = KafkaProducer(
            {
                **client,
                "client.id": _APPLICATION,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                "message.timeout.ms": int(_TIMEOUT_SECONDS * 1000),
                "log_level": 2,
            }
        )

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of each topic."""
        try:
            found = self._producer.list_topics(timeout=_TIMEOUT_SECONDS).topics
        except KafkaException as error:
            raise _not_sent(error.args[0].str()) from None
        return {name: len(topic.partitions) for name, topic in found.items()}

    def send(self, topic: str, letter: DeadLetter, partition: int) -> None:
        """Queue a copy of a letter; wait for room if the queue is full."""
        counts = self._counters.attempt(topic, letter.timestamp, len(letter.value or b""))
        report = partial(self._acknowledged, counts.report)
        headers: Headers = letter.redriven_headers
        while True:
            try:
                self._producer.produce(
                    topic,
                    letter.value,
                    letter.key,
                    partition,
                    report,
                    None,
                    letter.timestamp,
                    headers,  # type: ignore[arg-type]  # a list keeps repeated names
                )
            except BufferError:
                self._producer.poll(_FULL_PAUSE_SECONDS)
            else:
                self._producer.poll(0)
                return

    def wait(self) -> None:
        """Wait until every copy is acknowledged. Raises UnreachableError if one is not."""
        deadline = time.monotonic() + 2 * _TIMEOUT_SECONDS
        while self._producer.flush(1.0) and time.monotonic() < deadline:
            continue
        if self._failure is not None or len(self._producer):
            reason = "no answer" if self._failure is None else self._failure.str()
            raise _not_sent(reason)

    def _acknowledged(self, count: Any, error: KafkaError | None, message: Any) -> None:
        count(error, message)
        if error is not None:
            self._failure = error


def _not_sent(reason: str) -> UnreachableError:
    return UnreachableError(
        f"dead letters were not sent back: {reason}",
        fix="none is lost; run the same command again when the broker answers",
    )


def check_target(group: str | None, topic: str) -> None:
    """Raise UsageError for a group that no topic can be named after."""
    if group is not None and not group:
        raise UsageError("--to-group is empty", fix="give the name of a group")
    if group is not None:
        redriven_topic(topic, group)
