"""Secrets of a topic in its keys, and in versions that were deleted since."""

from __future__ import annotations

import io
import json
from typing import Any
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from fastavro import parse_schema, schemaless_writer

from headworks._wire import prefix
from headworks.schema import key_subject_of, subject_of
from tests.console.fetch import Fetch
from tests.console.stage import Stage

pytestmark = pytest.mark.e2e

SECRET, OPEN = "ada@example.org", "London"


def record(name: str, **fields: bool) -> dict[str, Any]:
    """A record of strings, each sensitive or not."""
    made = [{"name": n, "type": "string", "sensitive": secret} for n, secret in fields.items()]
    return {"type": "record", "name": name, "fields": made}


def framed(schema_id: int, schema: dict[str, Any], event: Any) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(schema), event)
    return prefix(schema_id) + out.getvalue()


@pytest.fixture(scope="module")
def fetch(stage: Stage) -> Fetch:
    """Two topics: one with a secret in its keys, one whose secret was marked in a version only
    that is deleted.
    """
    registry, address = stage.registry, stage.stack.broker.address
    names = ("accounts", "moves")
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": address})
    value, key = record("Account", city=False), record("Key", email=True, city=False)
    of_value = registry.register(subject_of("accounts"), json.dumps(value)).id
    of_key = registry.register(key_subject_of("accounts"), json.dumps(key)).id
    event = framed(of_value, value, {"city": OPEN})
    for bytes_of_key in (framed(of_key, key, {"email": SECRET, "city": OPEN}), SECRET.encode()):
        producer.produce("accounts", event, bytes_of_key)

    marked, unmarked = record("Move", email=True), record("Move", email=False)
    subject = subject_of("moves")
    registry.register(subject, json.dumps(marked))
    newer = registry.register(subject, json.dumps(unmarked))
    deletion = Request(f"{registry.url}/subjects/{subject}/versions/1", method="DELETE")
    urlopen(deletion, timeout=60).close()
    producer.produce("moves", framed(newer.id, unmarked, {"email": SECRET}))
    assert producer.flush(60) == 0
    found = Fetch(stage.url)
    found.until("/topics.json", lambda data: all(name in json.dumps(data) for name in names))
    found.until("/schemas.json", lambda data: '"moves-value"' in json.dumps(data))
    found.until("/schemas.json", lambda data: '"accounts-key"' in json.dumps(data))
    return found


def test_a_key_with_a_schema_is_decoded_and_masked(fetch: Fetch) -> None:
    rows = fetch.data("/topics/accounts/messages.json")["rows"]
    keys = {row["offset"]: row["key"] for row in rows}
    assert json.loads(keys[0]) == {"email": "•••", "city": OPEN}
    assert keys[1] == "•••", "what does not decode is not shown where there are secrets"
    for path in ("messages", "messages.json", "messages/0/0", "messages/0/1.json"):
        assert SECRET not in fetch(f"/topics/accounts/{path}").body


def test_what_a_deleted_version_marks_stays_masked(fetch: Fetch) -> None:
    (row,) = fetch.data("/topics/moves/messages.json")["rows"]
    assert row["event"] == {"email": "•••"}
