"""Which schema ids mean the same in two registries, whatever the language of their schemas."""

from __future__ import annotations

import pytest

from headworks._mirror.schema_ids import SchemaIdCheck
from headworks._wire import prefix
from headworks.errors import FindingsError
from headworks.registry_client import RegistryClient
from tests.registry.prepared_server import prepared_server

pytestmark = pytest.mark.contract

PROTOBUF = 'syntax = "proto3"; message Click { int64 id = 1; }'


def compare(there: str, here: str) -> None:
    def answer(path: str, text: str) -> tuple[int, object]:
        is_list = path.startswith("/schemas/ids/7/versions")
        return 200, [] if is_list else {"schema": text, "schemaType": "PROTOBUF"}

    with (
        prepared_server(lambda path: answer(path, there)) as (source, _),
        prepared_server(lambda path: answer(path, here)) as (target, _),
    ):
        check = SchemaIdCheck(RegistryClient(source), RegistryClient(target), copy=False)
        check.check(prefix(7) + b"x", lambda: "t-0 at 3")


@pytest.mark.parametrize(
    ("there", "here"), [(PROTOBUF, PROTOBUF), ('["null","long"]', '["null", "long"]')]
)
def test_the_same_schema_passes(there: str, here: str) -> None:
    compare(there, here)


@pytest.mark.parametrize("here", [PROTOBUF.replace("1", "2"), '"string"'])
def test_another_schema_stops_the_mirror(here: str) -> None:
    with pytest.raises(FindingsError, match="t-0 at 3 is written in schema 7, which is one schema"):
        compare(PROTOBUF, here)
