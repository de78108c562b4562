"""The transaction coordinator of a broker: the state machine, and what carries it out."""

from headworks._broker.transactions.rules import Asker, InitRequest, TransactionSettings
from headworks._broker.transactions.transaction_coordinator import TransactionCoordinator

__all__ = ["Asker", "InitRequest", "TransactionCoordinator", "TransactionSettings"]
