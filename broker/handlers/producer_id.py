"""InitProducerId: a producer id for an idempotent producer, which is never assigned twice."""

from __future__ import annotations

from headworks._broker.coordination import StoreFailureError
from headworks._broker.handlers.node import Node, Request
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.messages import Fields

__all__ = ["init_producer_id"]

_MAX_EPOCH = (1 << 15) - 1


async def init_producer_id(node: Node, request: Request) -> Fields:
    """Return a new id, or the next epoch of the producer's id. Transactions are an error."""
    message = request.message
    if not request.may_use_broker():
        return {
            "error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "producer_id": -1,
            "producer_epoch": -1,
        }
    if message.transactional_id is not None:
        return {
            "error_code": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "producer_id": -1,
            "producer_epoch": -1,
        }
    producer_id = getattr(message, "producer_id", -1)
    epoch = getattr(message, "producer_epoch", -1)
    if producer_id >= 0 and 0 <= epoch < _MAX_EPOCH:
        return {
            "error_code": ErrorCode.NONE,
            "producer_id": producer_id,
            "producer_epoch": epoch + 1,
        }
    try:
        new = await node.coordination.allocate_producer_ids(1)
    except StoreFailureError:  # every client retries this code
        return {
            "error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE,
            "producer_id": -1,
            "producer_epoch": -1,
        }
    return {"error_code": ErrorCode.NONE, "producer_id": new, "producer_epoch": 0}
