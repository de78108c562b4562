"""The mirror: copies topics from one or more clusters into another, at least once each message.

- `options`: its options, and the client properties of both sides.
- `topics`: which topics with how many partitions; creates them on the target.
- `schema_ids`: checks that both registries agree on each schema id, or copies the schema.
- `reader`, `sender`: the two sides; `errors`: which Kafka errors end a session.
- `session`: one life of a reader and a sender; commits what the target acknowledged.
- `stream`: one source, session after session.
- `audit_tier`: the copied messages as a tier of the audit.
- `progress`: copied messages and lag; `metrics` shows them.
- `run`: the process.

Rules: both sides are reached by Kafka's protocol alone, so either may be Apache Kafka. Nothing in
here knows the broker of this package.
"""

from headworks._mirror.options import MirrorOptions, MirrorSource, read_properties
from headworks._mirror.run import run

__all__ = ["MirrorOptions", "MirrorSource", "read_properties", "run"]
