"""The produce requests of one connection: staged in place, written and answered together.

Rules: the batches of a read pass stay in the receive buffer until `commit`, which writes them all.
A request that must wait for its validation is not taken, and is offered again. An error of the log
is an answer. Any other error ends the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from headworks._broker.handlers import Client
from headworks._broker.handlers.coalesced_produce import coalesce
from headworks._broker.handlers.node import Node
from headworks._broker.handlers.produce import PendingProduce, StagedProduce, commit
from headworks._broker.server.receive_buffer import ReceiveBuffer
from headworks._broker.server.send_queue import ReplySlot, SendQueue
from headworks._broker.server.validation_queue import ValidationQueue
from headworks._kafka.protocol import ApiKey, RequestHeader
from headworks._kafka.protocol import produce as messages

_PRODUCE = int(ApiKey.PRODUCE)


class ProducePipeline:
    """Takes produce requests out of `received`; `fill` and `close` are the connection's.

    `arrived_at` is when the bytes of the present read pass arrived.
    """

    def __init__(
        self,
        node: Node,
        client: Client,
        received: ReceiveBuffer,
        replies: SendQueue,
        fill: Callable[[ReplySlot, tuple[bytes, ...]], None],
        close: Callable[[str], None],
    ) -> None:
        self.client = client
        self.close = close
        self._node, self._received, self._replies, self._fill = node, received, replies, fill
        self._counters = node.counters
        self._seconds = node.counters.seconds[_PRODUCE]
        self._validations = ValidationQueue(node)
        self._template = messages.ProduceTemplate()
        self._staged: list[StagedProduce] = []  # since the last commit
        self._committing = False  # whether `commit` is running: it observes the times of replies
        self._answered = 0  # requests that it has answered

    def take_matching(self, limit: int, max_bytes: int, arrived_at: float) -> bool:
        """Stage up to `limit` requests that match the last one. False if the next does not."""
        received, template = self._received, self._template
        matches = template.matches(received.buffer, received.start, received.end, max_bytes)
        staged = coalesce(self._node, template, matches, received.buffer, limit, self)
        if staged is None:
            return False
        if staged.acks:
            staged.slot = self._replies.reserve(arrived_at, staged.count)
        self._staged.append(staged)
        received.start = staged.after
        return True

    def take(self, header: RequestHeader, arrived_at: float) -> bool:
        """Stage a request. If the result is False, await `validated`, and offer it again."""
        buffer = self._received.buffer
        request = messages.parse_request(buffer, header.body, header.end, header.version)
        self._template.learn(buffer, header, request)
        result = self._validations.validate(self.client, request, buffer)
        if result is None:
            return False
        self._counters.requests[_PRODUCE] += 1
        slot = self._replies.reserve(arrived_at) if request.acks else None
        produce = PendingProduce(header, request.acks, self, slot)
        self._staged.append(produce)
        produce.stage(self._node, request, buffer, result)
        return True

    async def validated(self) -> None:
        """Wait until the request that was not taken can be taken."""
        await self._validations.finish()

    def commit(self, arrived_at: float) -> None:
        """Write the staged batches, and answer the requests that do not wait for the disk."""
        if not self._staged:
            return
        staged, self._staged = self._staged, []
        self._committing, self._answered = True, 0
        try:
            commit(staged)
        finally:
            self._committing = False
        if self._answered:  # they arrived together: read the clock once for all
            self._seconds.observe(monotonic() - arrived_at, self._answered)

    def produced(self, slot: ReplySlot, frame: bytes) -> None:
        """Reply to produce requests, in the place that was reserved for them."""
        if self._committing:
            self._answered += slot.count
        else:
            self._seconds.observe(monotonic() - slot.arrived_at, slot.count)
        self._fill(slot, (frame,))
