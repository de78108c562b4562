"""The TLS handshake of one connection, which comes before everything else.

Rules: nothing blocks, and every handshake ends: in success, in an error, or at its time limit. The
log line of a failed handshake names the probable cause.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

_PLAINTEXT = "it is not TLS: a plaintext client?"
_HINTS = {
    "WRONG_VERSION_NUMBER": _PLAINTEXT,
    "HTTP_REQUEST": _PLAINTEXT,
    "HTTPS_PROXY_REQUEST": _PLAINTEXT,
    "UNKNOWN_PROTOCOL": _PLAINTEXT,
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust who signed this broker's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client refuses this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client refuses this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client says that this broker's certificate has expired",
}


class Handshake:
    """Calls `done` once, with "" or with the error. The socket stays open."""

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
            reason = error.reason or str(error)
            hint = f"; {_HINTS[reason]}" if reason in _HINTS else ""
            self._end(f"TLS handshake failed: {reason}{hint}")
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
