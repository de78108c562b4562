"""Sixty changes that public repositories made to their .avsc files, each judged by a person first.

The changes are from the histories of the alerts of the Rubin Observatory (lsst/alert_packet) and of
the sensor data of RADAR-base (RADAR-base/RADAR-Schemas). A row holds what a commit did to a schema,
and two verdicts that a person gave before any program did: whether a consumer with the new schema
reads the old data, and whether a consumer with the old schema reads the new data.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from headworks.compatibility import Level, Policy, Version, check_level
from headworks.schema import Schema, parse

pytestmark = pytest.mark.unit

Fields = list[dict[str, Any]]
MAYBE_FLOAT, MAYBE_DOUBLE = ["null", "float"], ["null", "double"]
MAYBE_STRING, MAYBE_BOOLEAN = ["null", "string"], ["null", "boolean"]


@dataclass(frozen=True)
class Change:
    """One change: the fields before and after, and the two verdicts."""

    where: str
    old: Fields
    new: Fields
    new_reads_old: bool
    old_reads_new: bool
    old_name: str = "acme.Event"
    new_name: str = "acme.Event"
    attributes: tuple[tuple[str, Any], ...] = ()  # of the new record

    def schemas(self) -> tuple[Schema, Schema]:
        return record(self.old_name, self.old), record(
            self.new_name, self.new, **dict(self.attributes)
        )


def record(name: str, fields: Fields, **attributes: Any) -> Schema:
    every = [{"name": "always", "type": "long"}, *fields]
    return parse(json.dumps({"type": "record", "name": name, "fields": every, **attributes}))


def field(name: str, type_: Any, *default: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **({"default": default[0]} if default else {}), **more}


def enum(name: str, symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": f"acme.{name}", "symbols": symbols.split(), **more}


def added(where: str, *given: Any, new: bool) -> Change:
    return Change(where, [], [field(*given)], new, old_reads_new=True)


def removed(where: str, *given: Any, old: bool) -> Change:
    return Change(where, [field(*given)], [], new_reads_old=True, old_reads_new=old)


def changed(
    where: str, before: dict[str, Any], after: dict[str, Any], *, new: bool, old: bool
) -> Change:
    return Change(where, [before], [after], new, old)


FORCED, ALERT, LIMIT = "lsst diaForcedSource", "lsst alert", "lsst diaNondetectionLimit"
BANK, PHONE, CLOCK = "radar banking", "radar phone", "radar external time"
PROTOCOL = "SNTP NTP"
RESULTS = "CONFIRMED CANCELLED EXIT UNKNOWN"
CALLS = "INCOMING OUTGOING MISSED UNKNOWN"

CHANGES = [
    # A rename without an alias is a removal and an addition.
    changed(f"{FORCED} 4-6", field("midPointTai", "double"), field("midpointMjdTai", "double"),
            new=False, old=False),
    changed(f"{FORCED} 4-6", field("filterName", "string"), field("band", MAYBE_STRING, None),
            new=True, old=False),
    changed(f"{FORCED} 4-6", field("psFlux", "float"), field("psfFlux", MAYBE_FLOAT, None),
            new=True, old=False),
    changed(f"{FORCED} 4-6", field("psFluxErr", "float"), field("psfFluxErr", MAYBE_FLOAT, None),
            new=True, old=False),
    removed(f"{FORCED} 4-6", "totFlux", "float", old=False),
    removed(f"{FORCED} 4-6", "totFluxErr", "float", old=False),
    added(f"{FORCED} 4-6", "x", MAYBE_FLOAT, None, new=True),
    added(f"{FORCED} 4-6", "y", MAYBE_FLOAT, None, new=True),
    added(f"{FORCED} 4-6", "flags", ["null", "long"], None, new=True),
    Change(f"{FORCED} 4-6, namespace", [], [], True, True, "v4.Source", "v6.Source"),
    changed(f"{FORCED} 4-6, doc", field("id", "long"), field("id", "long", doc="Unique id."),
            new=True, old=True),
    removed(f"{FORCED} 6-7", "ccdVisitId", "long", old=False),
    added(f"{FORCED} 6-7", "visit", "long", new=False),
    added(f"{FORCED} 6-7", "detector", "int", new=False),
    Change(f"{FORCED} 6-7, namespace", [], [], True, True, "v6_0.Source", "v7_0.Source"),
    added(f"{FORCED} 7.0-7.1", "ra", "double", new=False),
    added(f"{FORCED} 7.0-7.1", "dec", "double", new=False),
    removed(f"{FORCED} 7.0-7.1", "x", MAYBE_FLOAT, None, old=True),
    removed(f"{FORCED} 7.0-7.1", "y", MAYBE_FLOAT, None, old=True),
    removed(f"{FORCED} 7.0-7.1", "flags", ["null", "long"], None, old=True),
    changed(f"{FORCED} 7.0-7.1, doc", field("detector", "int", doc="a"),
            field("detector", "int", doc="b"), new=True, old=True),
    added(f"{FORCED} 7-10", "scienceFlux", MAYBE_FLOAT, None, new=True),
    added(f"{FORCED} 7-10", "scienceFluxErr", MAYBE_FLOAT, None, new=True),
    added(f"{FORCED} 7-10", "timeProcessedMjdTai", "double", new=False),
    added(f"{FORCED} 7-10", "timeWithdrawnMjdTai", MAYBE_DOUBLE, None, new=True),
    changed(f"{FORCED} 7-10, unit in the doc", field("psfFlux", MAYBE_FLOAT, None, doc="flux"),
            field("psfFlux", MAYBE_FLOAT, None, doc="flux [nJy]"), new=True, old=True),
    Change(f"{FORCED} 10-11, attribute", [], [], True, True,
           attributes=(("confluent:version", 1101),)),
    added(f"{ALERT} 3-7", "cutoutScience", ["null", "bytes"], None, new=True),
    Change(f"{ALERT} 3-7, doc", [], [], True, True, attributes=(("doc", "version 7"),)),
    removed(f"{ALERT} 7-10", "alertId", "long", old=False),
    added(f"{ALERT} 7-10", "diaSourceId", "long", new=False),
    added(f"{ALERT} 7-10", "observation_reason", MAYBE_STRING, None, new=True),
    added(f"{ALERT} 7-10", "target_name", MAYBE_STRING, None, new=True),
    removed(f"{ALERT} 7-10", "prvDiaNondetectionLimits",
            ["null", {"type": "array", "items": "double"}], None, old=True),
    added(f"{ALERT} 7-10", "ssSource",
          ["null", {"type": "record", "name": "acme.Source", "fields": [field("a", "long")]}],
          None, new=True),
    added(f"{ALERT} 7-10", "mpc_orbits",
          ["null", {"type": "record", "name": "acme.Orbit", "fields": [field("e", "double")]}],
          None, new=True),
    changed(f"{LIMIT} 3-6", field("midPointTai", "double"), field("midpointMjdTai", "double"),
            new=False, old=False),
    changed(f"{LIMIT} 3-6", field("filterName", "string"), field("band", "string"),
            new=False, old=False),
    Change(f"{LIMIT} 6.1-7.1, namespace", [], [], True, True, "v6_1.Limit", "v7_1.Limit"),
    changed(CLOCK, field("externalTime", "double", "NaN"), field("externalTime", "double"),
            new=True, old=True),
    changed(f"{CLOCK}, symbol", field("protocol", enum("Protocol", PROTOCOL), "SNTP"),
            field("protocol", enum("Protocol", f"{PROTOCOL} UNKNOWN"), "SNTP"),
            new=True, old=False),
    changed(f"{CLOCK}, default", field("protocol", enum("Protocol", f"{PROTOCOL} OTHER"), "SNTP"),
            field("protocol", enum("Protocol", f"{PROTOCOL} OTHER"), "OTHER"),
            new=True, old=True),
    changed(CLOCK, field("delay", "double", "NaN"), field("delay", MAYBE_DOUBLE, None),
            new=True, old=False),
    changed("radar unit", field("unit", enum("Unit", "beats_per_min")),
            field("unit", enum("Unit", "beats_per_min g")), new=True, old=False),
    changed("radar unit, capitals", field("unit", enum("Unit", "beats_per_min g")),
            field("unit", enum("Unit", "BEATS_PER_MIN G UNKNOWN")), new=False, old=False),
    changed(f"{BANK}, default of the enum",
            field("result", enum("Result", RESULTS), "UNKNOWN"),
            field("result", enum("Result", RESULTS, default="UNKNOWN")), new=True, old=True),
    Change(f"{BANK}, record renamed", [], [], False, False, "acme.Event", "acme.BankingEvent"),
    removed(BANK, "uid", "string", old=False),
    changed(BANK, field("startTime", "double"), field("time", "double"), new=False, old=False),
    changed(BANK, field("correctness", enum("Correctness", "CORRECT WRONG")),
            field("isCorrect", "boolean"), new=False, old=False),
    changed(f"{BANK}, enum renamed", field("inputType", enum("InputEnum", "PIN AMOUNT")),
            field("inputType", enum("InputTypeValue", "PIN AMOUNT UNKNOWN", default="UNKNOWN")),
            new=False, old=False),
    changed(BANK, field("attemptId", "string"), field("TransactionId", "string"),
            new=False, old=False),
    changed(BANK, field("isCorrect", "boolean"), field("isCorrect", MAYBE_BOOLEAN, None),
            new=True, old=False),
    changed(BANK, field("inputType", enum("InputType", "PIN AMOUNT")),
            field("eventType", enum("EventType", "PIN AMOUNT UNKNOWN"), "UNKNOWN"),
            new=True, old=False),
    added(f"{PHONE} battery", "isPlugged", "boolean", new=False),
    added(f"{PHONE} battery", "status", enum("Status", "FULL UNKNOWN"), "UNKNOWN", new=True),
    changed(f"{PHONE} sms", field("length", "int", -1), field("length", ["null", "int"], None),
            new=True, old=False),
    added(f"{PHONE} sms", "targetIsContact", MAYBE_BOOLEAN, None, new=True),
    changed(f"{PHONE} call", field("duration", "float", "NaN"),
            field("duration", MAYBE_FLOAT, None), new=True, old=False),
    changed(f"{PHONE} call, doc of the enum", field("type", enum("Type", CALLS), "UNKNOWN"),
            field("type", enum("Type", CALLS, doc="The kind."), "UNKNOWN"), new=True, old=True),
]  # fmt: skip


def test_there_are_sixty() -> None:
    assert len(CHANGES) == 60


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.where)
def test_the_verdict_is_that_of_the_person(change: Change) -> None:
    old, new = change.schemas()

    def passes(level: Level) -> bool:
        return not check_level(new, [Version(1, old)], level, Policy.AVRO)

    found = passes(Level.BACKWARD), passes(Level.FORWARD), passes(Level.FULL)
    both = change.new_reads_old and change.old_reads_new
    assert found == (change.new_reads_old, change.old_reads_new, both)
