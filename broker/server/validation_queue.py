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
from headworks._broker.handlers.dead_letters import create_missing_topic
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
        # The request that waits: a large one with its bytes, or what another one lacks
        self._large: tuple[Sequence[BatchToValidate], bytes] | None = None
        self._incomplete: ValidationResult | None = None
        # For the next call of `validate` for the same request
        self._result: ValidationResult | None = None  # of the thread
        self._looked_up = False  # whether the registry was asked for its ids
        self._created = False  # whether a missing topic for dead letters was to be created

    def validate(
        self, client: Client, request: ProduceRequest, buffer: bytearray
    ) -> ValidationResult | None:
        """Return the result. If it is None, await `finish`, and call this again."""
        result, self._result = self._result, None
        if result is not None:
            return result
        looked_up, created = self._looked_up, self._created
        self._looked_up = self._created = False
        if not self._node.hosted.opened_topics:
            return NOT_VALIDATED
        batches = batches_to_validate(self._node, client, request, buffer)
        if not batches:
            return NOT_VALIDATED
        if is_large(batches):
            self._large = batches, bytes(buffer)
            return None
        result = validate_batches(batches, buffer, self._node.hosted.schema_ids)
        if (result.unknown_ids and not looked_up) or (not created and self._missing_topics(result)):
            self._incomplete = result
            return None
        return result

    async def finish(self) -> None:
        """Do what the request waits for: validate it in a thread, or look up what it lacks."""
        ids = self._node.hosted.schema_ids
        large, self._large = self._large, None
        incomplete, self._incomplete = self._incomplete, None
        if large is not None:
            result = await self._validate_aside(*large)
            if result.unknown_ids and ids is not None:
                await ids.look_up(result.unknown_ids)
                result = await self._validate_aside(*large)
            await self._create_topics(result)
            self._result = result
        elif incomplete is not None:
            if incomplete.unknown_ids and ids is not None:
                await ids.look_up(incomplete.unknown_ids)
            self._looked_up = True
            self._created = await self._create_topics(incomplete)

    def _missing_topics(self, result: ValidationResult) -> set[str]:
        wanted = {letters.topic for letters in result.dead_letters.values()}
        return wanted - self._node.hosted.topics.keys()

    async def _create_topics(self, result: ValidationResult) -> bool:
        """Create the missing topics for dead letters. Return whether there were any."""
        missing = self._missing_topics(result)
        for topic in sorted(missing):
            await create_missing_topic(self._node, topic)
        return bool(missing)

    async def _validate_aside(
        self, batches: Sequence[BatchToValidate], buffer: bytes
    ) -> ValidationResult:
        ids = self._node.hosted.schema_ids
        async with self._node.validation_lock:
            return await asyncio.to_thread(validate_batches, batches, buffer, ids)
