"""The transaction coordinator of a broker: the state machine, and what carries it out."""

from headworks._broker.transactions.rules import Asker, InitRequest
from headworks._broker.transactions.transaction_coordinator import (
    TransactionCoordinator,
    TransactionSettings,
)

__all__ = ["Asker", "InitRequest", "TransactionCoordinator", "TransactionSettings"]
