"""RegistryClient's listing: pages that join, whatever changes in between."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import pytest

from headworks import _version_lines
from headworks.errors import RefusedError, UnreachableError
from headworks.registry_client import RegistryClient
from tests.registry.prepared_server import prepared_server
from tests.waiting import PATIENCE

pytestmark = pytest.mark.e2e

PAGE = 1000


@contextmanager
def listing(versions: Callable[[int], Sequence[int]]) -> Iterator[tuple[RegistryClient, list[str]]]:
    """Yield the client of a server that lists what `versions` returns for an offset."""

    def answer(path: str) -> tuple[int, object]:
        if path.startswith("/subjects"):
            return 200, []
        found = versions(int(parse_qs(urlsplit(path).query)["offset"][0]))
        return 200, [{"subject": f"{n:05}", "version": 1, "id": n, "schema": "x"} for n in found]

    with prepared_server(answer) as (url, requests):
        yield RegistryClient(url), requests


def ids(client: RegistryClient) -> list[int]:
    return [one.id for one in client.list_versions("a b")]


def test_a_long_listing_is_read_in_pages_that_join() -> None:
    # A registry may give fewer than were asked for, and has more all the same.
    def versions(offset: int) -> Sequence[int]:
        return range(6100)[offset : offset + (52 if offset == 1998 else PAGE)]

    with listing(versions) as (client, requests):
        assert ids(client) == [*range(6100)]
    prefix = "GET /schemas?subjectPrefix=a%20b&latestOnly=false&offset="
    needed = [0, 999, 1998, 2049, 3048, 4047, 5046, 6045, 6099]
    assert {f"{prefix}{at}&limit=1000" for at in needed} <= {*requests}
    assert len(requests) <= len(needed) + 4


def test_two_pages_are_requested_at_a_time() -> None:
    both = threading.Barrier(2, timeout=PATIENCE)
    served: list[int] = []

    def slow(offset: int) -> Sequence[int]:
        served.append(offset)
        return range(4000)[offset : offset + PAGE]

    with listing(slow) as (client, _):
        real = client._request

        def request(method: str, path: str) -> object:
            if "offset=1998&" in path or "offset=2997&" in path:
                both.wait()
            return real(method, path)

        client._request = request  # type: ignore[method-assign, assignment]
        assert ids(client) == [*range(4000)]
    assert {1998, 2997} <= {*served}


@pytest.mark.parametrize("there", [0, 1, 2, 1000, 1500])
def test_a_registry_without_pages_returns_the_whole_list(there: int) -> None:
    with listing(lambda _: range(there)) as (client, requests):
        assert ids(client) == [*range(there)]
        assert len(requests) <= 2


@pytest.mark.parametrize("after", range(1, 10))
@pytest.mark.parametrize(
    "then",
    [range(1, 6100), range(-1, 6100), [*range(2500), *range(2501, 6100)], range(900)],
    ids=["first deleted", "one before registered", "one within deleted", "most deleted"],
)
def test_a_listing_that_shifts_between_pages_misses_and_repeats_nothing(
    after: int, then: Sequence[int]
) -> None:
    asked = itertools.count(1)

    def versions(offset: int) -> Sequence[int]:
        return (then if next(asked) > after else range(6100))[offset:][:PAGE]

    with listing(versions) as (client, _):
        found = ids(client)
    if after >= 7 and found == [*range(6100)]:
        return  # it had been read before
    assert found == sorted(found)
    assert len(found) == len({*found})
    assert {*then} <= {*found} <= {*then, 2500}  # 2,500 may have been read before it was deleted


def test_a_listing_that_never_holds_still_ends() -> None:
    numbers = itertools.count()

    def versions(_: int) -> Sequence[int]:
        first = next(numbers)
        return range(first, first + PAGE)

    with (
        listing(versions) as (client, _),
        pytest.raises(UnreachableError, match="change faster than they can be listed"),
    ):
        client.list_versions()


def test_a_listing_ends_where_enough_are_known() -> None:
    with listing(lambda offset: range(9000)[offset : offset + PAGE]) as (client, requests):
        assert len(client.list_versions(limit=2500)) == 2998
        assert len(requests) == 3


def test_a_list_in_lines_is_the_list() -> None:
    texts = ['"int"', '{"type":"record"}', "a\nb", "é"]
    versions = [
        {
            "subject": "s",
            "version": n,
            "id": n,
            "guid": f"g{n}",
            "schemaType": "AVRO",
            "schema": text,
            "ts": 7,
            "aliases": ["a"],
        }
        for n, text in enumerate(texts, 1)
    ]

    def lines(path: str) -> tuple[int, object]:
        offset = int(parse_qs(urlsplit(path).query)["offset"][0])
        return 200, _version_lines.encode(versions[offset:])

    with (
        prepared_server(lines, content_type=_version_lines.CONTENT_TYPE) as (url, _),
        prepared_server(lambda _: (200, versions)) as (plain, _),
    ):
        assert RegistryClient(url).list_objects("") == versions
        found = RegistryClient(url).list_versions()
        assert found == RegistryClient(plain).list_versions()
    assert [one.text for one in found] == texts


def test_a_list_in_lines_that_lacks_one_is_refused() -> None:
    with (
        prepared_server(
            lambda _: (200, b'[{"subject":"s","version":1}]'),
            content_type=_version_lines.CONTENT_TYPE,
        ) as (url, _),
        pytest.raises(RefusedError, match="is not a schema registry"),
    ):
        RegistryClient(url).list_versions()


VERSIONS = {
    ("a-value", 1): False,
    ("a-value", 2): False,
    ("a-value", 3): True,
    ("b-value", 1): False,
}
FOREIGN_LISTS: tuple[object, ...] = ([], [{"schema": '"int"'}] * 3)


@contextmanager
def foreign(listed: object, gone: tuple[str, int] | None = None) -> Iterator[RegistryClient]:
    """A registry that has Confluent's interface, but for the list of versions.

    It ignores prefixes, and `gone` is deleted after its number was read; 0: the whole subject.
    """

    def answer(path: str) -> tuple[int, object]:
        parts = urlsplit(path).path.strip("/").split("/")
        deleted = "deleted=true" in path
        shown = [key for key, is_deleted in VERSIONS.items() if deleted or not is_deleted]
        if parts[0] == "schemas":
            return 200, listed
        if parts == ["subjects"]:
            return 200, sorted({subject for subject, _ in shown})
        numbers = [number for subject, number in shown if subject == parts[1]]
        if len(parts) == 3 and gone != (parts[1], 0):
            return 200, numbers
        if len(parts) == 3:
            return 404, {"error_code": 40401, "message": "no such subject"}
        number = int(parts[3])
        if number not in numbers or (parts[1], number) == gone:
            return 404, {"error_code": 40402, "message": "no such version"}
        at = [*VERSIONS].index((parts[1], number))
        return 200, {"subject": parts[1], "version": number, "id": at, "schema": '"int"'}

    with prepared_server(answer) as (url, _):
        yield RegistryClient(url)


@pytest.mark.parametrize("listed", FOREIGN_LISTS)
def test_a_registry_that_lists_no_versions_is_asked_for_each(listed: object) -> None:
    with foreign(listed) as client:

        def keys(prefix: str = "", **more: bool) -> list[tuple[str, int]]:
            return [(one.subject, one.version) for one in client.list_versions(prefix, **more)]

        live = [key for key, is_deleted in VERSIONS.items() if not is_deleted]
        for everywhere in ("", ":*:"):
            assert keys(everywhere) == live
            assert keys(everywhere, deleted=True) == [*VERSIONS]
            assert keys(everywhere, latest_only=True) == [("a-value", 2), ("b-value", 1)]
        assert keys("b") == [("b-value", 1)]
        assert keys("c") == []
        assert keys(only_listed=True) == []
        assert len(client.list_versions(limit=2)) == 2
        assert [one["id"] for one in client.list_objects(":*:", deleted=True)] == [0, 1, 2, 3]


def test_a_version_that_is_deleted_in_between_is_left_out() -> None:
    with foreign([], gone=("a-value", 1)) as client:
        assert [one.version for one in client.list_versions("a")] == [2]
    with foreign([], gone=("a-value", 0)) as client:
        assert [one.subject for one in client.list_versions()] == ["b-value"]
