"""InitProducerId: a producer id for an idempotent producer, which is never assigned twice.

A transactional producer gets the id and the next epoch of its transactional id. This fences earlier
producers of the same id, and aborts what they left open.
"""

from __future__ import annotations

from headworks._broker.coordination import StoreFailureError
from headworks._broker.handlers.node import Node, Request
from headworks._broker.handlers.transactional import error_of
from headworks._broker.transactions import InitRequest
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.messages import Fields
from headworks.errors import RefusedError

_MAX_EPOCH = (1 << 15) - 1
_FENCED_FROM = 4  # the version that knows PRODUCER_FENCED


async def init_producer_id(node: Node, request: Request) -> Fields:
    """Return a new id, or the next epoch of the producer's id."""
    message = request.message
    if not request.may_use_broker():
        return _answer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if message.transactional_id is not None:
        return await _transactional(node, request)
    producer_id = getattr(message, "producer_id", -1)
    epoch = getattr(message, "producer_epoch", -1)
    if producer_id >= 0 and 0 <= epoch < _MAX_EPOCH:
        return _answer(ErrorCode.NONE, producer_id, epoch + 1)
    try:
        new = await node.coordination.allocate_producer_ids(1)
    except StoreFailureError:  # every client retries this code
        return _answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _answer(ErrorCode.NONE, new, 0)


async def _transactional(node: Node, request: Request) -> Fields:
    message = request.message
    if node.transactions is None:
        request.client.wants_transactions(request.header.key, request.header.client_id)
        return _answer(ErrorCode.UNSUPPORTED_VERSION)
    asked = InitRequest(
        message.transactional_id,
        request.client.principal.name,
        int(message.transaction_timeout.total_seconds() * 1000),
        getattr(message, "producer_id", -1),
        getattr(message, "producer_epoch", -1),
    )
    try:
        found = await node.transactions.initialize(asked)
    except RefusedError as error:
        return _answer(error_of(error, fenced=request.version >= _FENCED_FROM))
    return _answer(ErrorCode.NONE, found.producer_id, found.epoch)


def _answer(error: ErrorCode, producer_id: int = -1, epoch: int = -1) -> Fields:
    return {"error_code": error, "producer_id": producer_id, "producer_epoch": epoch}
