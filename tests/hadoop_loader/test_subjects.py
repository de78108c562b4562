"""Schemas from a real registry, by one listing or topic by topic."""

from __future__ import annotations

import itertools
import json
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from hadoop_loader._commit import registry_subjects
from hadoop_loader._commit.registry_subjects import RegistrySubjects, require_versions
from hadoop_loader._tasks.load_task import WriterSchema
from headworks._server import child_process
from headworks.errors import RefusedError
from headworks.registry_client import Reference, RegistryClient, SubjectVersion
from headworks.schema import subject_of
from tests.hadoop_loader.real import Stage
from tests.registry.conftest import start_registry

pytestmark = pytest.mark.e2e

_numbers = itertools.count()


class Counted(RegistryClient):
    """A client that remembers what it was asked."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked: list[str] = []

    def list_versions(self, prefix: str = "", **more: Any) -> list[SubjectVersion]:
        self.asked.append(f"list {prefix}" + " and deleted" * more.get("deleted", False))
        return super().list_versions(prefix, **more)

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        self.asked.append(subject + " and deleted" * deleted)
        return super().versions(subject, deleted=deleted)

    def version_numbers(self, prefix: str = "", **more: Any) -> dict[str, list[int]] | None:
        self.asked.append(f"numbers {prefix}" + " and deleted" * more.get("deleted", False))
        return super().version_numbers(prefix, **more)


class OfAnother(Counted):
    """A client of a registry such as Confluent's, which ignores the question for numbers."""

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        return super().ask(method, path.replace("&versions=true", ""), body)


@pytest.fixture(scope="module")
def own_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[child_process.Service]:
    """A registry of these tests alone: many subjects of others change what is asked."""
    with start_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def client(own_registry: child_process.Service) -> Counted:
    return Counted(own_registry.url)


def text(name: str, *fields: str, of: str = "int") -> str:
    return json.dumps(
        {
            "type": "record",
            "name": name,
            "fields": [{"name": field, "type": of, "default": 0} for field in fields],
        }
    )


def registered(client: RegistryClient, count: int) -> dict[str, tuple[WriterSchema, ...]]:
    """Topics of one, two or three versions; where there are three the second one is deleted."""
    found = {}
    stem = f"s{next(_numbers)}"
    for n in range(count):
        topic = f"{stem}.{n}"
        subject = subject_of(topic)
        for version in range(n % 3 + 1):
            client.register(subject, text("R", *"abc"[: version + 1], "nmo"[n % 3]))
        writers = [
            WriterSchema(one.id, one.version, client.schema_text(one.id))
            for one in client.history(subject)
        ]
        if n % 3 == 2:
            delete(client, subject, 2)
        found[topic] = tuple(writers)
    return found


def delete(client: RegistryClient, subject: str, version: int) -> None:
    url = f"{client.url}/subjects/{subject}/versions/{version}"
    with urllib.request.urlopen(urllib.request.Request(url, method="DELETE")) as answer:
        assert json.load(answer) == version


def asked(client: RegistryClient, *topics: str) -> dict[str, Sequence[WriterSchema]]:
    told = RegistrySubjects(client).versions(topics)
    return {topic: require_versions(topic, told) for topic in topics}


def test_one_listing_equals_a_request_per_topic(client: Counted) -> None:
    expected = registered(client, 40)
    absent = f"none{next(_numbers)}"
    client.asked.clear()
    found = asked(client, *expected, absent)
    assert found == expected | {absent: ()}
    numbers = [[writer.version for writer in writers] for writers in found.values()]
    assert numbers[:4] == [[1], [1, 2], [1, 2, 3], [1]]
    assert client.asked == ["list ", "list  and deleted", subject_of(absent)]

    for topic, writers in expected.items():
        assert RegistrySubjects(client).versions([topic]) == {topic: writers}


@pytest.mark.parametrize("kind", [Counted, OfAnother])
def test_versions_are_read_once_and_again_only_if_the_registry_has_others(
    own_registry: child_process.Service, kind: type[Counted]
) -> None:
    client = kind(own_registry.url)
    expected = registered(client, 12)
    subjects = RegistrySubjects(client)
    assert subjects.versions(expected) == expected
    client.asked.clear()
    again = subjects.versions(expected)
    assert again == expected
    singly = sorted(f"{subject_of(topic)} and deleted" for topic in expected)
    listing = ["list ", "numbers  and deleted"]
    assert client.asked[:2] == listing
    assert sorted(client.asked[2:]) == (singly if kind is OfAnother else [])
    client.asked.clear()
    assert subjects.versions(expected) == expected
    assert client.asked[:2] == (["list ", client.asked[1]] if kind is OfAnother else listing)
    assert len(client.asked) == (1 + len(singly) if kind is OfAnother else 2)

    changed, deleted, imported, gone, *_ = (topic for topic in expected if len(expected[topic]) > 1)
    client.register(subject_of(changed), text("R", *"abcd"))
    delete(client, subject_of(deleted), max(w.version for w in expected[deleted]))
    for version in client.versions(subject_of(gone)):
        delete(client, subject_of(gone), version)
    late = WriterSchema(10**6 + next(_numbers), 7, text("R", "z"))
    top = WriterSchema(10**6 + next(_numbers), 9, text("R", "y"))
    for one in (top, late):  # the lower number comes later, as it may from an import
        client.import_version(
            SubjectVersion(subject_of(imported), one.version, one.schema_id, one.text)
        )
        writers = require_versions(imported, subjects.versions(expected))
        assert writers[-1].version == 9
    assert {7, 9} <= {writer.version for writer in writers}
    found = subjects.versions(expected)
    assert found == RegistrySubjects(client).versions(expected)
    assert found[gone] == ()
    assert len(require_versions(changed, found)) == len(expected[changed]) + 1
    assert {*require_versions(deleted, found)} == {*expected[deleted]}
    assert require_versions(deleted, found)[-1] != expected[deleted][-1]


def test_a_lookup_of_one_topic_keeps_what_is_known_of_many(client: Counted) -> None:
    expected = registered(client, 12)
    subjects = RegistrySubjects(client)
    assert subjects.versions(expected) == expected
    one, *_ = expected
    assert subjects.versions([one]) == {one: expected[one]}
    client.asked.clear()
    assert subjects.versions(expected) == expected
    assert "list  and deleted" not in client.asked


def test_a_schema_with_references_is_complete_both_ways(client: Counted) -> None:
    base = subject_of(f"base{next(_numbers)}")
    client.register(base, text("geo.Place", "x"))
    user = f"user{next(_numbers)}"
    refers = json.dumps(
        {"type": "record", "name": "U", "fields": [{"name": "at", "type": "geo.Place"}]}
    )
    client.register(subject_of(user), refers, references=[Reference("geo.Place", base, 1)])
    others = registered(client, 10)
    many = asked(client, *others, user)[user]
    assert '"name":"x"' in many[0].text
    assert RegistrySubjects(client).versions([user])[user] == many


def test_a_registry_full_of_others_schemas_is_not_listed_for_a_few_topics(
    client: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = registered(client, 12)
    monkeypatch.setattr(registry_subjects, "_LISTED_VERSIONS_PER_TOPIC", 1)
    client.asked.clear()
    assert RegistrySubjects(client).versions(expected) == expected
    assert sorted(set(client.asked)) == sorted(
        [
            "list ",
            *map(subject_of, expected),
            *(f"list {subject_of(topic)} and deleted" for topic in expected),
        ]
    )


def test_a_registry_without_lists_is_asked_for_each_version(
    client: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = registered(client, 12)

    def refused(self: object, prefix: str = "", **_: object) -> list[SubjectVersion]:
        raise RefusedError("no such page", status=404, code=404)

    monkeypatch.setattr(Counted, "list_versions", refused)
    live = {topic: client.versions(subject_of(topic)) for topic in expected}
    found = asked(client, *expected)
    assert {topic: [w.version for w in writers] for topic, writers in found.items()} == live
    assert all({*found[topic]} <= {*expected[topic]} for topic in expected)


@pytest.mark.parametrize("listed", [[], [{"schema": '"int"'}]])
def test_deleted_versions_of_a_registry_that_lists_none_are_found(
    client: Counted, monkeypatch: pytest.MonkeyPatch, listed: list[Any]
) -> None:
    expected = registered(client, 12)
    request = Counted._request

    def unlisted(self: Counted, method: str, path: str, body: Any = None) -> Any:
        is_list = path.startswith("/schemas?")
        return [*listed] if is_list else request(self, method, path, body)

    monkeypatch.setattr(Counted, "_request", unlisted)
    assert asked(client, *expected) == expected


@pytest.mark.parametrize("status", [401, 403])
def test_a_forbidden_subject_is_reported_as_forbidden_and_not_as_ungoverned(
    client: Counted, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    expected = registered(client, 12)
    hidden, *_ = expected
    list_versions, versions = Counted.list_versions, Counted.versions

    def partly(self: Counted, prefix: str = "", **more: Any) -> list[SubjectVersion]:
        return [v for v in list_versions(self, prefix, **more) if v.subject != subject_of(hidden)]

    def guarded(self: Counted, subject: str, **_: object) -> list[int]:
        if subject == subject_of(hidden):
            raise RefusedError(f"may not read {subject}", status=status, code=status)
        return versions(self, subject)

    monkeypatch.setattr(Counted, "list_versions", partly)
    monkeypatch.setattr(Counted, "versions", guarded)
    told = RegistrySubjects(client).versions(expected)
    with pytest.raises(RefusedError, match=f"may not read {hidden}"):
        require_versions(hidden, told)
    del told[hidden], expected[hidden]
    assert told == expected


def test_what_a_deleted_version_wrote_is_loaded_in_the_latest_one(stage: Stage) -> None:
    topic = stage.topic("old")
    subject = subject_of(topic)
    stage.send(topic, 0, 1, 3)
    old = stage.registry.version(subject, 1)
    schema = json.loads(old.text)
    schema["fields"].append({"name": "more", "type": "int", "default": 7})
    stage.registry.register(subject, json.dumps(schema))
    delete(stage.registry, subject, 1)
    (loaded,) = stage.load().topics
    assert (loaded.rows, loaded.quarantined, loaded.schema_version) == (3, 0, 2)
    assert stage.rows(topic, "more") == [7, 7, 7]


def test_what_is_another_name_of_a_subject_has_that_ones_schemas(client: Counted) -> None:
    others = registered(client, 10)
    real = [*others][8]  # with a deleted version, too
    name, new = f"name{next(_numbers)}", f"new{next(_numbers)}"
    client.register(subject_of(name), text("Former", "x"))  # what it had of its own
    for alias in (name, new):
        client.ask("PUT", f"/config/{subject_of(alias)}", {"alias": subject_of(real)})
    topics = {*others, name, new}
    assert RegistrySubjects(client).versions(topics) == {
        **others,
        name: others[real],
        new: others[real],
    }
    for one in (name, new, real):
        assert RegistrySubjects(client).versions([one]) == {one: others[real]}


def test_what_other_subjects_refer_to_is_not_asked_for(
    client: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = subject_of(f"base{next(_numbers)}")
    client.register(base, text("geo.Place", "x"))
    refers = json.dumps(
        {"type": "record", "name": "U", "fields": [{"name": "at", "type": "geo.Place"}]}
    )
    client.register(f"no-topic-{base}", refers, references=[Reference("geo.Place", base, 1)])
    expected = registered(client, 12)
    monkeypatch.setattr(client, "schema_text", lambda *_: pytest.fail("a text was asked for"))
    assert RegistrySubjects(client).versions(expected) == expected


def test_a_recursive_schema_is_flat_if_the_operator_wants_it(client: Counted) -> None:
    topic = f"tree{next(_numbers)}"
    tree = '{"type":"record","name":"T","fields":[{"name":"t","type":["null","T"]}]}'
    client.set_compatibility(subject_of(topic), "BACKWARD", "strict")
    client.register(subject_of(topic), tree)
    ((kept,),) = asked(client, topic).values()
    assert (kept.recursive, '"null","T"' in kept.text.replace(" ", "")) == ("", True)
    (flat,) = require_versions(
        topic, RegistrySubjects(client, recursive_json=True).versions([topic])
    )
    assert json.loads(flat.text)["fields"][0]["type"] == ["null", "string"]
    assert flat.recursive == kept.text
