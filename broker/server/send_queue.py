"""What a connection has to send, in order: bytes, and pieces of files.

Rules: replies leave in the order in which their requests came, so a reply that is ready waits for
those before it. What still waits after a `send` is accounted for by `settle`; what leaves at once
costs nothing. Nothing blocks: what the socket does not take stays, and `send` says so. Files go by
sendfile where the transport can, and otherwise pass through memory a bounded piece at a time.
However fast a client reads, others get their turn after a few megabytes.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Sequence

from headworks._broker.server.byte_stream import Transport
from headworks._broker.server.limits import Account
from headworks._kafka.records.file_slice import FileSlice

__all__ = ["Outbox", "Slot"]

_MAX_JOIN = 1 << 18  # bytes of small pieces joined for one send, or read from a file
_MOST_AT_ONCE = 8 << 20


class Slot:
    """The place of the reply to one request, or to `count` that are answered together.

    `pieces` is None until the reply is there.
    """

    __slots__ = ("count", "pieces", "since")

    def __init__(self, since: float, count: int = 1) -> None:
        self.pieces: Sequence[bytes | FileSlice] | None = None
        self.since = since  # when the request came
        self.count = count


class Outbox:
    """The replies of one connection; `account` is the connection's."""

    def __init__(self, transport: Transport, account: Account) -> None:
        self._account = account
        self._charged = 0  # of what is held, as far as that was settled
        self._send = transport.send
        self._fd = transport.sock.fileno()
        self._send_slice = self._send_file if transport.sends_files else self._load_file
        self.held = 0  # bytes in memory that wait to be sent
        self.sent = 0
        self.waiting = 0  # requests whose reply is not there yet, or not on its way
        self._slots: deque[Slot] = deque()
        self._pieces: deque[bytes | memoryview | FileSlice] = deque()

    def reserve(self, since: float, count: int = 1) -> Slot:
        """The place of the reply to a request, or to several, that came then."""
        slot = Slot(since, count)
        self._slots.append(slot)
        self.waiting += count
        return slot

    def fill(self, slot: Slot, pieces: Sequence[bytes | FileSlice]) -> None:
        """The reply for a place; to be followed by `send` and `settle`."""
        slot.pieces = pieces
        for piece in pieces:
            if not isinstance(piece, FileSlice):
                self.held += len(piece)

    def settle(self) -> bool:
        """Account for what waits now; False if the memory that all share has no room for it."""
        more = self.held - self._charged
        if more > 0 and not self._account.take(more):
            return False
        if more < 0:
            self._account.give(-more)
        self._charged = self.held
        return True

    def send(self) -> bool:
        """Send what can be sent now; True when nothing ready is left. Raises OSError."""
        slots, pieces = self._slots, self._pieces
        while slots and (ready := slots[0].pieces) is not None:
            pieces.extend(ready)
            self.waiting -= slots.popleft().count
        enough = self.sent + _MOST_AT_ONCE
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
        """Let go of everything, whoever still holds a connection that has ended."""
        self._slots.clear()
        self._pieces.clear()

    def _send_bytes(self) -> None:
        """Send the bytes at the head, joined as far as they go."""
        pieces = self._pieces
        chunk = pieces.popleft()
        if pieces and not isinstance(pieces[0], FileSlice):
            parts, size = [chunk], len(chunk)
            while pieces and not isinstance(pieces[0], FileSlice) and size < _MAX_JOIN:
                parts.append(pieces.popleft())
                size += len(parts[-1])
            chunk = b"".join(parts)  # type: ignore[arg-type]
        more = socket.MSG_MORE if pieces else 0
        assert not isinstance(chunk, FileSlice)
        sent = 0
        try:
            sent = self._send(chunk, more)
            self.held -= sent
            self.sent += sent
        finally:
            if sent < len(chunk):
                pieces.appendleft(memoryview(chunk)[sent:])

    def _send_file(self, piece: FileSlice) -> None:
        size = min(piece.size, _MOST_AT_ONCE)
        sent = os.sendfile(self._fd, piece.descriptor.fd, piece.position, size)
        self.sent += sent
        self._pass_over(piece, sent)

    def _load_file(self, piece: FileSlice) -> None:
        data = os.pread(piece.descriptor.fd, min(piece.size, _MAX_JOIN), piece.position)
        self._pass_over(piece, len(data))
        self.held += len(data)
        self._pieces.appendleft(data)

    def _pass_over(self, piece: FileSlice, size: int) -> None:
        """So much of the piece at the head is on its way."""
        if not size:
            raise OSError("a segment ended before the length that was promised")
        if size < piece.size:
            self._pieces[0] = FileSlice(piece.descriptor, piece.position + size, piece.size - size)
        else:
            self._pieces.popleft()
