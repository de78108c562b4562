"""The cost of having no master, over a real ZooKeeper, and the rate of a mirror.

- `failover`: from a broker's death until the others report it, its groups continue, and it is back.
- `writes`: the writes of brokers to ZooKeeper, idle, for topics, and for offsets of groups.
- `rebalancing`: time and nodes written when a member joins or leaves, by members and partitions.
- `takeover`: from a member's death to the first message that its successor reads.
- `mirror`: MB/s between two clusters, beside a plain consumer and a plain producer.
"""

from bench.coordination import failover, mirror, rebalancing, takeover, writes
from bench.frame import Bench

TITLE = "Coordination"

_SECTIONS = (failover.run, writes.run, rebalancing.run, takeover.run, mirror.run)


def run(bench: Bench) -> None:
    """Measure all of it."""
    for section in _SECTIONS:
        section(bench)
