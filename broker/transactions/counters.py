"""The counters of transactions since the start: plain numbers, which the metrics read."""

from __future__ import annotations

from dataclasses import dataclass

from headworks._broker.coordination.transaction_store import ProducerTransaction, TransactionState


@dataclass(slots=True)
class TransactionCounters:
    """Counted since the start; the numbers only grow."""

    committed: int = 0  # transactions
    aborted: int = 0  # transactions, for whatever reason
    fenced: int = 0  # producers whose epoch the broker ended

    def count(self, complete: ProducerTransaction) -> None:
        """Count a transaction that has completed."""
        if complete.state is TransactionState.COMPLETE_COMMIT:
            self.committed += 1
        else:
            self.aborted += 1
