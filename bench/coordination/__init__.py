"""What it costs to be without a master, over a real ZooKeeper, and what a mirror moves.

- `rebalancing`: time and nodes written when a member joins or leaves, by members and partitions.
- `takeover`: from a member's death to the first message that its heir reads.
- `mirror`: MB/s between two clusters, beside a plain consumer and a plain producer.
"""

from bench.coordination import mirror, rebalancing, takeover
from bench.frame import Bench

__all__ = ["TITLE", "run"]

TITLE = "Coordination"


def run(bench: Bench) -> None:
    """Measure all of it."""
    rebalancing.run(bench)
    takeover.run(bench)
    mirror.run(bench)
