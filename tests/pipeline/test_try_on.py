"""A change is tried on the messages of its topic: what it cannot read is named by its place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer as PlainProducer
from typer.testing import CliRunner

from hadoop_loader._fetch.ranges import FetchRange, Watermarks
from headworks._ci.formats import FORMATS, render
from headworks._ci.gate import check
from headworks._ci.trial import MessageTrials, newest_ranges
from headworks._ci.verdict import Verdict
from headworks._cli.schema import schema_app
from headworks._server.child_process import Service
from headworks._wire import prefix
from headworks.registry_client import RegistryClient
from producer_sdk import Producer
from tests.pipeline.conftest import V1_FIELDS, V2_FIELDS, Topic, schema_text

pytestmark = pytest.mark.e2e

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
NONE = '[default]\ncompatibility = "NONE"\n'
# A union of two records has no column, so no table can follow it.
UNION: dict[str, Any] = {
    "name": "either",
    "type": [
        "string",
        {"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}]},
        {"type": "record", "name": "B", "fields": [{"name": "b", "type": "int"}]},
    ],
    "default": "",
}


@pytest.mark.unit
def test_the_newest_messages_are_spread_over_the_partitions() -> None:
    marks = {0: Watermarks(5, 10), 1: Watermarks(0, 100), 2: Watermarks(7, 7)}
    assert newest_ranges("t", marks, 40) == [FetchRange("t", 0, 5, 10), FetchRange("t", 1, 65, 100)]
    assert newest_ranges("t", marks, 2) == [FetchRange("t", 0, 9, 10), FetchRange("t", 1, 99, 100)]
    assert sum(one.size for one in newest_ranges("t", marks, 1_000)) == 105
    assert newest_ranges("t", {}, 5) == []


@pytest.fixture
def tried(
    topic: Topic,
    producer: Callable[..., Producer],
    broker: Service,
    registry: Service,
    tmp_path: Path,
) -> Callable[..., Verdict]:
    """Checks a schema on the messages of a topic: 3 of version 1, 4 of version 2, 2 bad ones."""
    with producer() as sending:
        for cls, messages in ((topic.v1.Click, 3), (topic.v2.Click, 4)):
            for number in range(messages):
                assert sending.send(cls(user=f"{number}", at=AT, count=number))
    known = RegistryClient(registry.url).latest(f"{topic.name}-value")
    assert known is not None
    plain = PlainProducer({"bootstrap.servers": broker.address})
    for value in (b"no schema id", prefix(known.id) + b"\xff", None):
        plain.produce(topic.name, value, b"key")
    assert plain.flush(60) == 0

    def check_it(fields: list[dict[str, Any]], most: int = 100_000) -> Verdict:
        folder = tmp_path / "proposed"
        folder.mkdir(exist_ok=True)
        (folder / "click.avsc").write_text(schema_text(topic.name, fields), encoding="utf-8")
        (folder / "governance.toml").write_text(NONE, encoding="utf-8")
        RegistryClient(registry.url).set_compatibility(f"{topic.name}-value", "NONE")
        trials = MessageTrials(broker.address, RegistryClient(registry.url), most)
        return check(folder, [f"registry:{registry.url}"], try_on=trials)

    return check_it


def test_what_the_schema_cannot_read_is_named(tried: Callable[..., Verdict], topic: Topic) -> None:
    doc = {"name": "user", "type": "string", "doc": "Who."}
    fine = tried([doc, *V2_FIELDS[1:]])
    assert not [one for one in fine.findings if one.finding.rule == "HW304"]
    [note] = [one for one in fine.subjects[0].notes if one.startswith("tried")]
    told = "all can be read, 2 could not before either"
    assert note == f"tried on the newest 9 messages of {topic.name}: {told}"
    broken = tried([doc, *V1_FIELDS[1:]])  # the old field type: version 2 wrote longs
    assert broken.refused
    [finding] = broken.findings
    assert finding.finding.rule == "HW304"
    assert "cannot read 4 of the newest 9" in finding.finding.message
    assert finding.finding.message.count(":") >= 4  # four places
    for form in FORMATS:
        assert "HW304" in render(broken, form)


def test_messages_of_each_schema_are_told_in_every_format(tried: Callable[..., Verdict]) -> None:
    broken = tried([{"name": "user", "type": "long"}, *V2_FIELDS[1:]])
    assert len([one for one in broken.findings if one.finding.rule == "HW304"]) == 2
    for form in FORMATS:
        told = render(broken, form)
        assert all(f"cannot read {count} of the newest 9" in told for count in (3, 4)), form


def test_a_schema_without_a_table_is_tried_as_well(tried: Callable[..., Verdict]) -> None:
    fine = tried([*V2_FIELDS, UNION])
    assert any("all can be read, 2 could not" in note for note in fine.subjects[0].notes)
    [finding] = tried([*V1_FIELDS, UNION]).findings
    assert "cannot read 4 of the newest 9" in finding.finding.message


def test_only_as_many_as_asked_for_are_read(tried: Callable[..., Verdict]) -> None:
    [note] = [one for one in tried(V1_FIELDS[:2], 1).subjects[0].notes if "tried" in one]
    assert "newest 1 messages" in note or "no message" in note  # the newest may be the tombstone


def test_the_registry_of_the_baseline_has_the_schemas_of_the_messages(
    tried: Callable[..., Verdict],
    topic: Topic,
    broker: Service,
    registry: Service,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried(V2_FIELDS)
    folder = tmp_path / "proposed"
    (folder / "click.avsc").write_text(schema_text(topic.name, V1_FIELDS), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWORKS_REGISTRY", "http://127.0.0.1:1")  # where none is
    asked = ["check", "proposed", "--against", f"registry:{registry.url}", "--usage", "none"]
    asked += ["--try-on", "100", "--bootstrap", broker.address]
    done = CliRunner().invoke(schema_app, asked, catch_exceptions=False)
    assert done.exit_code == 1
    assert "HW304" in done.output
