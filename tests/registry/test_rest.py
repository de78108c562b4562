"""The interface over the wire: shapes, error codes, content types, the traps clients set."""

from __future__ import annotations

import hashlib
import json
from uuid import UUID

import pytest

from bench.processes import Usage
from headworks import _version_lines
from headworks._server.child_process import Service
from tests.registry.rest import V1, Rest, fresh, record, text_of

pytestmark = pytest.mark.e2e

SIMPLE = record("id:long")
WIDER = record("id:long", 'note:string=""')
BROKEN = record("id:long", "note:string")
LINES = _version_lines.CONTENT_TYPE


def test_register_answers_in_the_shape_of_confluent_8(rest: Rest) -> None:
    subject = fresh()
    reply = rest.register(subject, SIMPLE)
    text = '{"type":"record","name":"Event","fields":[{"name":"id","type":"long"}]}'
    assert reply.status == 200
    assert reply.content_type == V1
    assert reply.body == {
        "id": reply.body["id"],
        "version": 1,
        "guid": str(UUID(bytes=hashlib.md5(text.encode()).digest())),
        "schemaType": "AVRO",
        "schema": text,
        "ts": reply.body["ts"],
    }
    version = rest("GET", f"/subjects/{subject}/versions/1").body
    assert version == {"subject": subject, **reply.body}
    by_id = rest("GET", f"/schemas/ids/{reply.body['id']}").body
    assert by_id["schema"] == text
    assert rest("GET", f"/schemas/ids/{reply.body['id']}/schema").body == SIMPLE
    assert rest("GET", f"/subjects/{subject}/versions/latest/schema").body == SIMPLE
    hinted = rest("GET", f"/schemas/ids/{reply.body['id']}?subject={subject}").body
    assert (hinted["subject"], hinted["version"]) == (subject, 1)


def test_one_schema_has_one_id_and_one_version(rest: Rest) -> None:
    one, two = fresh(), fresh()
    first = rest.register(one, SIMPLE).body
    assert (
        rest.register(
            one,
            '{"fields": [{"type": {"type": "long"}, "name": "id"}], '
            '"name": "Event", "type": "record"}',
        ).body["version"]
        == 1
    )
    assert rest.register(two, SIMPLE).body["id"] == first["id"]
    documented = rest.register(one, SIMPLE | {"doc": "said"}).body
    assert (documented["version"], documented["id"] != first["id"]) == (2, True)


def test_refusal_of_an_incompatible_schema(rest: Rest) -> None:
    subject = fresh()
    rest.register(subject, SIMPLE)
    reply = rest.register(subject, BROKEN)
    assert (reply.status, reply.code) == (409, 40901)
    assert reply.body["message"].startswith(
        "Schema being registered is incompatible with an earlier schema for subject "
        f"\"{subject}\", details: [{{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE'"
    )
    [finding] = reply.body["findings"]
    assert finding["rule"].startswith("HW")
    assert (finding["reader_version"], finding["writer_version"]) == (None, 1)
    assert finding["fix"]
    for path in ("versions", "versions/latest", "versions/1", "versions/-1"):
        verdict = rest(
            "POST", f"/compatibility/subjects/{subject}/{path}", {"schema": text_of(BROKEN)}
        )
        assert verdict.body == {"is_compatible": False}
    verdict = rest(
        "POST",
        f"/compatibility/subjects/{subject}/versions?verbose=True&normalize=False",
        {"schema": text_of(BROKEN)},
    )
    assert verdict.body["findings"] == [finding]
    assert "{oldSchemaVersion: 1}" in verdict.body["messages"]
    assert rest("GET", f"/subjects/{subject}/versions").body == [1]


def test_transitive_levels_name_every_version(rest: Rest) -> None:
    subject = fresh()
    rest.register(subject, record("a:int", "b:int=0"))
    rest.register(subject, record("a:int", "b:int=0", "c:int=0"))
    reply = rest.register(subject, record("a:string", "b:int=0"))
    assert [f["writer_version"] for f in reply.body["findings"]] == [2, 1]
    rest("PUT", f"/config/{subject}", {"compatibility": "backward"})
    reply = rest.register(subject, record("a:string", "b:int=0"))
    assert [f["writer_version"] for f in reply.body["findings"]] == [2]


def test_policy_is_a_setting_of_its_own(rest: Rest) -> None:
    subject = fresh()
    assert rest("PUT", f"/config/{subject}", {"policy": "WAREHOUSE"}).body == {
        "policy": "warehouse"
    }
    rest.register(subject, record("n:long"))
    refused = rest.register(subject, record("n:double"))
    assert refused.status == 409
    found = rest("GET", f"/config/{subject}?defaultToGlobal=true").body
    assert found == {"compatibilityLevel": "BACKWARD_TRANSITIVE", "policy": "warehouse"}
    rest("PUT", f"/config/{subject}", {"policy": None, "compatibility": "FULL", "newer": 1})
    assert rest("GET", f"/config/{subject}").body == {"compatibilityLevel": "FULL"}
    assert rest("DELETE", f"/config/{subject}").body == {"compatibilityLevel": "FULL"}
    assert rest("DELETE", f"/config/{subject}").code == 40401


def test_lookup(rest: Rest) -> None:
    subject = fresh()
    body = {"schema": text_of(SIMPLE)}
    assert rest("POST", f"/subjects/{subject}?normalize=False&deleted=False", body).code == 40401
    rest.register(subject, SIMPLE)
    assert rest("POST", f"/subjects/{subject}", body).body["version"] == 1
    assert rest("POST", f"/subjects/{subject}", {"schema": text_of(WIDER)}).code == 40403
    assert rest("POST", f"/subjects/{subject}", {"schema": "{"}).code == 42201
    assert rest("POST", f"/subjects/{subject}", {"schema": ""}).code == 40403
    rest("DELETE", f"/subjects/{subject}")
    assert rest("POST", f"/subjects/{subject}", body).code == 40401
    assert rest("POST", f"/subjects/{subject}?deleted=True", body).body["deleted"] is True


def test_deletion_and_return(rest: Rest) -> None:
    subject = fresh()
    at = f"/subjects/{subject}"
    first = rest.register(subject, SIMPLE).body
    rest.register(subject, WIDER)
    assert rest("DELETE", f"{at}/versions/2?permanent=true").code == 40407
    assert rest("DELETE", f"{at}/versions/latest").body == 2
    assert rest("DELETE", f"{at}/versions/2").code == 40406
    assert rest("GET", f"{at}/versions/2").code == 40402
    assert rest("GET", f"{at}/versions/2?deleted=true").body["deleted"] is True
    assert rest.register(subject, WIDER).body["version"] == 3
    assert rest("DELETE", f"{at}?permanent=true").code == 40405
    assert rest("DELETE", at).body == [1, 3]
    assert rest("DELETE", at).code == 40404
    assert rest("GET", f"{at}/versions").code == 40401
    assert rest("GET", f"/schemas/ids/{first['id']}?subject={subject}").status == 200
    assert rest("POST", f"{at}/undelete").body == [1, 2, 3]
    brought_back = rest("GET", f"/audit?subject={subject}").body[-3:]
    assert [one["action"] for one in brought_back] == ["undelete"] * 3
    assert brought_back[0]["id"] == first["id"]
    assert None not in [one["id"] for one in brought_back]
    assert rest("GET", f"{at}/versions").body == [1, 2, 3]
    rest("DELETE", at)
    rest("PUT", f"/config/{subject}", {"compatibility": "NONE"})
    assert rest("DELETE", f"{at}?permanent=true").body == [1, 2, 3]
    assert rest("GET", f"/config/{subject}").code == 40408
    assert rest("DELETE", at).code == 40401
    assert rest.register(subject, SIMPLE).body["version"] == 1


def test_an_id_is_never_given_again(rest: Rest) -> None:
    subject, once = fresh(), record("x:int", name=fresh("Once").replace("-", ""))
    before = rest.register(subject, once).body["id"]
    assert rest("GET", f"/schemas/ids/{before}").status == 200
    rest("DELETE", f"/subjects/{subject}")
    rest("DELETE", f"/subjects/{subject}?permanent=true")
    assert rest("GET", f"/schemas/ids/{before}").code == 40403
    assert rest.register(subject, once).body["id"] > before


def test_resolved_texts_hold_what_references_refer_to(rest: Rest) -> None:
    street, home, person = fresh(), fresh(), fresh()
    rest.register(street, record("name:string", name="Street", namespace="far"))
    far = [{"name": "far.Street", "subject": street, "version": 1}]
    text = record("street:far.Street", name="Home", namespace="near")
    rest.register(home, text, references=far)
    near = [{"name": "near.Home", "subject": home, "version": 1}]
    text = record("home:near.Home", name="Person", namespace="near")
    found = rest.register(person, text, references=near).body["id"]
    resolved = rest("GET", f"/schemas/ids/{found}?format=resolved").body
    assert "references" not in resolved
    home_type = json.loads(resolved["schema"])["fields"][0]["type"]
    assert home_type["name"] == "Home"
    street_type = home_type["fields"][0]["type"]
    assert (street_type["name"], street_type["namespace"]) == ("Street", "far")


def test_references(rest: Rest) -> None:
    base, user = fresh(), fresh()
    rest.register(base, record("street:string", name="Address", namespace="geo"))
    person = record("home:Address", "work:Address", name="Person", namespace="geo")
    refs = [{"name": "geo.Address", "subject": base, "version": -1}]
    reply = rest.register(user, person, references=refs)
    assert reply.body["references"] == [{**refs[0], "version": 1}]
    assert '"street"' not in reply.body["schema"]
    assert rest.register(user, person, references=refs).body["version"] == 1
    resolved = rest("GET", f"/schemas/ids/{reply.body['id']}?format=resolved").body
    assert '"street"' in resolved["schema"]
    assert "references" not in resolved
    assert rest("GET", f"/subjects/{base}/versions/1/referencedby").body == [reply.body["id"]]
    assert rest("DELETE", f"/subjects/{base}/versions/1").code == 42206
    assert rest("DELETE", f"/subjects/{base}").code == 42206
    grown = record("home:Address", "work:Address", "zip:int", name="Person", namespace="geo")
    assert rest.register(user, grown, references=refs).code == 40901
    missing = [{"name": "geo.Address", "subject": base, "version": 9}]
    assert rest.register(user, person, references=missing).code == 42201
    rest("DELETE", f"/subjects/{user}")
    assert rest("DELETE", f"/subjects/{base}").body == [1]
    assert rest("DELETE", f"/subjects/{base}?permanent=true").code == 42206


def test_contexts_are_separate(rest: Rest) -> None:
    context, name = fresh(".ctx"), fresh()
    subject = f":{context}:{name}"
    assert rest.register(subject, SIMPLE).body["id"] == 1
    assert context in rest("GET", "/contexts").body
    assert rest("GET", f"/subjects?subjectPrefix=:{context}:").body == [subject]
    assert subject not in rest("GET", "/subjects?subjectPrefix=").body
    assert subject in rest("GET", "/subjects").body
    assert rest("GET", f"/schemas/ids/1?subject={subject}").body["subject"] == subject
    assert rest("DELETE", f"/contexts/{context}").code == 42211
    rest("DELETE", f"/subjects/{subject}")
    rest("DELETE", f"/subjects/{subject}?permanent=true")
    assert rest("DELETE", f"/contexts/{context}").status == 204
    assert context not in rest("GET", "/contexts").body
    assert rest.register(subject, SIMPLE).body["id"] == 2


def test_settings_of_a_context(rest: Rest) -> None:
    context = fresh(".ctx")
    subject = f":{context}:s"
    rest("PUT", f"/config/:{context}:", {"compatibility": "NONE"})
    rest.register(subject, SIMPLE)
    assert rest.register(subject, record("id:string")).status == 200
    rest("PUT", f"/mode/:{context}:", {"mode": "READONLY"})
    assert rest.register(subject, record("id:int")).code == 42205
    assert rest("GET", f"/mode/{subject}?defaultToGlobal=true").body == {"mode": "READONLY"}


def test_import_takes_the_callers_ids(rest: Rest) -> None:
    context = fresh(".import")
    subject = f":{context}:s"
    assert rest.register(subject, SIMPLE, id=5).code == 42205
    assert rest("PUT", f"/mode/{subject}", {"mode": "IMPORT"}).status == 200
    assert rest.register(subject, SIMPLE).code == 42205
    assert rest.register(subject, SIMPLE, id=50, version=3).body["version"] == 3
    assert rest.register(subject, record("id:string"), id=50).code == 42205
    assert rest.register(subject, record("id:string"), id=51, version=3).code == 42205
    assert rest.register(subject, record("id:string"), id=51).body["version"] == 4
    assert rest("DELETE", f"/mode/{subject}").body == {"mode": "IMPORT"}
    assert rest("PUT", f"/mode/{subject}", {"mode": "IMPORT"}).code == 42205
    assert rest("PUT", f"/mode/{subject}?force=True", {"mode": "IMPORT"}).status == 200
    rest("DELETE", f"/mode/{subject}")
    rest("PUT", f"/config/{subject}", {"compatibility": "NONE"})
    assert rest.register(subject, record("id:bytes")).body["id"] == 52


RULE = {"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL"}
BOTH_WAYS = {"mode": "WRITEREAD", "onFailure": "ERROR,NONE"}


@pytest.mark.parametrize(
    ("part", "change", "words"),
    [
        ("domainRules", {"mode": "UPGRADE"}, "the mode UPGRADE; use WRITE, READ, WRITEREAD"),
        ("encodingRules", {"mode": "UPDOWN"}, "use WRITE, READ, WRITEREAD"),
        ("migrationRules", {}, "the mode WRITE; use UPGRADE, DOWNGRADE, UPDOWN"),
        ("migrationRules", {"mode": None}, "the mode WRITEREAD; use UPGRADE"),
        ("domainRules", {"type": None}, "has no type"),
        ("domainRules", {"kind": "CHECK"}, "unknown kind; use TRANSFORM, CONDITION"),
        ("domainRules", {"name": "2nd"}, "a letter or underscore"),
        ("domainRules", {"name": "a b"}, "a letter or underscore"),
        ("domainRules", {"name": "r" * 65}, "at most 64"),
        ("domainRules", {"name": None}, "has no name"),
        ("domainRules", {"onFailure": "ERROR,NONE"}, "two actions in onFailure"),
        ("domainRules", {"onSuccess": 1}, "onSuccess that is not a string"),
        ("domainRules", BOTH_WAYS, None),
        ("migrationRules", {**BOTH_WAYS, "mode": "UPDOWN"}, None),
        ("domainRules", {"name": "_a-1", "mode": None, "kind": None}, None),
    ],
)
def test_rules_that_no_client_could_run_are_refused(
    rest: Rest, part: str, change: dict[str, object], words: str | None
) -> None:
    reply = rest.register(fresh(), SIMPLE, ruleSet={part: [{**RULE, **change}]})
    if words is None:
        assert reply.status == 200, reply.body
    else:
        assert reply.code == 42210
        assert words in reply.body["message"]


def test_metadata_and_rules_are_kept_and_inherited(rest: Rest) -> None:
    subject = fresh()
    metadata = {"properties": {"owner": "web"}, "tags": {"**.id": ["PII"]}}
    rules = {"domainRules": [{"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL"}]}
    first = rest.register(subject, SIMPLE, metadata=metadata, ruleSet=rules)
    assert (first.body["metadata"], first.body["ruleSet"]) == (metadata, rules)
    second = rest.register(subject, WIDER).body
    assert (second["metadata"], second["ruleSet"]) == (metadata, rules)
    third = rest.register(subject, "", metadata={"properties": {"owner": "ops"}}).body
    assert (third["version"], third["schema"]) == (3, second["schema"])
    found = rest("GET", f"/subjects/{subject}/metadata?key=owner&value=web").body
    assert found["version"] == 2
    listed = rest("GET", f"/schemas?subjectPrefix={subject}&ruleType=CEL&latestOnly=true").body
    assert [one["version"] for one in listed] == [3]
    twice = {"domainRules": rules["domainRules"] * 2}
    assert rest.register(subject, SIMPLE, ruleSet=twice).code == 42210
    rest("PUT", f"/config/{subject}", {"overrideMetadata": {"properties": {"owner": "law"}}})
    forced = rest.register(subject, SIMPLE, metadata=metadata).body
    assert forced["metadata"]["properties"] == {"owner": "law"}


def test_reserved_fields(rest: Rest) -> None:
    subject = fresh()
    rest("PUT", f"/config/{subject}", {"validateFields": True})
    reserved = {"properties": {"confluent:reserved": "ssn, email"}}
    assert rest.register(subject, SIMPLE, metadata=reserved).status == 200
    taken = rest.register(subject, record("id:long", "ssn:int=0"))
    assert (taken.code, "FIELD_CONFLICTS" in taken.body["message"]) == (40901, True)
    dropped = rest.register(subject, WIDER, metadata={"properties": {"a": "b"}})
    assert (dropped.code, "RESERVED_FIELD_REMOVED" in dropped.body["message"]) == (40901, True)
    assert rest.register(subject, WIDER).status == 200


def test_compatibility_group(rest: Rest) -> None:
    subject = fresh()
    rest("PUT", f"/config/{subject}", {"compatibilityGroup": "major"})
    rest.register(subject, SIMPLE, metadata={"properties": {"major": "1"}})
    other = {"properties": {"major": "2"}}
    assert rest.register(subject, record("id:string"), metadata=other).status == 200
    assert rest.register(subject, record("id:bytes", "x:int"), metadata=other).code == 40901


def test_normalize_makes_one_of_two_spellings(rest: Rest) -> None:
    subject = fresh()
    rest.register(subject, SIMPLE | {"b": 1, "a": 2}, "?normalize=True")
    again = rest.register(subject, SIMPLE | {"a": 2, "b": 1}, "?normalize=true").body
    assert again["version"] == 1
    assert rest.register(subject, SIMPLE | {"b": 1, "a": 2}).body["version"] == 2


def test_alias_of_a_subject(rest: Rest) -> None:
    real, other = fresh(), fresh()
    rest.register(real, SIMPLE)
    rest("PUT", f"/config/{other}", {"alias": real})
    assert rest("GET", f"/subjects/{other}/versions/latest").body["subject"] == real
    assert rest.register(other, WIDER).body["version"] == 2


def test_an_alias_of_an_alias_is_followed_once(rest: Rest) -> None:
    asked, middle, last = fresh(), fresh(), fresh()
    rest.register(middle, SIMPLE)
    rest("PUT", f"/config/{middle}", {"alias": last})
    rest("PUT", f"/config/{asked}", {"alias": middle})
    # The subject that was checked is the one that gets the version.
    assert rest.register(asked, BROKEN).code == 40901
    assert rest.register(asked, WIDER).body["version"] == 2
    rest("PUT", f"/config/{middle}", {"alias": ""})
    assert rest("GET", f"/subjects/{middle}/versions").body == [1, 2]
    assert rest("GET", f"/subjects/{last}/versions").code == 40401


def test_dry_run_gives_the_verdict_and_changes_nothing(rest: Rest) -> None:
    subject = fresh()
    assert rest.register(subject, SIMPLE, "?dry_run=true").body["version"] == 1
    assert rest("GET", f"/subjects/{subject}/versions").code == 40401
    rest.register(subject, SIMPLE)
    assert rest.register(subject, BROKEN, "?dry_run=true").code == 40901
    forecast = rest.register(subject, record("id:long", "q:int=0"), "?dry_run=true").body
    assert (forecast["version"], "id" in forecast) == (2, False)


def test_the_difference_of_two_versions(rest: Rest) -> None:
    subject = fresh()
    rest.register(subject, SIMPLE)
    rest.register(subject, WIDER)
    reply = rest("GET", f"/subjects/{subject}/diff/1/latest").body
    assert (reply["subject"], reply["from"], reply["to"]) == (subject, 1, 2)
    assert [(one["path"], one["what"]) for one in reply["differences"]] == [("note", "added")]
    assert rest("GET", f"/subjects/{subject}/diff/1/1").body["differences"] == []
    assert rest("GET", f"/subjects/{subject}/diff/1/3").code == 40402
    assert rest("GET", f"/subjects/{subject}/diff/one/2").code == 42202


def test_audit_log(rest: Rest) -> None:
    subject = fresh()
    rest.register(subject, SIMPLE)
    rest.register(subject, BROKEN)
    rest("PUT", f"/config/{subject}", {"compatibility": "NONE"})
    rest("DELETE", f"/subjects/{subject}")
    log = rest("GET", f"/audit?subject={subject}").body
    assert [one["action"] for one in log] == ["register", "config", "delete"]
    assert all(one["who"] == "anonymous@127.0.0.1" and one["at"] > 0 for one in log)
    later = rest("GET", f"/audit?subject={subject}&after={log[0]['seq']}&limit=1").body
    assert later == log[1:2]


def test_paging_and_listing(rest: Rest) -> None:
    stem = fresh("page")
    for i in range(3):
        rest.register(f"{stem}.{i}", SIMPLE)
    at = f"/subjects?subjectPrefix={stem}."
    assert rest("GET", f"{at}&offset=1&limit=1&deleted_only=false").body == [f"{stem}.1"]
    rest("DELETE", f"/subjects/{stem}.0")
    assert rest("GET", f"{at}&deleted_only=true").body == [f"{stem}.0"]
    assert rest("GET", f"{at}&deleted=true&limit=-1").body == [f"{stem}.{i}" for i in range(3)]
    entities = rest("GET", f"/schemas?subjectPrefix={stem}.&limit=1&offset=1").body
    assert [one["subject"] for one in entities] == [f"{stem}.2"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/subjects/absent/versions", None, 404, 40401),
        ("GET", "/subjects/absent/versions/1", None, 404, 40401),
        ("GET", "/subjects/absent/versions/latest", None, 404, 40401),
        ("GET", "/subjects/absent/versions/0", None, 422, 42202),
        ("GET", "/subjects/absent/versions/2147483648", None, 422, 42202),
        ("GET", "/subjects/absent/versions/earliest", None, 422, 42202),
        ("GET", "/schemas/ids/999999999", None, 404, 40403),
        ("GET", "/schemas/ids/99999999999999999999", None, 404, 40403),
        ("GET", "/schemas/ids/abc", None, 404, 40403),
        ("GET", "/schemas/ids/1%00", None, 422, 42208),
        ("GET", "/schemas/guids/none", None, 404, 40403),
        ("GET", "/config/absent", None, 404, 40408),
        ("GET", "/mode/absent", None, 404, 40409),
        ("DELETE", "/subjects/absent", None, 404, 40401),
        ("DELETE", "/mode/absent", None, 404, 40401),
        ("PUT", "/config", {"compatibility": "SIDEWAYS"}, 422, 42203),
        ("PUT", "/config", {"policy": "loose"}, 422, 42203),
        ("PUT", "/config/absent", {"normalize": 3}, 422, 42203),
        ("PUT", "/mode", {"mode": "WRITEONLY"}, 422, 42204),
        ("PUT", "/mode", {}, 422, 42204),
        ("PUT", "/mode/absent", {"mode": "FORWARD"}, 422, 42204),
        ("POST", "/subjects/s/versions", {"schema": ""}, 422, 42201),
        ("POST", "/subjects/s/versions", {}, 422, 42201),
        ("POST", "/subjects/s/versions", {"schema": 7}, 422, 42201),
        ("POST", "/subjects/s/versions", {"schema": '{"type":"nope"}'}, 422, 42201),
        ("POST", "/subjects/s/versions", {"schema": "[" * 100_000}, 422, 42201),
        ("POST", "/subjects/s/versions", {"schema": '"\ud800"'}, 400, 400),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "id": -7}, 422, 42201),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "references": 1}, 422, 42201),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "metadata": []}, 422, 42201),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "ruleSet": 1}, 422, 42210),
        ("POST", "/subjects/s/versions", {"schema": "{}", "schemaType": "JSON"}, 422, 42201),
        ("POST", "/subjects/s/versions", {"schema": '"' + "x" * 1_000_000}, 422, 42209),
        ("POST", "/subjects/a%0Ab/versions", {"schema": '"int"'}, 422, 42208),
        ("POST", "/subjects/a%FFb/versions", {"schema": '"int"'}, 422, 42208),
        ("POST", "/subjects/__GLOBAL/versions", {"schema": '"int"'}, 422, 42208),
        ("POST", "/subjects/:.c:/versions", {"schema": '"int"'}, 422, 42208),
        ("POST", "/subjects/:.:%3A.c%3Ax/versions", {"schema": '"int"'}, 422, 42208),
        ("POST", "/subjects/:.c:%3A*/versions", {"schema": '"int"'}, 422, 42208),
        ("PUT", "/config/:.:%3A.c", {"compatibility": "FULL"}, 422, 42208),
        ("POST", "/subjects/s/versions", [1], 400, 400),
        ("POST", "/compatibility/subjects/absent/versions/3", {"schema": '"int"'}, 404, 40402),
        ("POST", "/compatibility/subjects/absent/versions", {"schema": "{"}, 422, 42201),
        ("PUT", "/config/absent", {"alias": "\0"}, 422, 42208),
        ("GET", "/audit?subject=%00", None, 422, 42208),
        ("POST", "/associations", {}, 422, 42212),
        ("GET", "/nowhere", None, 404, 404),
        ("PATCH", "/subjects", None, 405, 405),
        ("GET", "/subjects?offset=many", None, 422, 422),
        ("GET", "/subjects/s/metadata?key=a", None, 400, 400),
    ],
)
def test_mistakes_of_the_caller(
    rest: Rest, method: str, path: str, body: object, status: int, code: int
) -> None:
    reply = rest(method, path, body)
    assert (reply.status, reply.code) == (status, code)
    assert reply.body["message"]
    assert reply.content_type == V1


def test_an_invalid_schema_is_an_answer_when_reasons_are_asked_for(rest: Rest) -> None:
    at = f"/compatibility/subjects/{fresh()}/versions"
    reply = rest("POST", f"{at}?verbose=true", {"schema": '{"type":"nope"}'})
    assert (reply.status, reply.body["is_compatible"]) == (200, False)
    assert "nope" in reply.body["messages"][0]
    assert rest("POST", f"{at}/latest", {"schema": '"int"'}).body == {"is_compatible": True}


@pytest.mark.parametrize(
    ("accept", "status", "content_type"),
    [
        ("*/*", 200, V1),
        ("application/json", 200, "application/json"),
        (
            "application/json;q=0.5, application/vnd.schemaregistry+json;q=0.9",
            200,
            "application/vnd.schemaregistry+json",
        ),
        (f"application/json, {V1};q=0", 200, "application/json"),
        ("text/html", 406, V1),
    ],
)
def test_the_answers_content_type(rest: Rest, accept: str, status: int, content_type: str) -> None:
    for path in ("/subjects", "/schemas/types"):
        reply = rest("GET", path, headers={"Accept": accept})
        assert (reply.status, reply.content_type) == (status, content_type)


def test_a_list_in_lines_is_the_list_if_lines_are_accepted(rest: Rest) -> None:
    stem = fresh()
    used = {"name": "x.Used", "subject": f"{stem}.used", "version": 1}
    rest.register(f"{stem}.used", record("é:int", name="Used", namespace="x"))
    rest.register(f"{stem}.a", record("u:x.Used"), references=[used])
    rest.register(f"{stem}.a", WIDER, metadata={"properties": {"owner": "a\nb"}})
    rest("PUT", f"/config/{stem}.other", {"alias": f"{stem}.a"})
    rest("DELETE", f"/subjects/{stem}.used")
    query = "deleted=true&aliases=true"
    for path in (
        f"/schemas?subjectPrefix={stem}&{query}",
        f"/schemas?subjectPrefix={stem}&{query}&offset=1&limit=1",
        f"/schemas?subjectPrefix={stem}&latestOnly=true",
        f"/schemas?subjectPrefix={stem}.none",
    ):
        listed = rest("GET", path)
        for accept in (f"{LINES}, {V1}", f"*/*;q=0.1, {LINES.upper()};q=0.5"):
            lines = rest("GET", path, headers={"Accept": accept})
            assert (lines.status, lines.content_type) == (200, LINES)
            assert _version_lines.decode(lines.body.encode()).objects() == listed.body
        for accept in ("*/*", "application/*", f"{LINES};q=0, {V1}", f"{LINES}2, {V1}"):
            assert rest("GET", path, headers={"Accept": accept}) == listed
        assert rest("GET", path, headers={"Accept": LINES}).status == 406  # errors are JSON
    both = {"Accept": f"{LINES}, {V1}"}
    assert rest("GET", f"/subjects/{stem}.a/versions", headers=both).content_type == V1
    refused = rest("GET", "/schemas?subjectPrefix=%00", headers=both)
    assert (refused.status, refused.content_type) == (422, V1)


def test_the_requests_content_type(rest: Rest) -> None:
    at = f"/subjects/{fresh()}/versions"
    body = '{"schema": "\\"int\\"", "neverHeardOf": true}'
    for content_type, encoding in (
        ("application/octet-stream", "utf-8"),
        ("application/json; charset=utf-16", "utf-16"),
        (f"{V1}; charset=UTF-8", "utf-8"),
    ):
        reply = rest("POST", at, raw=body.encode(encoding), headers={"Content-Type": content_type})
        assert reply.status == 200
    assert rest("POST", at, raw=b"a=1", headers={"Content-Type": "text/plain"}).code == 415
    assert rest("POST", at, raw=body.encode(), headers={"Content-Type": ""}).code == 415
    assert rest("POST", at, raw=b"").code == 422
    assert rest("POST", at, raw=b"{").code == 400
    assert rest("POST", at, raw=b'{"schema": NaN}').code == 400
    assert rest("POST", at, raw=b"[" * 100_000).code == 400
    assert rest("POST", at, raw=b"\xff").code == 400
    assert rest("POST", at, raw=b"x" * 4_000_001).code == 413
    for charset in ("no", "rot13", "hex"):
        headers = {"Content-Type": f"application/json; charset={charset}"}
        reply = rest("POST", at, raw=b"{}", headers=headers)
        assert (reply.code, reply.body["message"]) == (
            400,
            f"the body is not JSON: '{charset}' is not a charset",
        )


def test_a_very_long_number_is_refused_in_our_words(rest: Rest) -> None:
    at, digits = f"/subjects/{fresh()}/versions", "9" * 100_000
    schema = (
        f'{{"type":"record","name":"R","fields":[{{"name":"a","type":"int","default":{digits}}}]}}'
    )
    for reply in (
        rest("POST", at, {"schema": schema}),
        rest("POST", at, raw=b'{"schema": "", "id": %s}' % digits.encode()),
    ):
        assert reply.status in (400, 422)
        assert "a number has 100,000 digits, and at most 4,300 are read" in reply.body["message"]
        assert "sys." not in reply.body["message"]


def test_large_and_deep_schemas_take_bounded_work(rest: Rest, shared: Service) -> None:
    subject, deep = fresh(), '"int"'
    wide = [f"field_{i}:int=0" for i in range(5000)]
    server = Usage(shared.process.pid)
    before = server.now().cpu
    assert rest.register(subject, record(*wide)).status == 200
    assert rest.register(subject, record(*wide, "more:int=0")).body["version"] == 2
    for _ in range(3000):
        deep = f'{{"type":"array","items":{deep}}}'
    assert rest.register(subject, deep).code == 42201
    assert server.now().cpu - before < 20


def test_surroundings(rest: Rest) -> None:
    assert rest("GET", "/").body == {}
    assert rest("GET", "/subjects/").status == 200
    assert rest("GET", "/associations/resources/-/t?resourceType=topic").body == []
    assert rest("GET", "/associations/subjects/s").body == []
    assert rest("DELETE", "/associations/resources/x").status == 204
    assert rest("GET", "/v1/metadata/version").body["version"]
    assert rest("GET", "/v1/metadata/id").body["scope"]["clusters"]
    assert rest("GET", "/health").body == {"status": "ok"}
    assert rest("GET", "/health/ready").body == {"status": "ok"}
    documented = rest("GET", "/openapi.json").body["paths"]
    assert "/subjects/{subject}/versions/{version}" in documented


def test_global_settings(own: Rest) -> None:
    assert own("GET", "/config").body == {"compatibilityLevel": "BACKWARD_TRANSITIVE"}
    assert own("PUT", "/config", {"compatibility": "Forward"}).body == {"compatibility": "FORWARD"}
    assert own("GET", "/config/any?defaultToGlobal=True").body == {"compatibilityLevel": "FORWARD"}
    assert own("DELETE", "/config").body == {"compatibilityLevel": "FORWARD"}
    assert own("GET", "/config").body == {"compatibilityLevel": "BACKWARD_TRANSITIVE"}
    own.register("s", SIMPLE)
    assert own("PUT", "/mode", {"mode": "IMPORT"}).code == 42205
    own("PUT", "/mode/s", {"mode": "READWRITE"})
    own("PUT", "/mode", {"mode": "READONLY_OVERRIDE"})
    assert own.register("s", WIDER).code == 42205
    assert own("PUT", "/config", {"compatibility": "NONE"}).code == 42205
    assert own("DELETE", "/subjects/s").code == 42205
    assert own("DELETE", "/mode").body == {"mode": "READONLY_OVERRIDE"}
    assert own.register("s", WIDER).status == 200
