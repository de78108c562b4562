"""The ids of topics (KIP-516): a topic that is deleted and made again has another one.

Rule: an unknown id is left out, because nothing follows from it: the broker has no ids, the topic
is deleted, or this user may not describe it.
"""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # of a broker that has none


def topic_ids(admin: AdminClient, topics: Collection[str], *, timeout: float) -> dict[str, str]:
    """Return the id of each topic whose id is known. `timeout` is of the request, in seconds."""
    if not topics:
        return {}
    asked = admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=timeout)
    found: dict[str, str] = {}
    for topic, answer in asked.items():
        try:
            found[topic] = str(answer.result().topic_id)
        except KafkaException:
            continue
    return {topic: one for topic, one in found.items() if one != _NO_ID}
