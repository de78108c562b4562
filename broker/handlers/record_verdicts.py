"""The verdict on each record of a batch: key, schema id, and with `payload` the bytes behind it.

Rules: pure, but for the cache of schema ids, which it only reads. A record has one reason, the
first that is found: its number, then its key, then its value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from headworks import _wire
from headworks._broker.handlers.framed_records import (
    NO_FRAME,
    NO_VALUE,
    FramedParts,
    FramedRecords,
)
from headworks._broker.topics import SchemaValidation, TopicConfig
from headworks._broker.topics.schema_ids import (
    ANY_ID,
    SchemaIdCache,
    SchemaIdStatus,
    SubjectSchemaId,
)
from headworks.errors import HeadworksError

MAX_NAMED_RECORDS: Final = 100
"""Of these at most, an error says what is wrong."""

_KEYLESS = "it has no key, and the topic is compacted by key: give every message a key"


@dataclass(slots=True)
class RecordVerdicts:
    """The faults, by number of the record, and the questions that the cache cannot answer."""

    bad: dict[int, str] = field(default_factory=dict)
    not_cached: list[SubjectSchemaId] = field(default_factory=list)
    unreachable: list[SubjectSchemaId] = field(default_factory=list)

    @property
    def unsure(self) -> list[SubjectSchemaId]:
        """The questions without an answer."""
        return self.not_cached + self.unreachable

    def add(self, numbers: Iterable[int], reason: str) -> None:
        """Note records with the same thing wrong."""
        for number in numbers:
            self.bad.setdefault(number, reason)


def judge_records(
    topic: str,
    config: TopicConfig,
    records: FramedRecords,
    ids: SchemaIdCache | None,
    *,
    most: int = MAX_NAMED_RECORDS,
) -> RecordVerdicts:
    """Return the verdicts; without `ids`, those on schema ids are left out.

    Bad bytes are explained in `most` records of a schema id, and not looked for in the others.
    """
    verdicts = RecordVerdicts()
    for number, said in records.misnumbered:
        verdicts.add([number], f"it says that it is number {said}")
    if config.compacted:
        verdicts.add(records.keys.with_id(NO_VALUE), _KEYLESS)
    if ids is None or config.schema_validation is SchemaValidation.OFF:
        return verdicts
    payload = config.schema_validation is SchemaValidation.PAYLOAD
    judge = _Judge(ids, verdicts, payload=payload, most=most)
    if judge.payload and judge.has_subject(f"{topic}-key", records.keys):
        judge.parts("key", f"{topic}-key", records.keys)
    judge.parts("value", f"{topic}-value", records.values)
    return verdicts


@dataclass(slots=True)
class _Judge:
    ids: SchemaIdCache
    verdicts: RecordVerdicts
    payload: bool
    most: int

    def has_subject(self, subject: str, keys: FramedParts) -> bool:
        """Return whether the keys are governed; without keys, nobody asks."""
        if not keys.distinct_ids():
            return False
        return self._knows(SubjectSchemaId(subject, ANY_ID)) is SchemaIdStatus.KNOWN

    def parts(self, what: str, subject: str, parts: FramedParts) -> None:
        """Judge the keys or the values of a batch."""
        for schema_id in parts.distinct_ids():
            if schema_id == NO_FRAME:
                for number in parts.with_id(NO_FRAME):
                    self.verdicts.add([number], _unframed(what, parts.datum(number)))
                continue
            status = self._knows(SubjectSchemaId(subject, schema_id, self.payload))
            if status is SchemaIdStatus.UNKNOWN:
                reason = (
                    f"schema id {schema_id} is not registered in subject {subject} at"
                    f" {self.ids.url}; register the schema there (`headworks schema register`),"
                    " then produce"
                )
                self.verdicts.add(parts.with_id(schema_id), reason)
            elif status is SchemaIdStatus.KNOWN and self.payload:
                self._data(what, subject, schema_id, parts)

    def _data(self, what: str, subject: str, schema_id: int, parts: FramedParts) -> None:
        check = self.ids.check(schema_id)
        named = f"schema id {schema_id} of subject {subject}"
        if isinstance(check, HeadworksError):
            reason = f"its data cannot be checked: {named}: {check.message}"
            self.verdicts.add(parts.with_id(schema_id), reason)
            return
        for number, bad in check.find_bad(parts.data, parts.ids, parts.spans, schema_id, self.most):
            in_field = f", in field {bad.short_field}" if bad.field else ""
            place = f"byte {bad.byte + _wire.HEADER_SIZE} of the {what}{in_field}"
            reason = (
                f"its {what} is no datum of {named}: {place}: {bad.reason};"
                " encode it with exactly the schema of this id"
            )
            self.verdicts.add([number], reason)

    def _knows(self, wanted: SubjectSchemaId) -> SchemaIdStatus:
        status = self.ids.status(wanted)
        if status is SchemaIdStatus.NOT_CACHED:
            self.verdicts.not_cached.append(wanted)
        elif status is SchemaIdStatus.UNREACHABLE:
            self.verdicts.unreachable.append(wanted)
        return status


def _unframed(what: str, part: bytes) -> str:
    try:
        _wire.unframe(part)
    except _wire.FramingError as error:
        reason = f"{error.message}; {error.fix}"
        return reason if what == "value" else f"its {what} has no schema id: {reason}"
    raise AssertionError("a part with a frame was taken for one without")
