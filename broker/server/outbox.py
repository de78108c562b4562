"""What a connection has to send, in order: bytes, and pieces of files by sendfile.

Rules: replies leave in the order in which their requests came, so a reply that is ready waits for
those before it. Nothing blocks: what the socket does not take stays, and `send` says so.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Sequence

from broker.log import Slice

__all__ = ["Outbox", "Slot"]

_MAX_JOIN = 1 << 18  # bytes of small pieces joined for one send


class Slot:
    """The place of one reply; `pieces` is None until the reply is there."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: Sequence[bytes | Slice] | None = None


class Outbox:
    """The replies of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.slots: deque[Slot] = deque()  # replies that are not there yet, or not sent
        self._pieces: deque[bytes | memoryview | Slice] = deque()

    def reserve(self) -> Slot:
        """The place of the next reply."""
        slot = Slot()
        self.slots.append(slot)
        return slot

    def send(self) -> bool:
        """Send what can be sent; True when nothing that is ready is left. Raises OSError."""
        slots, pieces = self.slots, self._pieces
        while slots and (ready := slots[0].pieces) is not None:
            pieces.extend(ready)
            slots.popleft()
        try:
            while pieces:
                if isinstance(pieces[0], Slice):
                    self._send_slice(pieces[0])
                else:
                    self._send_bytes()
        except BlockingIOError:
            return False
        return True

    def _send_bytes(self) -> None:
        """Send the bytes at the head, joined as far as they go."""
        pieces = self._pieces
        chunk = pieces.popleft()
        if pieces and not isinstance(pieces[0], Slice):
            parts, size = [chunk], len(chunk)
            while pieces and not isinstance(pieces[0], Slice) and size < _MAX_JOIN:
                parts.append(pieces.popleft())
                size += len(parts[-1])
            chunk = b"".join(parts)  # type: ignore[arg-type]
        more = socket.MSG_MORE if pieces else 0
        assert not isinstance(chunk, Slice)
        sent = 0
        try:
            sent = self._sock.send(chunk, more)
        finally:
            if sent < len(chunk):
                pieces.appendleft(memoryview(chunk)[sent:])

    def _send_slice(self, piece: Slice) -> None:
        sent = os.sendfile(self._sock.fileno(), piece.descriptor.fd, piece.position, piece.size)
        if not sent:
            raise OSError("a segment ended before the length that was promised")
        if sent < piece.size:
            self._pieces[0] = Slice(piece.descriptor, piece.position + sent, piece.size - sent)
        else:
            self._pieces.popleft()
