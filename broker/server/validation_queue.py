"""Validate the produce requests of one connection, at once or while the request waits.

Rules: a request that needs the registry, or has many records, stays first in its connection until
it is validated. Nothing is therefore appended out of order, and the event loop serves the other
connections meanwhile. A thread validates large requests one after the other, from a copy, so that
only one of them is decompressed at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

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


class ValidationQueue:
    """The validation of one connection's requests; it holds at most one."""

    def __init__(self, node: Node) -> None:
        self._node = node
        # The request that waits: a large one with its bytes, or one with unknown schema ids
        self._large: tuple[Sequence[BatchToValidate], bytes] | None = None
        self._unknown: ValidationResult | None = None
        # What the next call of `validate` knows about the same request
        self._result: ValidationResult | None = None  # of the thread
        self._looked_up = False  # whether the registry was asked for its ids

    def validate(
        self, client: Client, request: ProduceRequest, buffer: bytearray
    ) -> ValidationResult | None:
        """Return the result. If it is None, await `finish`, and call this again."""
        result, self._result = self._result, None
        if result is not None:
            return result
        if not self._node.hosted.opens_batches:
            return NOT_VALIDATED
        batches = batches_to_validate(self._node, client, request, buffer)
        if is_large(batches):
            self._large = batches, bytes(buffer)
            return None
        result = validate_batches(batches, buffer, self._node.hosted.schema_ids)
        if result.unknown_ids and not self._looked_up:
            self._unknown = result
            return None
        self._looked_up = False
        return result

    async def finish(self) -> None:
        """Do what the request waits for: validate it in a thread, or ask the registry."""
        ids = self._node.hosted.schema_ids
        (large, self._large), (unknown, self._unknown) = (self._large, None), (self._unknown, None)
        if large is not None:
            result = await self._validate_aside(*large)
            if result.unknown_ids and ids is not None:
                await ids.look_up(result.unknown_ids)
                result = await self._validate_aside(*large)
            self._result = result
        elif unknown is not None:
            if ids is not None:
                await ids.look_up(unknown.unknown_ids)
            self._looked_up = True

    async def _validate_aside(
        self, batches: Sequence[BatchToValidate], buffer: bytes
    ) -> ValidationResult:
        ids = self._node.hosted.schema_ids
        async with self._node.validation_lock:
            return await asyncio.to_thread(validate_batches, batches, buffer, ids)
