"""One loader at a time on a warehouse in a bucket: a lease that its holder renews while it lives.

Rules:

- An object store notices nobody's death. A lease is anybody's when it was not renewed for a while,
  by the store's own clock; no two machines' clocks are compared.
- A holder that cannot renew it stops well before that, and looks before every step. It may fall
  asleep behind the look: so a lease is no fence, and its holder must remove nothing that another
  loader could still commit (`work` sees to that).
- A store that does not honour conditional writes is refused: a commit is one.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace

from hadoop_loader._storage.object_store import Bucket, StoredObject
from hadoop_loader._storage.s3 import S3Path
from headworks.errors import HeadworksError, UnreachableError, UsageError

__all__ = ["LEASE_TIMEOUTS", "LeaseTimeouts", "S3Lock"]

_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class LeaseTimeouts:
    """Seconds: a lease not renewed for so long is anybody's; its holder gives up after; renews.

    `answered`: how long the store may take for an answer about it.
    """

    expiry_seconds: float = 30.0
    trusted_seconds: float = 20.0
    renewal_seconds: float = 5.0
    request_timeout_seconds: float = 5.0


LEASE_TIMEOUTS = LeaseTimeouts()


class S3Lock:
    """The lock of a warehouse in S3; UsageError, naming the holder, if it is taken."""

    record_folder = None
    fenced = False

    def __init__(self, file: S3Path, terms: LeaseTimeouts = LEASE_TIMEOUTS) -> None:
        self._file = file
        self._terms = terms
        self._bucket = replace(file.bucket, seconds=terms.request_timeout_seconds)
        self._me = uuid.uuid4().hex
        self._lost = False
        self._done = threading.Event()
        check_conditional_writes(self._bucket, file.with_name("probe").key)
        self._began = _read_clocks()
        self._etag = self._take()
        self._renewing = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._renewing.start()

    def check(self) -> None:
        """UnreachableError if it may be another loader's by now."""
        if self._lost or _seconds_since(self._began) > self._terms.trusted_seconds:
            raise UnreachableError(
                f"the loader's hold on {self._warehouse} broke: it could not be renewed in time",
                fix="run again: nothing is lost, the next run takes up what this one left",
            )

    def release(self) -> None:
        """Give the lock back; where that cannot be said, it ends by itself."""
        self._done.set()
        self._renewing.join()
        with suppress(OSError, HeadworksError):
            self._write(self._etag, free=True)

    @property
    def _warehouse(self) -> str:
        return f"warehouse {self._file.parent.parent}"

    def _take(self) -> str:
        found = self._look()
        try:
            if found is None:
                return self._bucket.create(self._file.key, self._text(free=False))
            if not _is_released(found):
                self._outlive(found)
            self._began = _read_clocks()
            return self._write(found.etag, free=False)
        except FileExistsError:
            raise self._taken("one that began at the same moment") from None

    def _outlive(self, found: StoredObject) -> None:
        """Return when a lease is nobody's any more; UsageError if it is renewed meanwhile."""
        until = time.monotonic() + self._terms.expiry_seconds - found.age
        while time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
            now = self._look()
            if now is None or now.etag != found.etag:
                raise self._taken(str(json.loads(found.data)["holder"]))

    def _renew(self) -> None:
        """Renew it again and again; a lost answer does not lose the lease."""
        while not self._done.wait(self._terms.renewal_seconds):
            began = _read_clocks()
            try:
                self._etag = self._write(self._etag, free=False)
                self._began = began
            except FileExistsError:
                self._take_up_lost_answer()
            except (OSError, HeadworksError):
                continue
            if self._lost:
                return

    def _take_up_lost_answer(self) -> None:
        with suppress(OSError, HeadworksError):
            found = self._look()
            self._lost = found is None or found.writer != self._me
            if found is not None and not self._lost:
                self._etag = found.etag

    def _look(self) -> StoredObject | None:
        try:
            return self._bucket.get(self._file.key)
        except FileNotFoundError:
            return None

    def _write(self, etag: str, *, free: bool) -> str:
        return self._bucket.replace(self._file.key, self._text(free=free), etag, self._me)

    def _text(self, *, free: bool) -> bytes:
        """What is no other writing's text, for a tag may be made of nothing else."""
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        said = {"holder": holder, "free": free, "writing": uuid.uuid4().hex}
        return json.dumps(said).encode()

    def _taken(self, holder: str) -> UsageError:
        return UsageError(
            f"{self._warehouse} is in use by another loader, {holder}",
            fix="wait until it is done, or stop it: the next load finishes what it leaves",
        )


def check_conditional_writes(bucket: Bucket, key: str) -> None:
    """UsageError if the store writes an object that is there, though asked not to."""
    with suppress(FileExistsError):
        bucket.create(key, b"1")
    try:
        bucket.create(key, b"2")
    except FileExistsError:
        with suppress(FileExistsError):
            bucket.replace(key, b"3", '"another"', "")
            raise _unsupported(bucket, "If-Match") from None
        return
    raise _unsupported(bucket, "If-None-Match")


def _unsupported(bucket: Bucket, header: str) -> UsageError:
    return UsageError(
        f"bucket {bucket.name} cannot hold a warehouse: its store does not honour {header}, "
        "and a commit is a conditional write",
        fix="use S3 itself, or another store that has conditional writes",
    )


def _is_released(found: StoredObject) -> bool:
    return bool(json.loads(found.data)["free"])


def _read_clocks() -> tuple[float, float]:
    """Two clocks: one does not go on while a machine sleeps, the other may be set."""
    return time.monotonic(), time.time()


def _seconds_since(began: tuple[float, float]) -> float:
    return max(now - then for now, then in zip(_read_clocks(), began, strict=True))
