"""Events that librdkafka returns in the place of a message: reading continues, or they are raised.

Rules: an event that librdkafka mends by itself is logged. Everything else is an error of the poll
that meets it, and the next poll continues.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from consumer_sdk._audit_tier import AuditTier
from consumer_sdk._damage import damage_in, step_over, stop_at
from consumer_sdk._membership import Membership
from consumer_sdk._reachability import BrokerReachability
from headworks._kafka.bootstrap import BootstrapServers
from headworks.errors import RefusedError, UnreachableError

_log = logging.getLogger("headworks.consumer")
_UNREACHABLE_ERRORS = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT}


@dataclass(frozen=True, slots=True)
class ErrorEvents:
    """Handles the events of one consumer."""

    brokers: BootstrapServers
    watch: BrokerReachability
    reader: Mapping[str, Any]  # properties of librdkafka for another client of the same brokers
    audit: AuditTier | None
    skip_damaged: bool

    def handle(self, event: confluent_kafka.Message, membership: Membership) -> int:
        """Raise the error that an event reports, unless reading can continue.

        Return the number of offsets of a damaged batch that the member skipped.
        """
        problem = event.error()
        assert problem is not None
        damage = damage_in(event, membership)
        if damage is not None:
            if not self.skip_damaged:
                raise stop_at(damage)
            missed = step_over(self.reader, damage, membership)
            if self.audit is not None:
                self.audit.damaged(damage.topic, missed)
            return missed
        if problem.code() in _UNREACHABLE_ERRORS:
            if not self.brokers.followed:  # else ZooKeeper names the brokers that replace these
                raise UnreachableError(
                    f"the broker at {self.brokers.address} does not answer: {problem.str()}",
                    fix="start it with `headworks up`, or set `bootstrap`",
                )
        elif problem.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            self.watch.missing_topic(event.topic() or "")
        elif problem.code() == KafkaError._MAX_POLL_EXCEEDED:
            _log.warning(
                "the application took longer than max.poll.interval.ms over a message: its"
                " partitions went to other members, and this one joins again"
            )
        elif problem.name().endswith("_AUTHORIZATION_FAILED"):
            raise RefusedError(
                f"the broker refuses this member: {problem.str()}",
                code=problem.code(),
                fix="grant its user the topic and the group, or log in as another one (`config`)",
            )
        else:
            raise KafkaException(problem)
        return 0
