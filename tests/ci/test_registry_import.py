"""Importing a whole registry: all that it holds, resumed after a kill at any write, and proven."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from headworks._ci.registry_import import import_registry
from headworks._server.child_process import Service
from headworks.errors import FindingsError
from headworks.registry_client import RegistryClient
from tests.command_line import run_command
from tests.registry.conftest import start_registry
from tests.registry.rest import Rest, record, text_of

pytestmark = pytest.mark.e2e

CITY = record("name:string", name="City", namespace="acme")
TRIP = {
    "type": "record",
    "name": "Trip",
    "namespace": "acme",
    "fields": [{"name": "id", "type": "long"}, {"name": "to", "type": "City"}],
}
UPPER = {"name": "upper", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "true"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A registry in which everything occurs that an import must keep."""
    with start_registry(tmp_path_factory.mktemp("source")) as running:
        rest = Rest(running.url)
        _fill(rest)
        rest.close()
        yield running


def _fill(rest: Rest) -> None:
    for name in ("gone-value", "city-value", "plain-value"):
        assert rest.register(name, {**CITY, "doc": name}).status == 200
    uses = {"name": "acme.City", "subject": "city-value", "version": 1}
    tagged = {"tags": {"acme.Trip.id": ["PII"]}, "properties": {"owner": "maps"}}
    members: dict[str, Any] = {
        "references": [uses],
        "metadata": tagged,
        "ruleSet": {"domainRules": [UPPER]},
    }
    assert rest.register("a/trip é", TRIP, "", **members).status == 200
    for fields in (("id:long",), ("id:long", "n:int=0"), ("id:long", "n:int=0", "m:int=1")):
        assert rest.register("three-value", record(*fields)).status == 200
        assert rest.register(":.eu:three-value", record(*fields)).status == 200
    assert rest.register(":.eu:gone", record("x:int", name="Gone")).status == 200
    # The same content as a version that was deleted, so one id has two versions.
    rest("DELETE", "/subjects/three-value/versions/2")
    rest("DELETE", "/subjects/three-value/versions/2?permanent=true")
    rest("DELETE", "/subjects/three-value/versions/1")
    assert rest.register("three-value", record("id:long", "n:int=0")).body["version"] == 4
    assert rest.register("three-value", record("id:long")).body["version"] == 5
    # A soft-deleted version to which a soft-deleted version refers.
    uses = {"name": "acme.City", "subject": "gone-value", "version": 1}
    assert rest.register("gone-trip", TRIP, references=[uses]).status == 200
    for name in ("gone-trip", "gone-value", ":.eu:gone"):
        assert rest("DELETE", f"/subjects/{quote(name)}").status == 200
    for scope, config in (
        ("", {"compatibility": "FORWARD", "normalize": True}),
        ("/three-value", {"compatibility": "NONE", "policy": "avro"}),
        ("/gone-value", {"compatibility": "FULL"}),
        ("/:.eu:", {"compatibilityGroup": "major"}),
        ("/:.__GLOBAL:", {"compatibility": "FULL", "normalize": False}),
        ("/short", {"alias": "three-value"}),
    ):
        assert rest("PUT", f"/config{scope}", config).status == 200
    assert rest("PUT", "/mode", {"mode": "READWRITE"}).status == 200
    for scope in ("/plain-value", "/:.eu:", "/:.__GLOBAL:"):
        assert rest("PUT", f"/mode{scope}", {"mode": "READONLY"}).status == 200


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Service]:
    with start_registry(tmp_path) as running:
        yield running


def everything(url: str) -> dict[str, Any]:
    """Return all that a registry answers, without the times."""
    rest = Rest(url)
    paths = ["/contexts", "/config", "/mode"]
    names = rest("GET", "/subjects?deleted=true").body
    for name in (*names, "short", ":.eu:", ":.__GLOBAL:", ":.us:any-value"):
        at = quote(name, safe="")
        paths += [f"/config/{at}", f"/mode/{at}", f"/config/{at}?defaultToGlobal=true"]
    for name in names:
        at = quote(name, safe="")
        numbers = rest("GET", f"/subjects/{at}/versions?deletedAsNegative=true").body
        paths.append(f"/subjects/{at}/versions?deletedAsNegative=true")
        for number in map(abs, numbers):
            paths.append(f"/subjects/{at}/versions/{number}?deleted=true")
            paths.append(f"/subjects/{at}/versions/{number}/referencedby?deleted=true")
            schema_id = rest("GET", paths[-2]).body["id"]
            paths.append(f"/schemas/ids/{schema_id}?subject={at}")
            paths.append(f"/schemas/ids/{schema_id}/versions?deleted=true&subject={at}")
    found = {path: rest("GET", path).body for path in paths}
    rest.close()
    return {path: _without_times(body) for path, body in found.items()} | {"subjects": names}


def _without_times(body: Any) -> Any:
    return {k: v for k, v in body.items() if k != "ts"} if isinstance(body, dict) else body


class Killed(BaseException):
    """The end of the process, as far as the registries can tell."""


class DiesAfterWrites(RegistryClient):
    """A client whose process ends after so many writes, without seeing the last response."""

    def __init__(self, url: str, writes: int) -> None:
        super().__init__(url)
        self._left = writes

    def ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        answer = super().ask(method, path, body)
        if method != "GET":
            self._left -= 1
            if self._left == 0:
                raise Killed
        return answer


def test_everything_is_kept_and_both_are_equal(source: Service, target: Service) -> None:
    theirs, ours = RegistryClient(source.url), RegistryClient(target.url)
    found = import_registry(theirs, ours)
    assert (found.refused, found.differences) == ((), ())
    assert everything(target.url) == everything(source.url)
    again = import_registry(theirs, ours)
    assert again.plan.is_empty
    assert again.is_equal
    # New ids begin after the imported ones.
    highest = max(one.id for one in found.source.versions.values())
    ours.set_compatibility("next-value", "NONE")
    assert ours.register("next-value", text_of(record("q:int", name="Q"))).id > highest


def test_an_import_that_is_killed_after_each_write_is_resumed(
    source: Service, target: Service
) -> None:
    theirs, kills = RegistryClient(source.url), 0
    while True:
        try:
            # The mode IMPORT is written once, so each run gets one write further.
            found = import_registry(theirs, DiesAfterWrites(target.url, 1))
            break
        except Killed:
            kills += 1
            assert kills < 200
    assert found.is_equal
    assert kills >= 25
    assert everything(target.url) == everything(source.url)


def test_settings_and_a_mode_for_all_contexts_are_replaced(
    source: Service, target: Service
) -> None:
    rest = Rest(target.url)
    # It shows through the registry's own settings, which are equal to the source's until it goes.
    every = {"compatibility": "FORWARD", "normalize": True}
    rest("PUT", "/config/:.__GLOBAL:", every)
    rest("PUT", "/mode/:.__GLOBAL:", {"mode": "READONLY_OVERRIDE"})
    planned = import_registry(RegistryClient(source.url), RegistryClient(target.url), dry_run=True)
    named = {str(one) for one in planned.differences}
    assert ":.__GLOBAL: has another mode: READONLY_OVERRIDE" in named
    assert any(one.startswith(":.__GLOBAL: has other settings") for one in named)
    found = import_registry(RegistryClient(source.url), RegistryClient(target.url))
    assert (found.refused, found.differences) == ((), ())
    theirs, ours = everything(source.url), everything(target.url)
    for path in theirs:
        if path.startswith(("/config", "/mode")):  # a target that normalizes has other texts
            assert ours[path] == theirs[path], path
    rest.close()


def test_a_policy_of_the_target_stays(source: Service, target: Service) -> None:
    rest = Rest(target.url)
    theirs, ours = RegistryClient(source.url), RegistryClient(target.url)
    import_registry(theirs, ours)
    for scope in ("city-value", "a%2Ftrip%20%C3%A9"):
        assert rest("PUT", f"/config/{scope}", {"compatibility": "NONE"}).status == 200
    rest("PUT", "/config/city-value", {"policy": "avro"})
    assert import_registry(theirs, ours).is_equal
    assert rest("GET", "/config/city-value").body == {"policy": "avro"}
    assert rest("GET", "/config/a%2Ftrip%20%C3%A9").status == 404
    rest.close()


def test_settings_that_only_the_target_has_are_seen_in_the_first_run(
    source: Service, target: Service
) -> None:
    rest = Rest(target.url)
    only_there = {
        "city-value": {"compatibility": "NONE", "alias": "three-value"},  # without a version
        ":.eu:three-value": {"normalize": True},
        ":.eu:": {"compatibility": "FULL"},
    }
    for scope, config in only_there.items():
        assert rest("PUT", f"/config/{quote(scope)}", config).status == 200
    for scope in ("city-value", ":.eu:three-value"):
        assert rest("PUT", f"/mode/{quote(scope)}", {"mode": "READONLY"}).status == 200
    theirs, ours = RegistryClient(source.url), RegistryClient(target.url)
    planned = import_registry(theirs, ours, dry_run=True)
    named = {str(one) for one in planned.differences}
    assert ":.eu:three-value has other settings: normalize" in named
    assert "city-value has another mode: READONLY" in named
    found = import_registry(theirs, ours)
    assert (found.refused, found.differences) == ((), ())
    assert everything(target.url) == everything(source.url)
    rest.close()


def test_settings_of_a_context_that_only_the_target_has_are_removed(target: Service) -> None:
    there = Confluent([stored(":.eu:city-value", 1, 7, CITY)], [])
    rest = Rest(target.url)
    assert rest("PUT", "/config/:.eu:", {"compatibility": "FULL"}).status == 200
    assert rest("PUT", "/mode/:.eu:", {"mode": "READONLY"}).status == 200
    with served(there) as url:
        found = import_registry(RegistryClient(url, username=""), RegistryClient(target.url))
    assert (found.refused, found.differences) == ((), ())
    for path in ("/config/:.eu:", "/mode/:.eu:"):
        assert rest("GET", path).status == 404
    rest.close()


def test_a_standby_stays_closed_and_follows_its_source(
    tmp_path_factory: pytest.TempPathFactory, target: Service
) -> None:
    with start_registry(tmp_path_factory.mktemp("moving")) as moving:
        theirs, ours = RegistryClient(moving.url), RegistryClient(target.url)
        first, second = text_of(record("id:long")), text_of(record("id:long", "n:int=0"))
        theirs.register("moving-value", first)
        Rest(moving.url)("PUT", "/mode/moving-value", {"mode": "READONLY"})
        assert import_registry(theirs, ours, standby=True).is_equal
        assert ours.mode("other-value") == "IMPORT"
        Rest(moving.url)("PUT", "/mode/moving-value", {"mode": "READWRITE"})
        theirs.register("moving-value", second)
        Rest(moving.url)("PUT", "/mode/moving-value", {"mode": "READONLY"})
        found = import_registry(theirs, ours)
        assert found.is_equal
        assert len(found.plan.versions) == 1
        assert (ours.mode("other-value"), ours.mode("moving-value")) == ("READWRITE", "READONLY")


def test_a_target_with_other_content_is_refused_and_unchanged(
    source: Service, target: Service
) -> None:
    ours = RegistryClient(target.url)
    ours.register("own-value", text_of(record("own:int", name="Own")))
    before = everything(target.url)
    with pytest.raises(FindingsError, match=r"id 1 of .* belongs to own-value version 1 there"):
        import_registry(RegistryClient(source.url), ours)
    assert everything(target.url) == before


def test_the_command_copies_and_says_so(source: Service, target: Service) -> None:
    command = ("schema", "import", "--from", source.url, "--registry", target.url)
    planned = run_command(*command, "--dry-run", "--format", "json")
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["imported"] == 13
    assert RegistryClient(target.url).subjects() == []
    done = run_command(*command)
    assert done.returncode == 0, done.stderr
    assert "both registries were read again, and are equal" in done.stderr
    assert everything(target.url) == everything(source.url)


class Confluent:
    """A registry that answers as Confluent's does: no `deleted`, no policy, BACKWARD, its codes."""

    def __init__(self, versions: list[dict[str, Any]], deleted: list[tuple[str, int]]) -> None:
        self.versions = versions
        self.deleted = deleted
        self.configs: dict[str, dict[str, Any]] = {}
        self.authorizations: set[str | None] = set()

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        if path == "/schemas":
            hidden = set() if query.get("deleted") == ["true"] else set(self.deleted)
            rows = [one for one in self.versions if (one["subject"], one["version"]) not in hidden]
            first, limit = int(query["offset"][0]), 2  # a page may be shorter than asked for
            return 200, rows[first : first + limit]
        if path == "/config":
            return 200, {"compatibilityLevel": "BACKWARD"}
        if path.startswith("/config/"):
            config = self.configs.get(path.removeprefix("/config/"))
            missing = {"error_code": 40408, "message": "Subject does not have subject-level.."}
            return (404, missing) if config is None else (200, config)
        return 404, {"error_code": 40409, "message": "Subject does not have subject-level mode.."}


@contextmanager
def served(registry: Confluent) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.authorizations.add(self.headers.get("Authorization"))
            parts = urlsplit(self.path)
            status, body = registry.answer(parts.path, parse_qs(parts.query))
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def stored(
    subject: str, version: int, schema_id: int, schema: object, **more: Any
) -> dict[str, Any]:
    return {"subject": subject, "version": version, "id": schema_id} | {
        "schema": text_of(schema),
        **more,
    }


def test_a_registry_that_answers_as_confluents(target: Service) -> None:
    uses = {"name": "acme.City", "subject": "city-value", "version": 3}
    empty = {"tags": None, "properties": {"owner": "maps"}, "sensitive": None}
    there = Confluent(
        [
            stored("trip-value", 1, 7, TRIP, references=[uses], metadata=empty),
            # Its printer keeps the order of the text, and writes out what we shorten.
            stored(
                "city-value",
                3,
                100_001,
                {**CITY, "fields": [{"name": "n", "type": {"type": "string"}}]},
            ),
            stored("old-key", 2, 5, {"type": "string"}),
            stored(":.lsrc:city-value", 1, 7, CITY),
        ],
        deleted=[("old-key", 2)],
    )
    there.configs["city-value"] = {"compatibilityLevel": "FULL", "alias": None}
    with served(there) as url:
        ours = RegistryClient(target.url)
        found = import_registry(RegistryClient(url, username=""), ours)
    assert (found.refused, found.differences) == ((), ())
    assert ours.version("trip-value", 1).id == 7
    assert ours.version("city-value", 3).id == 100_001
    assert ours.version("old-key", 2, deleted=True).id == 5
    assert "old-key" not in ours.subjects()
    assert ours.compatibility("city-value").level == "FULL"
    assert ours.compatibility("trip-value").level == "BACKWARD"
    assert json.loads(ours.schema_text(7, ":.lsrc:city-value"))["name"] == "City"


def test_other_kinds_of_schemas_are_refused_before_anything_is_written(target: Service) -> None:
    there = Confluent(
        [stored("a-value", 1, 1, CITY), stored("b-value", 1, 2, "{}", schemaType="JSON")], []
    )
    with (
        served(there) as url,
        pytest.raises(FindingsError, match=r"Avro schemas only.*b-value version 1 \(JSON\)"),
    ):
        import_registry(RegistryClient(url, username=""), RegistryClient(target.url))
    assert everything(target.url)["subjects"] == []
    assert everything(target.url)["/mode"] == {"mode": "READWRITE"}


def test_the_users_password_is_not_sent_to_the_source(
    target: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from headworks._cli.schema import schema_app

    monkeypatch.setenv("HEADWORKS_USERNAME", "alice")
    monkeypatch.setenv("HEADWORKS_PASSWORD", "secret")
    there = Confluent([stored("a-value", 1, 1, CITY)], [])
    with served(there) as url:
        done = CliRunner().invoke(schema_app, ["import", "--from", url, "--registry", target.url])
    assert done.exit_code == 0
    assert there.authorizations == {None}


def test_a_refusal_names_the_mode_and_the_way_out(target: Service) -> None:
    from typer.testing import CliRunner

    from headworks._cli.schema import schema_app

    there = Confluent([stored("bad-value", 1, 1, {"type": "absent"})], [])
    with served(there) as url:
        done = CliRunner().invoke(schema_app, ["import", "--from", url, "--registry", target.url])
    error, ours = done.exception, RegistryClient(target.url)
    assert isinstance(error, FindingsError)
    assert "bad-value version 1" in error.message
    assert "stays in mode IMPORT" in error.message
    assert ours.mode("new-value") == "IMPORT"
    assert f'PUT {target.url}/mode with {{"mode": "READWRITE"}}' in (error.fix or "")
    ours.ask("PUT", "/mode", {"mode": "READWRITE"})
    assert ours.register("new-value", text_of(CITY)).id == 1


def test_a_refusal_leaves_no_subject_in_mode_import(target: Service) -> None:
    ours = RegistryClient(target.url)
    for scope in ("bad-value", ":.eu:", ":.__GLOBAL:"):
        ours.ask("PUT", f"/mode/{quote(scope)}", {"mode": "READONLY"})
    there = Confluent(
        [
            stored("bad-value", 1, 1, {"type": "absent"}),
            stored(":.eu:city-value", 1, 1, CITY),
        ],
        [],
    )
    with served(there) as url:
        found = import_registry(RegistryClient(url, username=""), ours)
    assert len(found.refused) == 1
    assert not found.is_equal
    ours.ask("PUT", "/mode", {"mode": "READWRITE"})
    for subject in ("bad-value", ":.eu:city-value", ":.us:x-value"):
        assert ours.mode(subject) == "READWRITE"
