"""The identity of a data folder: the cluster and the broker id to which its partitions belong.

Rules: the identity is written once, before the broker registers, and checked at every start. With
another broker's folder, or an empty one, a broker would serve its partitions without their
messages. The caller holds the lock of the folder.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from headworks._atomic_file import replace_file
from headworks.errors import CorruptError, UsageError

_FILE_NAME = "cluster.json"
_LOCAL_STORE_NAME = "coordination.sqlite"
_PARTITION = re.compile(r"[A-Za-z0-9._-]{1,249}-(0|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class FolderIdentity:
    """The identity of a folder."""

    folder: str  # its unique name
    cluster: str  # the cluster id
    broker: int  # the broker id


def claim_folder(path: Path, cluster: str, broker: int) -> FolderIdentity:
    """Return the identity of a folder, writing it if it has none.

    Raises UsageError if the folder belongs to another broker or cluster.
    """
    known = _read(path)
    if known is None:
        if (path / _LOCAL_STORE_NAME).exists():
            raise UsageError(
                f"the data folder {path} belongs to a broker that runs without ZooKeeper: its"
                f" topics are not known to the cluster",
                fix="give another --data-dir, and copy the messages with `headworks mirror`",
            )
        known = FolderIdentity(uuid.uuid4().hex, cluster, broker)
        replace_file(path / _FILE_NAME, json.dumps(asdict(known)))
    if (known.cluster, known.broker) != (cluster, broker):
        raise UsageError(
            f"the data folder {path} belongs to broker {known.broker} of cluster {known.cluster},"
            f" and this is broker {broker} of cluster {cluster}",
            fix=f"give --broker-id {known.broker} and the ZooKeeper (with its chroot) of that"
            f" cluster, or another --data-dir",
        )
    return known


def refuse_cluster_folder(path: Path) -> None:
    """Raise UsageError if the folder belongs to a broker of a cluster, with topics in ZooKeeper."""
    known = _read(path)
    if known is not None:
        raise UsageError(
            f"the data folder {path} belongs to broker {known.broker} of cluster {known.cluster}",
            fix=f"give --zookeeper and --broker-id {known.broker}, or another --data-dir",
        )


def partition_folders(logs: Path) -> list[Path]:
    """Return the folders in `logs` that hold the log of a partition, by their names and files."""
    if not logs.is_dir():
        return []
    return [
        path
        for path in sorted(logs.iterdir())
        if _PARTITION.fullmatch(path.name) and path.is_dir() and any(path.glob("*.log"))
    ]


def _read(path: Path) -> FolderIdentity | None:
    file = path / _FILE_NAME
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
        return FolderIdentity(str(fields["folder"]), str(fields["cluster"]), int(fields["broker"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CorruptError(
            f"{file} cannot be read: {error!r}",
            fix="restore it from a copy of the folder (docs/backup.md); it never changes",
        ) from None
