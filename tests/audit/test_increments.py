"""Which messages are no audit events, and which are not known yet."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from headworks._audit.increments import IncrementDecoder
from headworks._wire import prefix
from headworks.errors import CorruptError, RefusedError, UnreachableError
from headworks.registry_client import RegistryClient

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("status", "ends"), [(401, UnreachableError), (404, CorruptError)])
def test_only_a_missing_schema_makes_a_message_unreadable(
    status: int, ends: type[Exception]
) -> None:
    refused = RefusedError("no", status=status, fix="set registry_password")
    decode = IncrementDecoder(RegistryClient("http://127.0.0.1:1"))
    with (
        patch.object(RegistryClient, "schema_text", side_effect=refused),
        pytest.raises(ends, match="no"),
    ):
        decode(prefix(7) + b"x")
