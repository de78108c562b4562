"""The impact of a change: the DDL of its table, and the consumers of its topic."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headworks._ci.formats import render
from headworks._ci.gate import check
from headworks._ci.verdict import Impact
from headworks._server.child_process import Service
from headworks.errors import UnreachableError
from tests.ci.conftest import ID, Work, event

pytestmark = pytest.mark.e2e

SCHEMAS = Path("schemas")
MAIN = ["git:main"]


def impact(work: Work, **more: Any) -> Impact:
    (found,) = [one.impact for one in check(SCHEMAS, MAIN, **more).subjects if one.impact]
    return found


def test_no_change_has_no_impact(work: Work) -> None:
    (subject,) = check(SCHEMAS, MAIN).subjects
    assert (subject.changed, subject.impact) == (False, None)


def test_a_new_column(work: Work) -> None:
    fare = {"name": "fare", "doc": "In $.", "type": ["null", "double"], "default": None}
    work.write("trips.avsc", event(ID, fare))
    assert impact(work).ddl == ("ALTER TABLE `trips` ADD COLUMNS (`fare` double COMMENT 'In $.')",)


def test_a_wider_column_and_a_new_member(work: Work) -> None:
    leg = {"type": "record", "name": "Leg", "fields": [{"name": "a", "type": "int"}]}
    work.git("checkout", "-q", "main")
    work.write("trips.avsc", event({"name": "n", "type": "int"}, {"name": "leg", "type": leg}))
    work.commit()
    work.git("checkout", "-q", "-b", "later")
    leg["fields"].append({"name": "b", "type": "string", "default": ""})  # type: ignore[attr-defined]
    work.write("trips.avsc", event({"name": "n", "type": "long"}, {"name": "leg", "type": leg}))
    assert impact(work).ddl == (
        "ALTER TABLE `trips` CHANGE COLUMN `n` `n` bigint COMMENT 'A field.'",
        "ALTER TABLE `trips` CHANGE COLUMN `leg` `leg` struct<`a`:int,`b`:string> "
        "COMMENT 'A field.'",
    )


def test_a_new_table_and_a_column_that_leaves(work: Work) -> None:
    work.write("stops.avsc", event(ID, topic="acme.Stops", name="Stop"))
    (statement,) = impact(work).ddl
    assert statement.startswith("CREATE EXTERNAL TABLE `acme_stops` (`id` bigint COMMENT")
    assert "`_offset` bigint" in statement
    (work.schemas / "stops.avsc").unlink()
    work.write("trips.avsc", event({"name": "other", "type": "int", "default": 0}))
    found = impact(work)
    assert found.ddl[0].startswith("ALTER TABLE `trips` ADD COLUMNS (`other` int")
    assert found.note is not None
    assert found.note.startswith("id: no longer in the view")


@pytest.mark.parametrize(
    ("type_", "words"),
    [
        (["null", "acme.Trip"], "contains itself"),
        ("string", "cannot change from bigint to string"),
    ],
)
def test_what_no_table_can_follow_is_said(work: Work, type_: object, words: str) -> None:
    work.write("trips.avsc", event({"name": "id", "type": type_}))
    found = impact(work)
    assert found.ddl == ()
    assert words in str(found.note)


def test_each_column_that_no_table_can_follow_is_named(work: Work) -> None:
    number = {"name": "number", "type": "int", "default": 0}
    work.git("checkout", "-q", "main")
    work.write("trips.avsc", event(ID, number))
    work.commit()
    work.git("checkout", "-q", "-b", "later")
    flag = {"name": "number", "type": "boolean", "default": False}
    work.write("trips.avsc", event({"name": "id", "type": "string"}, flag))
    note = str(impact(work).note)
    assert "column id cannot change from bigint to string" in note
    assert "column number cannot change from int to boolean" in note


def test_declared_consumers_and_the_owner_are_shown(work: Work) -> None:
    work.write(
        "governance.toml",
        '[default]\nconsumers = ["lake"]\n[subjects."trips-value"]\nconsumers = ["billing"]\n',
    )
    headworks = {"topic": "trips", "owner": "rides team"}
    fare = {"name": "fare", "type": "int", "default": 0}
    work.write("trips.avsc", event(ID, fare, headworks=headworks))
    found = impact(work)
    assert [one.name for one in found.consumers] == ["lake", "billing"]
    assert found.owner == "rides team"
    verdict = check(SCHEMAS, MAIN)
    text = render(verdict, "text")
    assert "table: ALTER TABLE `trips` ADD COLUMNS" in text
    assert "read by: lake (governance.toml), billing (governance.toml)" in text
    assert "owner: rides team" in text
    markdown = render(verdict, "markdown")
    assert "```sql\nALTER TABLE `trips` ADD COLUMNS" in markdown
    assert "Read by: lake (governance.toml), billing" in markdown
    value = json.loads(render(verdict, "json"))["subjects"][0]["impact"]
    assert value["table"] == "trips"
    assert value["consumers"][1] == {"name": "billing", "known_from": "governance.toml"}


def test_groups_of_a_live_broker_are_shown(
    work: Work, broker: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "gate.impact"
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, 1)])[topic].result()
    reader = Consumer(
        {"bootstrap.servers": broker.address, "group.id": "gate.fraud", "log_level": 0}
    )
    reader.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    reader.close()
    work.write("impact.avsc", event(ID, topic=topic, name="Impact"))
    found = impact(work, bootstrap=broker.address)
    assert [(one.name, one.known_from) for one in found.consumers] == [
        ("gate.fraud", f"broker {broker.address}")
    ]
    # As if the broker stopped between the list of the groups and their offsets.
    monkeypatch.setattr("headworks._ci.consumers._TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr("headworks._kafka.group_requests.committed_offsets", lambda *_: Future())
    with pytest.raises(UnreachableError, match=r"consumer groups: 1 s passed"):
        check(SCHEMAS, MAIN, bootstrap=broker.address)


def test_a_broker_that_was_asked_for_must_answer(work: Work) -> None:
    work.write("trips.avsc", event(ID, {"name": "x", "type": "int", "default": 0}))
    with pytest.raises(UnreachableError, match="consumer groups"):
        check(SCHEMAS, MAIN, bootstrap="127.0.0.1:9")


def test_the_gate_needs_neither_arrow_nor_spark() -> None:
    code = (
        "import sys, headworks._ci.gate, headworks._ci.lint\n"
        "import headworks._ci.formats, headworks._ci.deploy\n"
        "heavy = {'pyarrow', 'pyspark', 'numpy', 'pandas', 'fastapi', 'sqlalchemy', 'kio'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
