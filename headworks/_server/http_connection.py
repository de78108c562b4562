"""One HTTP connection, with limits on the head of a request.

Rules:

- The request line and the headers have at most MAX_HEAD_BYTES and HEAD_SECONDS. The parser itself
  would read forever.
- The application limits the body. It sees by WHOLE_BODY if there is nothing to wait for: most
  bodies come with their heads.
"""

from __future__ import annotations

import asyncio
import json

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 10.0
WHOLE_BODY = "headworks.whole_body"  # the key in the scope of a request whose body is here
_REASONS = {408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


class BoundedConnection(HttpToolsProtocol):
    """uvicorn's connection, which also ends when a head is too long or too slow."""

    _in_head = True  # whether the head of a request is being read
    _head_size = 0  # bytes of that head so far
    _deadline: asyncio.TimerHandle | None = None  # closes the connection if the head is slow

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer of the first head."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Start to count a head."""
        self._in_head, self._head_size = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Stop counting: the head is complete."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Mark the request, so that the application need not limit the time of its body."""
        self.scope[WHOLE_BODY] = True  # type: ignore[literal-required]
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Pass data to the parser, and refuse a head that is too long."""
        super().data_received(data)
        if not self._in_head:
            if self._deadline is not None:
                self._stop_timer()
            return
        self._head_size += len(data)
        if self._head_size > MAX_HEAD_BYTES:
            self._refuse(431, f"the request's headers are longer than {MAX_HEAD_BYTES} bytes")
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def _too_slow(self) -> None:
        if self._head_size:
            self._refuse(408, f"the request's headers did not arrive within {HEAD_SECONDS:.0f} s")
        else:
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, status: int, message: str) -> None:
        if self.transport.is_closing():
            return
        body = json.dumps({"error_code": status, "message": message}).encode()
        head = (
            b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n"
        )
        self.transport.write(head % (status, _REASONS[status], len(body)) + body)
        self.transport.close()
