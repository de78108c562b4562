"""Which messages are no audit events, and which are not known yet."""

from __future__ import annotations

import io
import json
import uuid
from unittest.mock import patch

import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import example, given
from hypothesis import strategies as st

from headworks._audit.increments import IncrementDecoder, id_bytes
from headworks._audit_counting import AUDIT_TOPIC
from headworks._bundled_schemas import audit_schema
from headworks._wire import prefix
from headworks.errors import CorruptError, RefusedError, UnreachableError
from headworks.registry_client import RegistryClient, SubjectVersion

pytestmark = pytest.mark.unit

FIELDS = [
    "id",
    "topic",
    "tier",
    "window_start",
    "counts",
    "bytes",
    "host",
    "application",
    "sent_at",
]
OWN = SubjectVersion(f"{AUDIT_TOPIC}-value", 1, 1, "{}")
FORBIDDEN = RefusedError("no", status=403, code=403)


def decode_refused(refused: RefusedError, own: SubjectVersion | RefusedError | None) -> None:
    """Decode a message with the id of a schema that is refused; `own`: that of audit events."""
    decode = IncrementDecoder(RegistryClient("http://127.0.0.1:1"))
    with (
        patch.object(RegistryClient, "schema_text", side_effect=refused),
        patch.object(RegistryClient, "latest", side_effect=[own]),
    ):
        decode(prefix(7) + b"x")


@pytest.mark.parametrize(
    ("status", "code", "ends"),
    [
        (401, 401, UnreachableError),
        (404, 404, UnreachableError),  # a proxy's
        (404, 40403, CorruptError),
    ],
)
def test_only_a_missing_schema_makes_a_message_unreadable(
    status: int, code: int, ends: type[Exception]
) -> None:
    refused = RefusedError("no", status=status, code=code, fix="set registry_password")
    with pytest.raises(ends, match="no"):
        decode_refused(refused, OWN)


def test_a_schema_that_only_others_may_read_does_not_stop_the_audit() -> None:
    with pytest.raises(CorruptError, match="not an audit event"):
        decode_refused(FORBIDDEN, OWN)


@pytest.mark.parametrize("own", [FORBIDDEN, None])
def test_a_user_who_may_not_read_audit_events_makes_none_unreadable(
    own: RefusedError | None,
) -> None:
    with pytest.raises(UnreachableError, match="is not known"):
        decode_refused(FORBIDDEN, own)


@pytest.mark.parametrize(
    "text",
    [
        '"string"',
        '{"type": "record", "name": "AuditCount", "namespace": "headworks.audit", "fields": []}',
        json.dumps(
            {
                "type": "record",
                "name": "AuditCount",
                "namespace": "headworks.audit",
                "fields": [{"name": name, "type": "bytes"} for name in FIELDS],
            }
        ),
        '{"type": "no type"}',
    ],
)
def test_a_message_of_another_schema_does_not_stop_the_audit(text: str) -> None:
    decode = IncrementDecoder(RegistryClient("http://127.0.0.1:1"))
    with patch.object(RegistryClient, "schema_text", return_value=text) as asked:
        for _ in range(2):
            with pytest.raises(CorruptError, match="its schema 7 is of something else"):
                decode(prefix(7) + bytes(len(FIELDS)))
    assert asked.call_count == 1


def test_tiers_of_other_releases_are_understood() -> None:
    own = json.loads(audit_schema())
    older = {**own, "fields": own["fields"][: len(FIELDS)]}
    newer = {**own, "fields": [*own["fields"], {"name": "more", "type": "int", "default": 0}]}
    value = dict.fromkeys(FIELDS, 1) | {"counts": {"lost": 2}, "more": 3}
    value |= dict.fromkeys(("id", "topic", "tier", "host", "application"), "x")
    for schema in (older, own, newer):
        out = io.BytesIO()
        schemaless_writer(out, parse_schema(schema), value)
        decode = IncrementDecoder(RegistryClient("http://127.0.0.1:1"))
        with patch.object(RegistryClient, "schema_text", return_value=json.dumps(schema)):
            found = decode(prefix(7) + out.getvalue())
        assert (found.counts, found.window_start, found.ranges) == ({"lost": 2}, 1, ())


UUIDS = st.uuids().map(str)


@given(st.one_of(UUIDS, st.text(max_size=40), st.text("0123456789abcdefABCDEF-_ x{}", max_size=40)))
@example("0x" + 30 * "1")
@example(" " + 31 * "1")
@example("1_" * 16)
@example("{" + 32 * "a" + "}")
@example("urn:uuid:" + 32 * "a")
def test_an_id_is_the_uuid_that_python_reads_or_a_hash(text: str) -> None:
    try:
        expected = uuid.UUID(text).bytes
    except ValueError:
        expected = uuid.uuid5(uuid.NAMESPACE_OID, text).bytes
    assert id_bytes(text) == expected
