"""Another form in which commits are published, as far as transactions know it.

`_iceberg.publisher` is the one there is.

Rule: publishing can be repeated, and never fails a commit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from hadoop_loader._commit.commit_record import Commit


class Snapshots(Protocol):
    """Publishes the tables as each commit leaves them."""

    @property
    def problems(self) -> Mapping[str, str]:
        """The topics whose last commit could not be published, and why."""
        ...

    @property
    def outdated(self) -> Collection[str]:
        """The topics among them that can be published once their files are rewritten."""
        ...

    def publish(self, commit: Commit) -> None:
        """Publish everything up to a commit whose files are in place."""
        ...

    def release(self, commit: Commit, tables: Collection[str], number: int) -> bool:
        """Stop using files that commit `number` replaced, before they are removed.

        `commit`: the last one. `tables`: the tables over files, as they were named. Returns False
        if the files are still needed.
        """
        ...
