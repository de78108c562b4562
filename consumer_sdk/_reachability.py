"""The trouble of a consumer's brokers: logged, and an error if none answers for long.

Rules:

- Before the consumer gives up, it asks once more.
- librdkafka is silent for ever if its brokers do not serve the group protocol that it was told to
  use. So a member without partitions is logged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException

from consumer_sdk._application_thread import ApplicationThread
from consumer_sdk._arguments import check_seconds
from headworks._kafka.trouble_log import BrokerTrouble
from headworks.errors import UnreachableError

_log = logging.getLogger("headworks.consumer")
_ASK_SECONDS = 3.0
_STATISTICS_MS = 1000  # between two looks at brokers that may not answer
_ASSIGNMENT_SECONDS = 30.0  # without a partition, until that is logged


class BrokerReachability:
    """Logs the trouble of one consumer's brokers; `after` seconds without any, `check` raises.

    With `after` None, the consumer waits for ever.
    """

    def __init__(self, address: str, config: Mapping[str, Any], after: float | None) -> None:
        check_seconds("unreachable_after", after)
        self._trouble = BrokerTrouble(address, config, _log)
        self._after = after
        self._config = config
        self._awaits_assignment = config.get("group.protocol") == "consumer"  # by a broker
        self._awaited_since = 0.0  # the monotonic time of the first check without a partition

    @property
    def config(self) -> dict[str, Any]:
        """The user's properties of librdkafka, with callbacks that report here, too."""
        statistics = {"statistics.interval.ms": _STATISTICS_MS}
        return {**statistics, **self._config, **self._trouble.callbacks}

    def missing_topic(self, topic: str) -> None:
        """Log that a topic does not exist; it may be created later."""
        self._trouble.log.warn(
            f"topic {topic}", f"topic {topic!r} does not exist: waiting until it is created"
        )

    def check(self, client: confluent_kafka.Consumer) -> None:
        """Raise UnreachableError if no broker has answered for long."""
        since, now = self._trouble.down_since, time.monotonic()
        if since is not None and self._trouble.has_answered:
            _log.warning(
                "brokers %s answer again, after %.0f s", self._trouble.address, now - since
            )
            since = self._trouble.down_since = None
            self._trouble.has_answered = False
        if self._awaits_assignment and since is None:
            self._check_assignment(client, now)
        if since is None or self._after is None or now - since < self._after:
            return
        self._trouble.down_since = None
        try:
            client.list_topics(timeout=_ASK_SECONDS)
        except KafkaException:
            self._trouble.down_since = time.monotonic()  # a consumer that goes on is told again
            raise UnreachableError(
                f"no broker at {self._trouble.address} has answered for {now - since:.0f} s:"
                f" {self._trouble.reason}",
                fix=self._trouble.fix,
            ) from None

    def _check_assignment(self, client: confluent_kafka.Consumer, now: float) -> None:
        self._awaited_since = self._awaited_since or now
        if client.assignment():
            self._awaits_assignment = False
        elif now - self._awaited_since >= _ASSIGNMENT_SECONDS:
            self._trouble.log.warn(
                "assignment",
                f"the group has given this member no partition for {now - self._awaited_since:.0f}"
                " s. Either other members have them all, or the brokers do not serve"
                " group.protocol=consumer (Apache Kafka does from 4.0 on)."
                " fix: remove group.protocol from `config` for older brokers",
            )


def close_within(
    client: confluent_kafka.Consumer,
    application: ApplicationThread,
    timeout: float,
    *,
    commit: bool,
) -> None:
    """Close `client`. After `timeout` seconds, log and leave the rest to a daemon thread.

    With `commit`, the offsets that are stored are committed first. librdkafka commits them too, but
    in a rebalance it leaves the group before, and the broker refuses the commit.
    """

    def close() -> None:
        if commit:
            with suppress(KafkaException):  # no offset is stored
                client.commit(asynchronous=True)
        client.close()

    if not application.run_elsewhere(close, "headworks-close", timeout):
        _log.warning(
            "the group was not left within %.0f s: it notices after session.timeout.ms", timeout
        )
