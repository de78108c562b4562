"""HTTP basic: names and passwords, against the file of users.

Rules:

- Deriving a key from a password costs milliseconds: it is done on few threads, for a bounded
  number of requests at a time. Whoever comes when that is full is asked to come again.
- What was right is remembered, and so is what was wrong, in two memories: wrong passwords cannot
  push out right ones. Both hold only as long as the user's secret stays what it was.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from headworks._server.security import Principal, Secret, Users

__all__ = ["MAX_WAITING_PASSWORDS", "PasswordVerifier", "TooManyPasswordsError"]

MAX_WAITING_PASSWORDS = 64
_MAX_CACHED_CREDENTIALS = 4096
_Memory = OrderedDict[bytes, tuple[str, Secret | None]]


class TooManyPasswordsError(Exception):
    """So many passwords wait to be checked that one more is not taken."""


class PasswordVerifier:
    """Checks passwords; used by one event loop. Raises UsageError if the file is unreadable."""

    def __init__(self, users: Users) -> None:
        self._users = users
        workers = max(1, (os.cpu_count() or 1) // 2)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="passwords")
        self._waiting = 0
        self._right: _Memory = OrderedDict()
        self._wrong: _Memory = OrderedDict()

    def known(self, mark: bytes) -> Principal | None:
        """Whose credentials these are, if they were checked before and are still right."""
        found = self._right.get(mark)
        if found is None or self._users.secret(found[0]) != found[1]:
            return None
        return Principal(found[0])

    async def check(self, mark: bytes, name: str, password: str) -> Principal | None:
        """Whose password this is, or None. Raises TooManyError."""
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
        memory = self._right if right else self._wrong
        memory[mark] = (name, secret)
        memory.move_to_end(mark)
        if len(memory) > _MAX_CACHED_CREDENTIALS:
            memory.popitem(last=False)
        return Principal(name) if right else None

    def close(self) -> None:
        """End the threads; what waits is dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)
