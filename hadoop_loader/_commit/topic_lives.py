"""Whether a topic is still the one that was loaded. Pure.

Rules:

- Offsets belong to one topic of one cluster. A commit names both by their ids (KIP-516).
- A topic that was made again begins a new life: it is loaded from its first message on, and
  `_topic_life` keeps the rows of both lives apart.
- Another cluster is refused, because its offsets are others. `load move` accepts it.
- A commit of an earlier release has no ids. The first load that knows them records them.
"""

from __future__ import annotations

from collections.abc import Collection

from hadoop_loader._commit.commit_record import Commit
from hadoop_loader._fetch.log_identity import LogIdentity
from headworks.errors import UsageError


def check_cluster(last: Commit | None, found: LogIdentity) -> None:
    """Raise UsageError if the offsets of `last` are of another cluster than `found`."""
    if last is not None and last.cluster and found.cluster and last.cluster != found.cluster:
        raise UsageError(
            f"the warehouse was loaded from cluster {last.cluster}, and this one is "
            f"{found.cluster}: offsets of one mean nothing in the other",
            fix="give the address of the first one; or, to continue with another cluster, run "
            "`headworks load move --from OLD --to NEW`",
        )


def is_new_life(last: Commit | None, found: LogIdentity, topic: str) -> bool:
    """Return whether a topic was made again since messages of it were loaded."""
    if last is None or not last.offsets.get(topic):
        return False
    known, now = last.topic_ids.get(topic), found.topics.get(topic)
    return known is not None and now is not None and known != now


def check_same_topic(last: Commit, found: LogIdentity, topic: str) -> None:
    """Raise UsageError if a topic is not the one whose offsets are in `last`."""
    check_cluster(last, found)
    if is_new_life(last, found, topic):
        raise UsageError(
            f"topic {topic} was deleted and made again since its last load",
            fix="run `headworks load run` first: it loads the new topic from its first message on",
        )


def changed_topics(before: LogIdentity, after: LogIdentity, topics: Collection[str]) -> list[str]:
    """Return the topics that were made again, or deleted, between two looks at the log."""
    return sorted(t for t in topics if before.topics.get(t) != after.topics.get(t))
