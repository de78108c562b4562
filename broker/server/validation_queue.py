"""When a connection's produce requests are looked into: at once, or while the request waits.

Rules: a request that needs the registry, or has much to be looked at, stays first in its connection
until that is done, so nothing is appended out of order; meanwhile the loop serves the others. Large
requests are looked at one after the other, in a thread, from a copy: the memory for what they
become is that of one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from headworks._broker.handlers.client import Client
from headworks._broker.handlers.node import Node
from headworks._broker.handlers.record_validation import (
    NOT_VALIDATED,
    BatchToValidate,
    ValidationResult,
    batches_to_validate,
    is_large,
    validate_batches,
)
from headworks._kafka.protocol.produce import ProduceRequest

__all__ = ["ValidationQueue"]


class ValidationQueue:
    """Of one connection."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._looked_up = False  # the request at hand has waited for the registry
        self._found: ValidationResult | None = None  # about the request at hand

    def look(
        self, client: Client, request: ProduceRequest, buffer: bytearray
    ) -> ValidationResult | Coroutine[Any, Any, None]:
        """What is wrong with the request; or what to wait for before it is shown again."""
        found, self._found = self._found, None
        if found is not None:
            return found
        if not self._node.hosted.validates_records:
            return NOT_VALIDATED
        ids = self._node.hosted.schema_ids
        asked = batches_to_validate(self._node, client, request, buffer)
        if is_large(asked):
            return self._look_aside(asked, bytes(buffer))
        found = validate_batches(asked, buffer, ids)
        if found.unknown_ids and not self._looked_up:
            return self._look_up(found)
        self._looked_up = False
        return found

    async def _look_up(self, found: ValidationResult) -> None:
        ids = self._node.hosted.schema_ids
        if ids is not None:
            await ids.look_up(found.unknown_ids)
        self._looked_up = True

    async def _look_aside(self, asked: Sequence[BatchToValidate], buffer: bytes) -> None:
        ids = self._node.hosted.schema_ids
        async with self._node.validation_lock:
            found = await asyncio.to_thread(validate_batches, asked, buffer, ids)
        if found.unknown_ids and ids is not None:
            await ids.look_up(found.unknown_ids)
            async with self._node.validation_lock:
                found = await asyncio.to_thread(validate_batches, asked, buffer, ids)
        self._found = found
