"""The TLS handshake of one connection, before anything else happens on it.

Rules: nothing blocks, and it ends: well, in an error, or when its time is up. Whoever fails it is
closed with a line in the log that says what they probably are.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

__all__ = ["Handshake"]

_PLAINTEXT = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL"}


class Handshake:
    """Calls `done` once, with "" or with what went wrong; the socket is left open."""

    def __init__(self, sock: ssl.SSLSocket, seconds: float, done: Callable[[str], None]) -> None:
        self._sock = sock
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(
            seconds, self._end, f"TLS handshake not done within {seconds:g} s"
        )
        self._loop.add_reader(sock, self._step)
        self._writing = False

    def cancel(self) -> None:
        """Stop, without calling `done`."""
        self._timer.cancel()
        self._loop.remove_reader(self._sock)
        if self._writing:
            self._loop.remove_writer(self._sock)

    def _step(self) -> None:
        wants_write = False
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            wants_write = True
        except ssl.SSLError as error:
            hint = "; it is not TLS: a plaintext client?" if error.reason in _PLAINTEXT else ""
            self._end(f"TLS handshake failed: {error.reason or error}{hint}")
            return
        except OSError as error:
            self._end(f"TLS handshake failed: {error}")
            return
        else:
            self._end("")
            return
        if wants_write and not self._writing:
            self._loop.add_writer(self._sock, self._step)
        elif self._writing and not wants_write:
            self._loop.remove_writer(self._sock)
        self._writing = wants_write

    def _end(self, failure: str) -> None:
        self.cancel()
        self._done(failure)
