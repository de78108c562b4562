"""HTTP basic: names and passwords, verified against the file of users.

Rules:

- Deriving a key from a password takes milliseconds. A few threads do it, for a bounded number of
  requests at a time. A request that finds the queue full is asked to retry.
- Right and wrong passwords are cached in two separate caches, so that wrong ones cannot evict right
  ones. An entry is valid only while the user's secret stays the same.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from headworks._server.security import Principal, Secret, Users

MAX_WAITING_PASSWORDS = 64
_MAX_CACHED_CREDENTIALS = 4096
_Cache = OrderedDict[bytes, tuple[str, Secret | None]]


class TooManyPasswordsError(Exception):
    """The queue of passwords to verify is full."""


class PasswordVerifier:
    """Verifies passwords; used by one event loop. Raises UsageError if the file is unreadable."""

    def __init__(self, users: Users) -> None:
        self._users = users  # the file of users, reloaded when it changes
        threads = max(1, (os.cpu_count() or 1) // 2)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="passwords")
        self._waiting = 0  # requests whose password is queued or being verified
        self._right: _Cache = OrderedDict()  # by hash of the header: name and secret
        self._wrong: _Cache = OrderedDict()  # the same for passwords that failed

    def cached(self, mark: bytes) -> Principal | None:
        """Return the user of verified credentials, or None if unknown or no longer right."""
        found = self._right.get(mark)
        if found is None or self._users.secret(found[0]) != found[1]:
            return None
        return Principal(found[0])

    async def verify(self, mark: bytes, name: str, password: str) -> Principal | None:
        """Return the user, or None if the password is wrong. Raises TooManyPasswordsError."""
        secret = self._users.secret(name)
        if self._wrong.get(mark) == (name, secret):
            return None
        if self._waiting >= MAX_WAITING_PASSWORDS:
            raise TooManyPasswordsError
        self._waiting += 1
        try:
            right = await asyncio.get_running_loop().run_in_executor(
                self._pool, self._users.verify, name, password
            )
        finally:
            self._waiting -= 1
        cache = self._right if right else self._wrong
        cache[mark] = (name, secret)
        cache.move_to_end(mark)
        if len(cache) > _MAX_CACHED_CREDENTIALS:
            cache.popitem(last=False)
        return Principal(name) if right else None

    def close(self) -> None:
        """End the threads; queued passwords are dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)
