"""The produce requests of one connection: staged where they lie, written and answered together.

Rules: the batches of a pass stay in the receive buffer until `commit`, and one `commit` writes them
all. What a request has to wait for is handed back, and the request is not taken: it comes again.
Errors of the log are answers; whatever else goes wrong is the connection's to end with.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

from headworks._broker.handlers import Client
from headworks._broker.handlers.coalesced_produce import coalesce
from headworks._broker.handlers.node import Node
from headworks._broker.handlers.produce import PendingProduce, StagedProduce, commit
from headworks._broker.handlers.record_validation import ValidationResult
from headworks._broker.server.receive_buffer import ReceiveBuffer
from headworks._broker.server.send_queue import ReplySlot, SendQueue
from headworks._broker.server.validation_queue import ValidationQueue
from headworks._kafka.protocol import APIS, Header, MalformedError
from headworks._kafka.protocol import produce as messages
from headworks._kafka.protocol.apis import ApiKey

__all__ = ["ProducePipeline"]


class ProducePipeline:
    """Takes produce requests out of `received`; `fill` and `close` are the connection's.

    `since` is when the bytes came that are being handled.
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
        self._seconds = node.counters.seconds[ApiKey.PRODUCE]
        self._inspector = ValidationQueue(node)
        self._repeats = messages.ProduceTemplate()
        self._staged: list[StagedProduce] = []
        self._committing = False
        self._answered = 0  # of what is being committed

    def coalesce(self, most: int, largest: int, since: float) -> bool:
        """Stage the requests that repeat the last one; False if the next does not."""
        received, repeats = self._received, self._repeats
        alike = repeats.following(received.buffer, received.start, received.end, largest)
        run = coalesce(self._node, repeats, alike, received.buffer, most, self)
        if run is None:
            return False
        if run.acks:
            run.place = self._replies.reserve(since, len(run))
        self._staged.append(run)
        received.start = run.after
        return True

    def take(
        self, header: Header, position: int, stop: int, since: float
    ) -> Coroutine[Any, Any, None] | None:
        """Stage the request at `position`..`stop`, unless it has to wait: then for what."""
        if header.version > APIS[ApiKey.PRODUCE].maximum or header.version < 0:
            raise MalformedError(f"API produce version {header.version} is not served")
        buffer = self._received.buffer
        request = messages.parse_request(buffer, header.body, stop, header.version)
        self._repeats.learn(buffer, position, header, request)
        inspection = self._inspector.look(self.client, request, buffer)
        if not isinstance(inspection, ValidationResult):
            return inspection
        self._counters.requests[ApiKey.PRODUCE] += 1
        slot = self._replies.reserve(since) if request.acks else None
        production = PendingProduce(header, request.acks, self, slot)
        self._staged.append(production)
        production.stage(self._node, request, buffer, inspection)
        return None

    def commit(self, since: float) -> None:
        """Write what is staged, and answer what has not to wait for the disk."""
        if not self._staged:
            return
        staged, self._staged = self._staged, []
        self._committing, self._answered = True, 0
        try:
            commit(staged)
        finally:
            self._committing = False
        if self._answered:  # they came together: one look at the clock for all
            self._seconds.observe(monotonic() - since, self._answered)

    def produced(self, place: ReplySlot, frame: bytes) -> None:
        """The answer to a produce request; its place in the order was kept."""
        if self._committing:
            self._answered += place.count
        else:
            self._seconds.observe(monotonic() - place.arrived_at, place.count)
        self._fill(place, (frame,))
