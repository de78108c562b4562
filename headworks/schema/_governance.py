"""The `headworks` attribute of a schema: the only configuration that a topic has.

A union of records at the top describes several events of one topic. Each branch carries its own
attribute, and all name the same topic.

A top-level record may carry one attribute `headworks`, an object with these members:

- `topic`: the topic of these events (default: that of `subject`, or else the record's simple name,
  lower-cased);
- `event_time`: dotted path of the field with the time of the event, a timestamp-millis or
  timestamp-micros; it becomes the record timestamp and the table partition;
- `key`: list of dotted paths whose values, joined by "|", are the message key;
- `owner`: the person or team responsible for the topic;
- `subject`: the registry subject, if it is not that of the topic's values. Any schema may have it,
  for example a key.

The attribute is part of the schema text, so the registry keeps it with every version.
"""

from __future__ import annotations

from dataclasses import dataclass

from headworks.errors import SchemaError
from headworks.schema._model import Primitive, Record, Schema, Union

_MEMBERS = ("topic", "event_time", "key", "owner", "subject")
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Governance:
    """The `headworks` attribute of an event's schema, read and checked."""

    topic: str
    event_time: Path | None = None
    key: tuple[Path, ...] = ()
    owner: str | None = None


def governance_of(schema: Schema) -> Governance:
    """Read the `headworks` attribute of a top-level record, or what a union's branches share.

    Event time and key are those of each branch, so a union has none. Raises SchemaError if `schema`
    is neither, or if the branches or topic and subject name several topics. It does so too if a
    member is unknown or has the wrong type, or if a path names no field (event_time: no timestamp
    field).
    """
    if isinstance(schema, Union) and schema.branches:
        return _shared(schema)
    if not isinstance(schema, Record):
        raise SchemaError(
            f"an event must be a record, not {schema.kind}",
            rule="event-is-record",
            fix="wrap the value in a record with one field",
        )
    simple = schema.name.rpartition(".")[2]
    raw = schema.props.get("headworks", {})
    where = f"{schema.pointer}/headworks"
    if not isinstance(raw, dict):
        raise SchemaError("`headworks` must be an object", pointer=where, rule="governance")
    for member in raw:
        if member not in _MEMBERS:
            raise SchemaError(
                f"unknown member {member!r}",
                pointer=f"{where}/{member}",
                rule="governance",
                fix=f"use one of {', '.join(_MEMBERS)}",
            )
    named = topic_of(own_subject(schema) or "")  # None: not the subject of a topic's values
    topic, owner = raw.get("topic", named or simple.lower()), raw.get("owner")
    event_time, key = raw.get("event_time"), raw.get("key", [])
    if not isinstance(topic, str) or not (owner is None or isinstance(owner, str)):
        raise SchemaError("topic and owner must be strings", pointer=where, rule="governance")
    if named not in (None, topic):
        raise SchemaError(
            f"topic {topic} and subject {raw['subject']} are of different topics",
            pointer=where,
            rule="governance",
            fix="leave one of them out",
        )
    if not isinstance(key, list):
        raise SchemaError("key must be a list of field paths", pointer=where, rule="governance")
    return Governance(
        topic=topic,
        event_time=None if event_time is None else _time_path(schema, event_time, where),
        key=tuple(_path(schema, item, f"{where}/key")[0] for item in key),
        owner=owner,
    )


def event_record(schema: Schema, name: str) -> Record:
    """Return the record of this full name: the schema, or a branch of its union at the top.

    Raises LookupError if there is none.
    """
    for branch in schema.branches if isinstance(schema, Union) else (schema,):
        if isinstance(branch, Record) and branch.name == name:
            return branch
    raise LookupError(name)


def _shared(union: Union) -> Governance:
    """Return the topic that all branches of a union name, and their owner if they have one."""
    for branch in union.branches:
        if not isinstance(branch, Record):
            raise SchemaError(
                f"a union of events has records only, and this one has a {branch.kind}",
                pointer=union.pointer,
                rule="event-is-record",
                fix="make every branch a record, and delete a key with a tombstone",
            )
    found = [governance_of(branch) for branch in union.branches]
    topics, owners = sorted({each.topic for each in found}), {each.owner for each in found}
    if len(topics) > 1:
        raise SchemaError(
            f"the events of a union go to one topic, and these name {', '.join(topics)}",
            pointer=union.pointer,
            rule="event-is-record",
            fix='name the same "topic" in the `headworks` attribute of each branch',
        )
    return Governance(topics[0], owner=owners.pop() if len(owners) == 1 else None)


def own_subject(schema: Schema) -> str | None:
    """Return the subject that a schema of any kind names in its `headworks` attribute, or None.

    Raises SchemaError if it is not a string, or empty.
    """
    raw = {} if isinstance(schema, Union) else schema.props.get("headworks")
    if not isinstance(raw, dict) or "subject" not in raw:
        return None
    subject = raw["subject"]
    if not isinstance(subject, str) or not subject:
        raise SchemaError(
            "subject must be a name",
            pointer=f"{schema.pointer}/headworks/subject",
            rule="governance",
            fix='write it like "subject": "orders-key"',
        )
    return subject


def subject_of(topic: str) -> str:
    """Return the registry subject of a topic's values (Confluent's TopicNameStrategy)."""
    return f"{topic}-value"


def key_subject_of(topic: str) -> str:
    """Return the registry subject of a topic's keys."""
    return f"{topic}-key"


def topic_of(subject: str) -> str | None:
    """Return the topic whose values a subject governs; None if the name has another form.

    Subjects of a context other than the default one govern topics of other clusters.
    """
    topic = subject.removesuffix("-value")
    return topic if topic and topic != subject and not topic.startswith(":.") else None


def _path(record: Record, text: object, where: str) -> tuple[Path, Schema]:
    if not isinstance(text, str) or not text:
        raise SchemaError("a field path must be a string", pointer=where, rule="governance")
    node: Schema = record
    for part in text.split("."):
        found = node.field(part) if isinstance(node, Record) else None
        if found is None:
            raise SchemaError(
                f"path {text!r} names no field: {part!r} is not in it",
                pointer=where,
                rule="governance",
                fix="give the dotted path of a field of this record, through records only",
            )
        node = found.type
    return tuple(text.split(".")), node


def _time_path(record: Record, text: object, where: str) -> Path:
    path, node = _path(record, text, f"{where}/event_time")
    logical = node.logical.name if isinstance(node, Primitive) and node.logical else None
    if logical not in ("timestamp-millis", "timestamp-micros"):
        raise SchemaError(
            f"event_time {text!r} is not a timestamp-millis or timestamp-micros",
            pointer=f"{where}/event_time",
            rule="governance",
            fix="point it at a non-null field of one of these logical types",
        )
    return path
