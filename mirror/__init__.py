"""The mirror: copies topics from one cluster, or several, into another, at least once each.

- `options`: what it is told; the clients' properties for both sides.
- `topics`: which topics, how many partitions; creates them on the target.
- `schema_ids`: both registries agree on each schema id met, or are made to.
- `reader`, `sender`: the two sides; `trouble`: which errors another try may overcome.
- `session`: one life of a reader and a sender; commits what the target acknowledged.
- `stream`: one source, session after session.
- `tier`: what was copied, as a tier of the audit.
- `progress`: what was copied and what lags, for the metrics; `metrics` shows it.
- `run`: the process.

Rules: both sides are reached by Kafka's protocol alone, so either may be Apache Kafka. Nothing in
here knows the broker of this package.
"""

from headworks._mirror.options import MirrorOptions, MirrorSource, read_properties
from headworks._mirror.run import run

__all__ = ["MirrorOptions", "MirrorSource", "read_properties", "run"]
