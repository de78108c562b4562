"""The replies that a connection has to send, in order: bytes, and slices of files.

Rules:

- Replies leave in the order of their requests. A reply that is ready waits for those before it.
- Nothing blocks. Bytes that the socket does not accept stay in the queue, and `send` reports it.
- `settle` charges the connection for the bytes that wait after a `send`. Bytes that leave at once
  cost nothing.
- Slices of files leave by sendfile. Over TLS, or without sendfile, they pass through memory,
  256 KiB at a time.
- One `send` sends 8 MiB at most, so that a fast client does not keep the others waiting.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence

from headworks import _system_calls
from headworks._broker.server.byte_stream import ByteStream
from headworks._broker.server.limits import MemoryAccount
from headworks._kafka.records.file_slice import FileSlice

_MAX_JOINED_BYTES = 1 << 18  # small pieces joined for one send, or bytes read from a file
_MAX_TURN_BYTES = 8 << 20


class ReplySlot:
    """The place of the reply to one request, or to `count` requests that are answered together."""

    __slots__ = ("arrived_at", "count", "pieces")

    def __init__(self, arrived_at: float, count: int = 1) -> None:
        self.pieces: Sequence[bytes | FileSlice] | None = None  # None until the reply is ready
        self.arrived_at = arrived_at  # when the request arrived
        self.count = count  # of requests


class SendQueue:
    """The replies of one connection, which pays for them from `account`."""

    def __init__(self, stream: ByteStream, account: MemoryAccount) -> None:
        self._account = account
        self._charged = 0  # bytes of `unsent` that the account was charged for
        self._send = stream.send
        self._fd = stream.sock.fileno()
        self._send_slice = self._send_file if stream.sends_files else self._load_file
        self.unsent = 0  # bytes of ready replies in memory; file slices do not count
        self.sent = 0  # bytes sent since the connection was accepted
        self.waiting = 0  # requests whose reply is not ready, or behind one that is not
        self._slots: deque[ReplySlot] = deque()  # of these requests
        self._pieces: deque[bytes | memoryview | FileSlice] = deque()  # ready to be sent

    def reserve(self, arrived_at: float, count: int = 1) -> ReplySlot:
        """Return the place of the reply to the next request, or to the next `count` requests."""
        slot = ReplySlot(arrived_at, count)
        self._slots.append(slot)
        self.waiting += count
        return slot

    def fill(self, slot: ReplySlot, pieces: Sequence[bytes | FileSlice]) -> None:
        """Put the reply into its place. The caller calls `send` and `settle` afterwards."""
        slot.pieces = pieces
        for piece in pieces:
            if not isinstance(piece, FileSlice):
                self.unsent += len(piece)

    def settle(self) -> bool:
        """Charge the account for the unsent bytes. Return False if the pool lacks the memory."""
        more = self.unsent - self._charged
        if not more:
            return True
        if more > 0 and not self._account.try_allocate(more):
            return False
        if more < 0:
            self._account.release(-more)
        self._charged = self.unsent
        return True

    def send(self) -> bool:
        """Send as much as possible. Return True if no ready reply is left. Raises OSError."""
        slots, pieces = self._slots, self._pieces
        while slots and (ready := slots[0].pieces) is not None:
            pieces.extend(ready)
            self.waiting -= slots.popleft().count
        enough = self.sent + _MAX_TURN_BYTES
        try:
            while pieces:
                if self.sent >= enough:
                    return False
                if isinstance(pieces[0], FileSlice):
                    self._send_slice(pieces[0])
                else:
                    self._send_bytes()
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Free the replies, even if something still refers to the closed connection."""
        self._slots.clear()
        self._pieces.clear()

    def _send_bytes(self) -> None:
        """Send the bytes at the head, joined with the bytes that follow."""
        pieces = self._pieces
        chunk = pieces.popleft()
        if pieces and not isinstance(pieces[0], FileSlice):
            parts, size = [chunk], len(chunk)
            while pieces and not isinstance(pieces[0], FileSlice) and size < _MAX_JOINED_BYTES:
                parts.append(pieces.popleft())
                size += len(parts[-1])
            chunk = b"".join(parts)  # type: ignore[arg-type]
        more = _system_calls.MSG_MORE if pieces else 0
        assert not isinstance(chunk, FileSlice)
        sent = 0
        try:
            sent = self._send(chunk, more)
            self.unsent -= sent
            self.sent += sent
        finally:
            if sent < len(chunk):
                pieces.appendleft(memoryview(chunk)[sent:])

    def _send_file(self, piece: FileSlice) -> None:
        size = min(piece.size, _MAX_TURN_BYTES)
        sent = _system_calls.send_file(self._fd, piece.descriptor.fd, piece.position, size)
        self.sent += sent
        self._advance(piece, sent)

    def _load_file(self, piece: FileSlice) -> None:
        data = os.pread(piece.descriptor.fd, min(piece.size, _MAX_JOINED_BYTES), piece.position)
        self._advance(piece, len(data))
        self.unsent += len(data)
        self._pieces.appendleft(data)

    def _advance(self, piece: FileSlice, size: int) -> None:
        """Take `size` bytes off the piece at the head."""
        if not size:
            raise OSError("a segment ended before the length that was promised")
        if size < piece.size:
            self._pieces[0] = FileSlice(piece.descriptor, piece.position + size, piece.size - size)
        else:
            self._pieces.popleft()
