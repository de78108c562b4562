"""What it costs to be without a master: groups that balance themselves, over a real ZooKeeper.

- `rebalancing`: time and nodes written when a member joins or leaves, by members and partitions.
- `takeover`: from a member's death to the first message that its heir reads.
"""

from bench.coordination import rebalancing, takeover
from bench.frame import Bench

__all__ = ["TITLE", "run"]

TITLE = "Coordination"


def run(bench: Bench) -> None:
    """Measure all of it."""
    rebalancing.run(bench)
    takeover.run(bench)
