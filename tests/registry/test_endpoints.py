"""The interface row by row: every endpoint with each of its parameters, on every kind of store.

A row is a request and what its answer must be: an error code, or a predicate on the body. All rows
look at one scene, which none of them changes; what changes something has a subject of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from headworks._server import child_process
from tests.registry.rest import V1, Reply, Rest, fresh, record, text_of

pytestmark = pytest.mark.e2e

ADDRESS = record("street:string", name="Address", namespace="geo")
USER = record("home:geo.Address", name="User")
SIMPLE = record("id:long")
TAGGED = record("id:long")
TAGGED["fields"] = [{"name": "id", "type": "long", "confluent:tags": ["PII", "KEY"]}]
WIDER = record("id:long", 'note:string=""')
BROKEN = record("id:long", "note:string")
RULES = {"domainRules": [{"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL"}]}
OWNED = {"properties": {"owner": "web", "team": "a b", "of": "the scene"}}
RESOLVED = {**USER, "fields": [{"name": "home", "type": ADDRESS}]}

Expected = int | Callable[[Any], bool]


class Scene:
    """Subjects under one stem, as the rows expect them."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest
        self.stem = fresh("scene")
        self.names = {
            name: f"{self.stem}.{name}" for name in ("s", "base", "user", "gone", "other", "tags")
        }
        self.context = f".{self.stem}"
        self.ids: dict[str, Any] = {}
        self._build()

    def _build(self) -> None:
        def made(name: str, schema: object, **members: Any) -> dict[str, Any]:
            reply = self.rest.register(self.names.get(name, name), schema, **members)
            assert reply.status == 200, reply.body
            return dict(reply.body)

        first = made("s", SIMPLE, metadata=OWNED, ruleSet=RULES)
        second = made("s", WIDER, metadata={"properties": {"owner": "ops", "of": self.stem}})
        made("s", record("id:long", "more:int=0"))
        self.rest("DELETE", f"/subjects/{self.names['s']}/versions/3")
        made("base", ADDRESS)
        uses = [{"name": "geo.Address", "subject": self.names["base"], "version": 1}]
        user = made("user", USER, references=uses)
        made("gone", record("a:int"))
        self.rest("DELETE", f"/subjects/{self.names['gone']}")
        self.rest("PUT", f"/config/{self.names['other']}", {"alias": self.names["s"]})
        tagged = made("tags", TAGGED)
        inner = f":{self.context}:"
        made(f"{inner}base", ADDRESS)
        near = [{"name": "geo.Address", "subject": "base", "version": 1}]
        far = made(f"{inner}{self.stem}.far", USER, references=near)
        self.ids = {
            "id1": first["id"],
            "id2": second["id"],
            "guid1": first["guid"],
            "user_id": user["id"],
            "far_id": far["id"],
            "tagged_id": tagged["id"],
        }

    def ask(self, method: str, path: str, body: object) -> Reply:
        words = {**self.names, **self.ids, "stem": self.stem, "ctx": self.context}
        return self.rest(method, path.format_map(words), body)


@pytest.fixture(scope="session")
def scene(shared: child_process.Service) -> Iterator[Scene]:
    rest = Rest(shared.url)
    yield Scene(rest)
    rest.close()


def names(*expected: str) -> Callable[[Any], bool]:
    return lambda body: [name.rpartition(".")[2] for name in body] == list(expected)


def versions(*expected: int) -> Callable[[Any], bool]:
    return lambda body: [one["version"] for one in body] == list(expected)


def equals(expected: object) -> Callable[[Any], bool]:
    return lambda body: bool(body == expected)


def has(**members: object) -> Callable[[Any], bool]:
    return lambda body: all(body.get(name) == value for name, value in members.items())


def lacks(*members: str) -> Callable[[Any], bool]:
    return lambda body: not any(name in body for name in members)


def is_whole_version(body: Any) -> bool:
    return set(body) == {
        *("subject", "version", "id", "guid", "schemaType", "schema", "metadata", "ruleSet", "ts")
    }


def is_resolved(body: Any) -> bool:
    return '"name":"street"' in body["schema"] and "references" not in body


def tags_are(*expected: str) -> Callable[[Any], bool]:
    def check(body: Any) -> bool:
        return bool(
            body["schemaTags"]
            == [
                {
                    "schemaEntity": {"entityPath": "Event.id", "entityType": "sr_field"},
                    "tags": list(expected),
                }
            ]
        )

    return check


READS: list[tuple[str, Expected]] = [
    ("/", equals({})),
    # /subjects
    ("/subjects?subjectPrefix={stem}", names("base", "s", "tags", "user")),
    ("/subjects?subjectPrefix=:*:{stem}", names("base", "s", "tags", "user", "far")),
    ("/subjects?subjectPrefix=:{ctx}:{stem}", lambda body: len(body) == 1),
    ("/subjects?subject_prefix={stem}&offset=1&limit=2", names("s", "tags")),
    ("/subjects?subjectPrefix={stem}&offset=-5&limit=0", names("base", "s", "tags", "user")),
    ("/subjects?subjectPrefix={stem}&offset=99", names()),
    ("/subjects?subjectPrefix={stem}&deleted=true", names("base", "gone", "s", "tags", "user")),
    ("/subjects?subjectPrefix={stem}&deletedOnly=True&deleted=true", names("gone")),
    ("/subjects?subjectPrefix={stem}&deleted_only=true", names("gone")),
    ("/subjects?subjectPrefix={stem}&deleted=nonsense", names("base", "s", "tags", "user")),
    (
        "/subjects?subjectPrefix={stem}&versions=true&offset=1&limit=1",
        lambda body: [sorted(one) for one in body] == [["subject", "versions"]]
        and body[0]["versions"] == [1, 2],
    ),
    (
        "/subjects?subjectPrefix={stem}&versions=true&deleted=true",
        lambda body: [one["versions"] for one in body][:3] == [[1], [1], [1, 2, 3]],
    ),
    (
        "/subjects?subjectPrefix={stem}&versions=true&deletedOnly=true",
        lambda body: [one["versions"] for one in body] == [[1]],
    ),
    ("/subjects?subjectPrefix={stem}&versions=true&offset=99", equals([])),
    ("/subjects?limit=x", 422),
    ("/subjects?subjectPrefix=%00", 42208),
    # /subjects/{s}/versions
    ("/subjects/{s}/versions", equals([1, 2])),
    ("/subjects/{other}/versions", equals([1, 2])),
    ("/subjects/{s}/versions?deleted=true", equals([1, 2, 3])),
    ("/subjects/{s}/versions?deletedOnly=true", equals([3])),
    ("/subjects/{s}/versions?deletedAsNegative=true", equals([1, 2, -3])),
    ("/subjects/{s}/versions?offset=1&limit=1", equals([2])),
    ("/subjects/{gone}/versions", 40401),
    ("/subjects/{gone}/versions?deleted=true", equals([1])),
    ("/subjects/{user}/versions?deletedOnly=true", 40401),
    ("/subjects/{stem}.none/versions", 40401),
    # /subjects/{s}/versions/{v}
    ("/subjects/{s}/versions/1", is_whole_version),
    ("/subjects/{s}/versions/1", has(version=1, schemaType="AVRO", metadata=OWNED, ruleSet=RULES)),
    ("/subjects/{s}/versions/latest", has(version=2)),
    ("/subjects/{s}/versions/-1", has(version=2)),
    ("/subjects/{other}/versions/latest", has(version=2)),
    ("/subjects/{s}/versions/3", 40402),
    ("/subjects/{s}/versions/3?deleted=true", has(version=3, deleted=True)),
    ("/subjects/{s}/versions/1", lacks("deleted", "references", "schemaTags")),
    ("/subjects/{s}/versions/4", 40402),
    ("/subjects/{s}/versions/0", 42202),
    ("/subjects/{s}/versions/-2", 42202),
    ("/subjects/{s}/versions/first", 42202),
    ("/subjects/{gone}/versions/1", 40401),
    ("/subjects/{gone}/versions/latest", 40401),
    ("/subjects/{gone}/versions/latest?deleted=true", 40402),
    ("/subjects/{stem}.none/versions/latest", 40401),
    ("/subjects/{stem}.far/versions/1", lambda body: body["subject"].startswith(":.")),
    ("/subjects/{stem}.far/versions/latest", has(version=1)),
    ("/subjects/:.:{stem}.far/versions/1", 40401),
    ("/subjects/{user}/versions/1?format=resolved", is_resolved),
    ("/subjects/{user}/versions/1?format=RESOLVED", is_resolved),
    ("/subjects/{user}/versions/1?format=unheard", lambda body: len(body["references"]) == 1),
    ("/subjects/{user}/versions/1", lambda body: body["references"][0]["version"] == 1),
    (
        "/subjects/:{ctx}:{stem}.far/versions/1?referenceFormat=qualified",
        lambda body: body["references"][0]["subject"].startswith(":."),
    ),
    (
        "/subjects/:{ctx}:{stem}.far/versions/1?reference_format=default",
        lambda body: body["references"][0]["subject"] == "base",
    ),
    ("/subjects/{tags}/versions/1?findTags=PII", tags_are("PII", "KEY")),
    ("/subjects/{tags}/versions/1?findTags=*", tags_are("PII", "KEY")),
    ("/subjects/{tags}/versions/1?findTags=x&findTags=KEY", tags_are("PII", "KEY")),
    ("/subjects/{tags}/versions/1?findTags=OTHER", lacks("schemaTags")),
    # .../schema
    ("/subjects/{s}/versions/1/schema", equals(SIMPLE)),
    ("/subjects/{s}/versions/3/schema", 40402),
    ("/subjects/{s}/versions/3/schema?deleted=true", has(name="Event")),
    ("/subjects/{user}/versions/1/schema?format=resolved", equals(RESOLVED)),
    ("/subjects/{s}/versions/x/schema", 42202),
    ("/subjects/{stem}.none/versions/1/schema", 40401),
    # .../referencedby
    ("/subjects/{base}/versions/1/referencedby", lambda body: len(body) == 1),
    ("/subjects/{base}/versions/latest/referencedby?offset=1", equals([])),
    ("/subjects/{base}/versions/1/referencedby?deleted=true&limit=1", lambda b: len(b) == 1),
    ("/subjects/{user}/versions/1/referencedby", equals([])),
    ("/subjects/{base}/versions/2/referencedby", 40402),
    ("/subjects/{base}/versions/x/referencedby", 42202),
    ("/subjects/{stem}.none/versions/1/referencedby", 40401),
    # .../metadata
    ("/subjects/{s}/metadata?key=owner&value=web", has(version=1)),
    ("/subjects/{s}/metadata?key=owner&value=web&key=team&value=a%2520b", has(version=1)),
    ("/subjects/{s}/metadata?key=owner&value=web&format=resolved", has(version=1)),
    ("/subjects/{s}/metadata", has(version=2)),
    ("/subjects/{s}/metadata?deleted=true", has(version=3)),
    ("/subjects/{s}/metadata?key=owner&value=none", 40403),
    ("/subjects/{s}/metadata?key=owner", 400),
    ("/subjects/{stem}.none/metadata?key=a&value=b", 40401),
    # /schemas
    ("/schemas?subjectPrefix={stem}.s", versions(1, 2)),
    ("/schemas?subjectPrefix={stem}.s&deleted=true", versions(1, 2, 3)),
    ("/schemas?subjectPrefix={stem}.s&latestOnly=true", versions(2)),
    ("/schemas?subjectPrefix={stem}.s&latest_only=true&deleted=true", versions(3)),
    ("/schemas?subjectPrefix={stem}.s&ruleType=CEL", versions(1, 2)),
    ("/schemas?subjectPrefix={stem}.s&ruleType=OTHER", versions()),
    ("/schemas?subjectPrefix={stem}.s&offset=1&limit=1", versions(2)),
    ("/schemas?subjectPrefix={stem}.s&limit=0", versions(1, 2)),
    ("/schemas?subjectPrefix={stem}.s&limit=100000", versions(1, 2)),
    ("/schemas?subjectPrefix={stem}.s&resourceType=topic", equals([])),
    ("/schemas?subjectPrefix={stem}.s&associationType=value", equals([])),
    ("/schemas?subjectPrefix={stem}.s&lifecycle=STRONG", equals([])),
    ("/schemas?subjectPrefix={stem}.other", versions()),
    (
        "/schemas?subjectPrefix={stem}.other&aliases=true",
        lambda body: [(one["version"], len(one["aliases"])) for one in body] == [(1, 1), (2, 1)],
    ),
    ("/schemas?subjectPrefix=:*:{stem}.far", versions(1)),
    ("/schemas/types", equals(["AVRO"])),
    # /schemas/ids
    ("/schemas/ids/{id1}", has(metadata=OWNED, ruleSet=RULES, schemaType="AVRO")),
    ("/schemas/ids/{id1}", lacks("subject", "version", "id", "maxId", "deleted")),
    ("/schemas/ids/{id1}?subject={s}", has(version=1)),
    ("/schemas/ids/{id1}?subject={user}", lacks("version")),
    ("/schemas/ids/{id1}?fetchMaxId=true", lambda body: body["maxId"] >= 1),
    ("/schemas/ids/{user_id}?format=resolved", is_resolved),
    ("/schemas/ids/{far_id}?subject=:{ctx}:", has(schemaType="AVRO")),
    (
        "/schemas/ids/{far_id}?subject=:{ctx}:{stem}.far&referenceFormat=qualified",
        lambda body: body["references"][0]["subject"].startswith(":."),
    ),
    ("/schemas/ids/{far_id}?subject={stem}.far", lambda body: body["subject"].startswith(":.")),
    ("/schemas/ids/{tagged_id}?findTags=*", tags_are("PII", "KEY")),
    ("/schemas/ids/2147483647", 40403),
    ("/schemas/ids/-1", 40403),
    ("/schemas/ids/{id1}?subject=:.{stem}.none:", 40403),
    ("/schemas/ids/{id1}/schema", equals(SIMPLE)),
    ("/schemas/ids/{user_id}/schema?format=resolved", equals(RESOLVED)),
    ("/schemas/ids/2147483647/schema", 40403),
    ("/schemas/ids/{id1}/subjects", lambda body: len(body) == 1),
    ("/schemas/ids/{id1}/subjects?subject={s}&offset=1&limit=1", equals([])),
    ("/schemas/ids/2147483647/subjects", 40403),
    ("/schemas/ids/{id2}/versions", lambda body: body[0]["version"] == 2 and len(body) == 1),
    ("/schemas/ids/{id2}/versions?deleted=true&offset=1", equals([])),
    ("/schemas/ids/2147483647/versions", 40403),
    ("/schemas/guids/{guid1}", has(schemaType="AVRO", metadata=OWNED)),
    ("/schemas/guids/{guid1}", lacks("subject", "version")),
    ("/schemas/guids/none", 40403),
    ("/schemas/guids/{guid1}/ids", lambda body: [one["context"] for one in body] == ["."]),
    ("/schemas/guids/none/ids", 40403),
    # settings
    ("/config", equals({"compatibilityLevel": "BACKWARD_TRANSITIVE"})),
    ("/config?defaultToGlobal=true", equals({"compatibilityLevel": "BACKWARD_TRANSITIVE"})),
    ("/config/{s}", 40408),
    ("/config/{s}?defaultToGlobal=true", has(compatibilityLevel="BACKWARD_TRANSITIVE")),
    ("/config/{stem}.none?defaultToGlobal=True", has(compatibilityLevel="BACKWARD_TRANSITIVE")),
    ("/mode", equals({"mode": "READWRITE"})),
    ("/mode/{s}", 40409),
    ("/mode/{s}?defaultToGlobal=true", equals({"mode": "READWRITE"})),
    # surroundings
    ("/contexts?contextPrefix={ctx}", lambda body: len(body) == 1),
    ("/contexts?offset=0&limit=1", equals(["."])),
    ("/v1/metadata/id", lambda body: "schema-registry-cluster" in body["scope"]["clusters"]),
    ("/v1/metadata/version", lambda body: set(body) == {"version", "commitId"}),
    ("/v1/metadata/deployment", equals({"attributes": {}})),
    ("/associations/resources/-/t?resourceType=topic&associationType=value", equals([])),
    ("/associations/subjects/{s}?lifecycle=WEAK", equals([])),
    ("/subjects/{s}/diff/1/2", lambda body: body["differences"][0]["path"] == "note"),
    ("/subjects/{s}/diff/3/latest", has(**{"from": 3, "to": 2})),
    ("/subjects/{s}/diff/1/9", 40402),
    ("/subjects/{stem}.none/diff/1/2", 40401),
    ("/subjects/{s}/diff/x/2", 42202),
    ("/audit?subject={s}", lambda body: [one["version"] for one in body] == [1, 2, 3, 3]),
]  # fmt: skip


@pytest.mark.parametrize(("path", "expected"), READS)
def test_a_read(scene: Scene, path: str, expected: Expected) -> None:
    reply = scene.ask("GET", path, None)
    _must_be(reply, expected)


COMPATIBILITY = "/compatibility/subjects/{s}/versions"
QUESTIONS: list[tuple[str, object, Expected]] = [
    # look up
    ("/subjects/{s}", SIMPLE, has(version=1)),
    ("/subjects/{s}", WIDER, has(version=2)),
    ("/subjects/{other}?normalize=False&deleted=False", WIDER, has(version=2)),
    ("/subjects/{s}", BROKEN, 40403),
    ("/subjects/{s}", record("id:long", "more:int=0"), 40403),
    ("/subjects/{s}?deleted=true", record("id:long", "more:int=0"), has(version=3, deleted=True)),
    ("/subjects/{gone}", record("a:int"), 40401),
    ("/subjects/{gone}?deleted=true", record("a:int"), has(version=1)),
    ("/subjects/{user}", RESOLVED, has(version=1)),
    ("/subjects/{user}?format=resolved", RESOLVED, is_resolved),
    ("/subjects/{stem}.far", RESOLVED, lambda body: body["subject"].startswith(":.")),
    ("/subjects/{stem}.none", SIMPLE, 40401),
    ("/subjects/{s}", '{"type":"nope"}', 42201),
    ("/subjects/{s}", "", 40403),
    # compatibility
    (COMPATIBILITY, WIDER, equals({"is_compatible": True})),
    (COMPATIBILITY, BROKEN, equals({"is_compatible": False})),
    (f"{COMPATIBILITY}?normalize=true&verbose=true", WIDER, has(is_compatible=True, messages=[])),
    (f"{COMPATIBILITY}/1", BROKEN, equals({"is_compatible": False})),
    (f"{COMPATIBILITY}/2", BROKEN, equals({"is_compatible": True})),
    (f"{COMPATIBILITY}/latest", BROKEN, equals({"is_compatible": True})),
    (f"{COMPATIBILITY}/-1?verbose=True", BROKEN, has(is_compatible=True)),
    (f"{COMPATIBILITY}/3", WIDER, 40402),
    (f"{COMPATIBILITY}/x", WIDER, 42202),
    (f"{COMPATIBILITY}/1", "nope", 42201),
    (f"{COMPATIBILITY}/1?verbose=true", "nope", has(is_compatible=False)),
    (COMPATIBILITY, "", 42201),
    ("/compatibility/subjects/{stem}.none/versions", BROKEN, equals({"is_compatible": True})),
    ("/compatibility/subjects/{stem}.none/versions/latest", BROKEN, has(is_compatible=True)),
    ("/compatibility/subjects/{stem}.none/versions/1", BROKEN, 40402),
    ("/compatibility/subjects/{gone}/versions", record("b:int"), has(is_compatible=True)),
]


@pytest.mark.parametrize(("path", "schema", "expected"), QUESTIONS)
def test_a_question(scene: Scene, path: str, schema: object, expected: Expected) -> None:
    reply = scene.ask("POST", path, {"schema": text_of(schema)})
    _must_be(reply, expected)


def _must_be(reply: Reply, expected: Expected) -> None:
    assert reply.content_type == V1
    if isinstance(expected, int):
        assert reply.code == expected, reply.body
        assert reply.status == int(str(expected)[:3])
        assert set(reply.body) == {"error_code", "message"}
        assert reply.body["message"]
    else:
        assert reply.status == 200, reply.body
        assert expected(reply.body), reply.body


def test_the_strings_stop_at_the_newest_failing_version(rest: Rest) -> None:
    subject = fresh()
    for field in ("a:int", "a:long", "a:double"):
        rest("PUT", f"/config/{subject}", {"compatibility": "NONE"})
        rest.register(subject, record(field))
    rest("PUT", f"/config/{subject}", {"compatibility": "FULL_TRANSITIVE", "validateFields": True})
    reply = rest.register(subject, record("a:float"))
    message = reply.body["message"]
    assert message.count("oldSchemaVersion") == 1
    assert "{oldSchemaVersion: 3}, {oldSchema: '" in message
    assert message.endswith("{validateFields: 'true', compatibility: 'FULL_TRANSITIVE'}]")
    found = {one["reader_version"] or one["writer_version"] for one in reply.body["findings"]}
    assert found == {1, 2, 3}
    body = {"schema": text_of(record("a:float"))}
    at = f"/compatibility/subjects/{subject}/versions?verbose=true"
    answer = rest("POST", at, body).body
    assert answer["findings"] == reply.body["findings"]
    assert f"details: [{', '.join(answer['messages'])}]" in message


def test_schema_tags(rest: Rest) -> None:
    subject = fresh()
    rest.register(subject, record("id:long", "name:string", name="R", namespace="n.s"))
    at = f"/subjects/{subject}/versions/latest/tags"

    def tags(path: str, *names: str, kind: str = "sr_field") -> list[dict[str, object]]:
        return [{"schemaEntity": {"entityPath": path, "entityType": kind}, "tags": list(names)}]

    added = rest("POST", at, {"tagsToAdd": tags("n.s.R.id", "PII", "KEY")}).body
    assert (added["version"], added["metadata"]) == (2, {"properties": {"confluent:version": "2"}})
    assert '{"name":"id","type":"long","confluent:tags":["PII","KEY"]}' in added["schema"]
    assert rest("POST", at, {"tagsToAdd": tags("R.id", "PII")}).body["version"] == 2
    removed = rest("POST", at, {"newVersion": 3, "tagsToRemove": tags("R.id", "PII")}).body
    assert (removed["version"], removed["metadata"]["properties"]["confluent:version"]) == (3, "3")
    assert '"confluent:tags":["KEY"]' in removed["schema"]
    again = rest("POST", at, {"newVersion": 7, "tagsToRemove": tags("R.id", "KEY")})
    assert (again.code, "not one more than previous version" in again.body["message"]) == (
        42201,
        True,
    )
    record_tag = rest("POST", at, {"tagsToAdd": tags(".n.s.R", "T", kind="sr_record")}).body
    assert record_tag["schema"].endswith('"confluent:tags":["T"]}')
    merged = rest("POST", at, {"rulesToMerge": RULES, "metadata": OWNED}).body
    assert (merged["version"], merged["ruleSet"]) == (5, RULES)
    assert merged["metadata"]["properties"] == {"confluent:version": "5", **OWNED["properties"]}
    dropped = rest("POST", at, {"rulesToRemove": ["r"]}).body
    assert "ruleSet" not in dropped
    for wrong in (
        {"tagsToAdd": tags("R.none", "T")},
        {"tagsToAdd": tags("R", "T", kind="sr_nothing")},
        {"tagsToAdd": [{"tags": ["T"]}]},
        {"tagsToAdd": 3},
        {"newVersion": "x"},
    ):
        assert rest("POST", at, wrong).code == 42201, wrong
    assert rest("POST", at, {"rulesToMerge": {"domainRules": [{}]}}).code == 42210
    assert rest("POST", f"/subjects/{subject}/versions/99/tags", {}).code == 40402
    assert rest("POST", f"/subjects/{fresh()}/versions/1/tags", {}).code == 40401
    assert rest("POST", f"/subjects/{subject}/versions/x/tags", {}).code == 42202
    elsewhere = fresh()
    rest.register(f":.{elsewhere}:{elsewhere}", SIMPLE)
    assert rest("GET", f"/subjects/{elsewhere}/versions/1").status == 200
    assert rest("POST", f"/subjects/{elsewhere}/versions/1/tags", {}).code == 40401


def test_tags_of_a_registration(rest: Rest) -> None:
    subject = fresh()
    tag = [{"schemaEntity": {"entityPath": "Event.id", "entityType": "SR_FIELD"}, "tags": ["PII"]}]
    first = rest.register(subject, SIMPLE, schemaTagsToAdd=tag).body
    assert '"confluent:tags":["PII"]' in first["schema"]
    assert first["metadata"]["properties"] == {"confluent:version": "1"}
    kept = rest.register(subject, WIDER, propagateSchemaTags=True).body
    assert (kept["version"], '"confluent:tags":["PII"]' in kept["schema"]) == (2, True)
    dropped = rest.register(subject, record('note:string=""'), propagateSchemaTags=True).body
    assert "confluent:tags" not in dropped["schema"]
    other = record("id:long=0", 'note:string=""')
    other["fields"][0]["confluent:tags"] = ["PII"]
    bare = rest.register(subject, other, schemaTagsToRemove=tag).body
    assert (bare["version"], "confluent:tags" in bare["schema"]) == (4, False)


def test_compare_and_set(rest: Rest) -> None:
    subject = fresh()
    assert rest.register(subject, SIMPLE, version=2).code == 42201
    first = rest.register(subject, SIMPLE, version=1).body
    assert first["metadata"] == {"properties": {"confluent:version": "1"}}
    assert rest.register(subject, SIMPLE, version=1).body == first
    assert rest.register(subject, WIDER, version=1).code == 42201
    assert rest.register(subject, WIDER, version=2).body["version"] == 2
    assert rest.register(subject, WIDER).body["version"] == 2
    assert rest.register(subject, SIMPLE).body == first
    found = rest("POST", f"/subjects/{subject}", {"schema": text_of(SIMPLE)}).body
    assert found["version"] == 1
    back = rest.register(subject, SIMPLE, version=-1).body
    assert (back["version"], back["id"] != first["id"]) == (3, True)
    assert back["metadata"] == {"properties": {"confluent:version": "3"}}
    assert rest.register(subject, record("id:long", "k:int=0")).body["metadata"] == {
        "properties": {"confluent:version": "4"}
    }


def test_a_dry_run_is_what_a_registration_answers(rest: Rest) -> None:
    """For each proposal in turn: first the forecast, then the deed."""
    subject = fresh()
    proposals: list[tuple[object, dict[str, Any]]] = [
        (SIMPLE, {}),
        (SIMPLE, {}),
        (BROKEN, {}),
        (WIDER, {"metadata": OWNED}),
        (WIDER, {}),
        ("", {"ruleSet": RULES}),
        (WIDER, {"version": 9}),
        (WIDER, {"version": -1}),
        (record("id:long", "pass:int=0"), {}),
        ("nope", {}),
        ("", {"metadata": {}}),
    ]
    settings = {
        "validateFields": True,
        "compatibility": "FULL",
        "policy": "strict",
        "defaultMetadata": {"properties": {"confluent:reserved": "pass", "by": "default"}},
        "overrideRuleSet": RULES,
        "normalize": True,
    }
    for step, (schema, members) in enumerate(proposals):
        if step == 3:
            rest("PUT", f"/config/{subject}", settings)
        forecast = rest.register(subject, schema, "?dry_run=true", **members)
        done = rest.register(subject, schema, **members)
        assert forecast.status == done.status
        if done.status == 200:
            forecast.body.setdefault("id", done.body["id"])
            forecast.body["ts"] = done.body["ts"]
        assert forecast.body == done.body


def test_settings_are_honoured(rest: Rest) -> None:
    subject = fresh()
    at = f"/config/{subject}"
    bad_default = '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}'
    assert rest.register(subject, bad_default).code == 42201
    every = {
        "compatibility": "NONE",
        "policy": "strict",
        "compatibilityPolicy": "LENIENT",
        "compatibilityGroup": "major",
        "normalize": True,
        "validateFields": False,
        "validateNewSchemas": False,
        "validateRules": False,
        "defaultMetadata": {"properties": {"a": "default", "b": "default"}},
        "overrideMetadata": {"properties": {"c": "override"}, "sensitive": ["c"]},
        "defaultRuleSet": RULES,
        "overrideRuleSet": {
            "encodingRules": [{"name": "e", "kind": "TRANSFORM", "type": "ENCRYPT"}]
        },
        "deprecatedVersions": {"1": "use version 2"},
    }
    assert rest("PUT", at, every).body == every
    shown = {**every, "compatibilityLevel": every["compatibility"]}
    del shown["compatibility"]
    assert rest("GET", at).body == shown
    reply = rest.register(subject, bad_default, metadata={"properties": {"b": "own", "c": "own"}})
    assert reply.body["metadata"] == {
        "properties": {"a": "default", "b": "own", "c": "override"},
        "sensitive": ["c"],
    }
    assert set(reply.body["ruleSet"]) == {"domainRules", "encodingRules"}
    wrong_rules = {"domainRules": [{"name": "x", "kind": "NOTHING"}]}
    assert rest.register(subject, SIMPLE, ruleSet=wrong_rules).status == 200
    rest("PUT", at, {"validateRules": True})
    assert rest.register(subject, WIDER, ruleSet=wrong_rules).code == 42210
    for name, value, code in (
        ("compatibility", "SIDEWAYS", 42203),
        ("compatibilityPolicy", "LOGICAL", 42203),
        ("policy", "loose", 42203),
        ("normalize", "perhaps", 42203),
        ("compatibilityGroup", 3, 42203),
        ("alias", "__GLOBAL", 42208),
        ("defaultRuleSet", {"domainRules": [{}]}, 42210),
        ("overrideRuleSet", [], 42210),
        ("deprecatedVersions", [1], 42203),
        ("deprecatedVersions", {"one": "why"}, 42203),
        ("deprecatedVersions", {"1": ""}, 42203),
    ):
        assert rest("PUT", at, {name: value}).code == code, name
    assert rest("DELETE", at).body == {**shown, "validateRules": True}
    assert rest("GET", at).code == 40408
    assert rest("DELETE", at).code == 40401
    assert rest("PUT", "/config/__EMPTY", {"compatibility": "FULL"}).code == 42208


def test_a_change_of_settings_answers_with_all_of_them(rest: Rest) -> None:
    at = f"/config/{fresh()}"
    assert rest("PUT", at, {"compatibility": "FULL"}).body == {"compatibility": "FULL"}
    both = {"compatibility": "FULL", "normalize": True}
    assert rest("PUT", at, {"normalize": True}).body == both
    assert rest("PUT", at, {}).body == both
    assert rest("PUT", at, {"normalize": None}).body == {"compatibility": "FULL"}
    assert rest("GET", at).body == {"compatibilityLevel": "FULL"}


def test_a_global_change_answers_with_the_level_in_force(own: Rest) -> None:
    level = own("GET", "/config").body["compatibilityLevel"]
    changed = own("PUT", "/config", {"normalize": False})
    assert changed.body == {"compatibility": level, "normalize": False}
    own("DELETE", "/config")


def test_an_empty_alias_removes_the_alias(rest: Rest) -> None:
    subject, target = fresh(), fresh()
    assert rest.register(target, SIMPLE).status == 200
    rest("PUT", f"/config/{subject}", {"compatibility": "NONE", "alias": target})
    assert rest("GET", f"/subjects/{subject}/versions").body == [1]
    assert rest("PUT", f"/config/{subject}", {"alias": ""}).body == {"compatibility": "NONE"}
    assert rest("GET", f"/config/{subject}").body == {"compatibilityLevel": "NONE"}
    assert rest("GET", f"/subjects/{subject}/versions").code == 40401


def test_settings_of_a_context_lie_between(rest: Rest) -> None:
    context = f":.{fresh()}:"
    rest("PUT", f"/config/{context}", {"compatibility": "FORWARD", "normalize": True})
    rest("PUT", f"/config/{context}s", {"compatibility": "FULL"})
    found = rest("GET", f"/config/{context}s?defaultToGlobal=true").body
    assert found == {"compatibilityLevel": "FULL", "normalize": True}
    found = rest("GET", f"/config/{context}t?defaultToGlobal=true").body
    assert found == {"compatibilityLevel": "FORWARD", "normalize": True}
    assert rest("GET", f"/config/{context}").body == found
    rest("PUT", f"/mode/{context}", {"mode": "READONLY"})
    rest("PUT", f"/mode/{context}s", {"mode": "READWRITE"})
    assert rest("GET", f"/mode/{context}t?defaultToGlobal=true").body == {"mode": "READONLY"}
    assert rest.register(f"{context}t", SIMPLE).code == 42205
    assert rest.register(f"{context}s", SIMPLE).status == 200
    assert rest("DELETE", f"/mode/{context}?recursive=true").body == {"mode": "READONLY"}
    assert rest("GET", f"/mode/{context}s").code == 40409


def test_deletion_step_by_step(rest: Rest) -> None:
    subject = fresh()
    at = f"/subjects/{subject}"
    assert rest("DELETE", at).code == 40401
    assert rest("DELETE", f"{at}/versions/1").code == 40401
    ids = [rest.register(subject, schema).body["id"] for schema in (SIMPLE, WIDER)]
    rest("PUT", f"/config/{subject}", {"compatibility": "NONE"})
    rest("PUT", f"/mode/{subject}", {"mode": "READWRITE"})
    assert rest("DELETE", f"{at}/versions/9").code == 40402
    assert rest("DELETE", f"{at}/versions/x").code == 42202
    assert rest("DELETE", f"{at}/versions/1?permanent=true").code == 40407
    assert rest("DELETE", f"{at}/versions/latest").body == 2
    assert rest("DELETE", f"{at}/versions/2").code == 40406
    assert rest("DELETE", f"{at}?permanent=true").code == 40405
    assert rest("GET", f"/schemas/ids/{ids[1]}").status == 200
    assert rest("DELETE", at).body == [1]
    assert rest("DELETE", at).code == 40404
    assert rest("GET", f"/config/{subject}").body == {"compatibilityLevel": "NONE"}
    assert rest("POST", f"{at}/undelete").body == [1, 2]
    assert rest("GET", f"{at}/versions").body == [1, 2]
    assert rest("DELETE", at).body == [1, 2]
    assert rest.register(subject, record("x:int")).body["version"] == 3
    rest("DELETE", at)
    assert rest("DELETE", f"{at}?permanent=true").body == [1, 2, 3]
    assert rest("GET", f"/config/{subject}").code == 40408
    assert rest("GET", f"/mode/{subject}").code == 40409
    assert rest("POST", f"{at}/undelete").code == 40401
    again = rest.register(subject, record("y:int")).body
    assert (again["version"], again["id"] > max(ids)) == (1, True)


def test_references_hold_what_they_name(rest: Rest) -> None:
    base, user = fresh(), fresh()
    rest.register(base, ADDRESS)
    rest.register(base, {**ADDRESS, "doc": "second"})
    uses = [{"name": "geo.Address", "subject": base, "version": -1}]
    stored = rest.register(user, USER, references=uses).body
    assert stored["references"][0]["version"] == 2
    assert rest.register(user, USER, references=uses).body["version"] == 1
    assert rest.register(user, RESOLVED).body["version"] != 1
    assert rest("DELETE", f"/subjects/{base}/versions/2").code == 42206
    assert rest("DELETE", f"/subjects/{base}").code == 42206
    assert rest("DELETE", f"/subjects/{base}/versions/1").body == 1
    rest("DELETE", f"/subjects/{user}")
    assert rest("DELETE", f"/subjects/{base}").body == [2]
    assert rest("DELETE", f"/subjects/{base}?permanent=true").code == 42206
    rest("DELETE", f"/subjects/{user}?permanent=true")
    assert rest("DELETE", f"/subjects/{base}?permanent=true").body == [1, 2]
    for wrong in (
        [{"name": "geo.Address", "subject": base, "version": 1}],
        [{"name": "geo.Address", "subject": fresh()}],
        [{"subject": base, "version": 1}],
        [{"name": "geo.Address", "subject": base, "version": 0}],
        ["geo.Address"],
    ):
        assert rest.register(user, USER, references=wrong).code == 42201, wrong


def test_importing(rest: Rest) -> None:
    context = f":.{fresh()}:"
    subject = f"{context}s"
    rest("PUT", f"/config/{context}", {"defaultMetadata": OWNED})
    assert rest("PUT", f"/mode/{context}", {"mode": "import"}).body == {"mode": "IMPORT"}
    first = rest.register(subject, SIMPLE, id=70, version=5).body
    assert (first["id"], first["version"], "metadata" in first) == (70, 5, False)
    assert rest.register(subject, SIMPLE, id=70, version=5).body == first
    assert rest.register(subject, SIMPLE, id=70).body == first
    assert rest.register(subject, SIMPLE, id=71).code == 42207
    assert rest.register(subject, SIMPLE, id=71, version=6).body["version"] == 6
    assert rest.register(subject, BROKEN, id=72).body["version"] == 7
    assert rest.register(subject, WIDER, id=73, version=7).code == 42205
    assert rest.register(f"{context}t", WIDER, id=72).code == 42205
    rest("DELETE", f"/subjects/{subject}/versions/7")
    assert rest.register(subject, WIDER, id=73, version=7).body["id"] == 73
    assert rest.register(subject, record("z:int"), id=2**31 - 1).status == 200
    rest("DELETE", f"/mode/{context}")
    rest("PUT", f"/config/{context}", {"compatibility": "NONE"})
    assert rest.register(subject, record("last:int")).code == 42205


def test_a_context_is_dropped_when_it_is_empty(rest: Rest) -> None:
    context = f".{fresh()}"
    rest("PUT", f"/config/:{context}:", {"compatibility": "NONE"})
    rest.register(f":{context}:s", SIMPLE)
    assert rest("DELETE", f"/contexts/{context}").code == 42211
    rest("DELETE", f"/subjects/:{context}:s")
    assert rest("DELETE", f"/contexts/{context}").code == 42211
    rest("DELETE", f"/subjects/:{context}:s?permanent=true")
    for written in (context, quote(f":{context}:", safe="")):
        assert rest("DELETE", f"/contexts/{written}").status == 204
    assert rest("GET", f"/config/:{context}:").code == 40408


def test_associations_are_none(rest: Rest) -> None:
    for method, path in (
        ("POST", "/associations"),
        ("PUT", "/associations"),
        ("POST", "/associations:batch"),
    ):
        reply = rest(method, path, {"resourceName": "t", "associations": []})
        assert (reply.status, reply.code) == (422, 42212)
    assert rest("DELETE", "/associations/resources/1?cascadeLifecycle=true").status == 204


def test_other_kinds_of_schemas_are_refused_with_a_sentence(rest: Rest) -> None:
    subject = fresh()
    for kind in ("JSON", "PROTOBUF", "XML", 3):
        for path in (f"/subjects/{subject}/versions", f"/subjects/{subject}"):
            reply = rest("POST", path, {"schema": "{}", "schemaType": kind})
            assert (reply.code, "Avro schemas only" in reply.body["message"]) == (42201, True)
