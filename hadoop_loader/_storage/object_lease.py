"""The lock of a warehouse in S3: a lease that its holder renews while it lives.

Rules:

- An object store notices no death. A lease that was not renewed for a while is free. Its age is
  measured by the store's clock: two machines' clocks are never compared.
- A holder that cannot renew the lease stops well before that, and checks it before every step. It
  may still be paused right after a check. So a lease is no fence, and its holder never removes what
  another loader could still commit (`transaction`).
- A store that ignores conditional writes is refused, because a commit is one.
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

_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class LeaseTimeouts:
    """The times of a lease, in seconds."""

    expiry_seconds: float = 30.0  # a lease not renewed for this long is free
    trusted_seconds: float = 20.0  # its holder stops this long after the last renewal
    renewal_seconds: float = 5.0  # its holder renews it this often
    request_timeout_seconds: float = 5.0  # the store may take this long to answer


LEASE_TIMEOUTS = LeaseTimeouts()


class S3Lock:
    """The lock of a warehouse in S3; UsageError, with the holder, if it is taken."""

    record_folder = None
    fenced = False

    def __init__(self, file: S3Path, timeouts: LeaseTimeouts = LEASE_TIMEOUTS) -> None:
        self._file = file
        self._warehouse = file.parent.parent
        self._timeouts = timeouts
        self._bucket = replace(file.bucket, seconds=timeouts.request_timeout_seconds)
        self._writer = uuid.uuid4().hex  # identifies this holder in the object's metadata
        self._lost = False  # another loader has taken the lease
        self._released = threading.Event()  # ends the renewal thread
        check_conditional_writes(self._bucket, file.with_name("probe").key)
        self._renewed_at = _read_clocks()  # when the last successful write began
        self._etag = self._take()  # the tag of our last write
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise UnreachableError if another loader may hold the lease by now."""
        if self._lost or _seconds_since(self._renewed_at) > self._timeouts.trusted_seconds:
            raise UnreachableError(
                f"the loader's hold on warehouse {self._warehouse} broke: "
                "it could not be renewed in time",
                fix="run again: nothing is lost, and the next run finishes the work of this one",
            )

    def release(self) -> None:
        """Release the lease; if the store cannot be reached, the lease expires."""
        self._released.set()
        self._thread.join()
        with suppress(OSError, HeadworksError):
            self._write(self._etag, free=True)

    def _take(self) -> str:
        found = self._read()
        try:
            if found is None:
                return self._bucket.create(self._file.key, self._text(free=False))
            if not _is_released(found):
                self._outlive(found)
            self._renewed_at = _read_clocks()
            return self._write(found.etag, free=False)
        except FileExistsError:
            raise in_use(self._warehouse, "one that began at the same moment") from None

    def _outlive(self, found: StoredObject) -> None:
        """Wait until a lease has expired; UsageError if its holder renews it meanwhile."""
        until = time.monotonic() + self._timeouts.expiry_seconds - found.age
        while time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
            now = self._read()
            if now is None or now.etag != found.etag:
                raise in_use(self._warehouse, str(json.loads(found.data)["holder"]))

    def _renew(self) -> None:
        """Renew the lease until `release`; a lost response does not lose the lease."""
        while not self._released.wait(self._timeouts.renewal_seconds):
            began = _read_clocks()
            try:
                self._etag = self._write(self._etag, free=False)
                self._renewed_at = began
            except FileExistsError:
                self._recover_lost_response()
            except (OSError, HeadworksError):
                continue
            if self._lost:
                return

    def _recover_lost_response(self) -> None:
        with suppress(OSError, HeadworksError):
            found = self._read()
            self._lost = found is None or found.writer != self._writer
            if found is not None and not self._lost:
                self._etag = found.etag

    def _read(self) -> StoredObject | None:
        try:
            return self._bucket.get(self._file.key)
        except FileNotFoundError:
            return None

    def _write(self, etag: str, *, free: bool) -> str:
        return self._bucket.replace(self._file.key, self._text(free=free), etag, self._writer)

    def _text(self, *, free: bool) -> bytes:
        """Return a text that no other write has: an entity tag may depend on the content alone."""
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        lease = {"holder": holder, "free": free, "writing": uuid.uuid4().hex}
        return json.dumps(lease).encode()


class WarehouseInUseError(UsageError):
    """The lock of a warehouse is taken."""


def in_use(warehouse: object, holder: str) -> WarehouseInUseError:
    """Return the error for a warehouse whose lock is taken."""
    return WarehouseInUseError(
        f"warehouse {warehouse} is in use by another loader, {holder}",
        fix="wait until it is done, or stop it: the next load finishes its work",
    )


def check_conditional_writes(bucket: Bucket, key: str) -> None:
    """Raise UsageError if the store overwrites an object despite If-None-Match or If-Match."""
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
        f"bucket {bucket.name} cannot hold a warehouse: its store does not honor {header}, "
        "and a commit is a conditional write",
        fix="use S3 itself, or another store that has conditional writes",
    )


def _is_released(found: StoredObject) -> bool:
    return bool(json.loads(found.data)["free"])


def _read_clocks() -> tuple[float, float]:
    """Return two clocks: the first stops while the machine sleeps, the second can be set."""
    return time.monotonic(), time.time()


def _seconds_since(then: tuple[float, float]) -> float:
    return max(now - before for now, before in zip(_read_clocks(), then, strict=True))
