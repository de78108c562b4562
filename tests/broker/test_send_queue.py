"""The send queue of a connection: waiting bytes are accounted for, sent ones are not."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from headworks._broker.server.byte_stream import PlainByteStream, prepare
from headworks._broker.server.limits import MemoryAccount, MemoryPool
from headworks._broker.server.send_queue import SendQueue

pytestmark = pytest.mark.e2e

_FREE = 256 << 10
_MOST = 1 << 20


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Ours, and a client's that takes little before it reads."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(listener.getsockname())
        ours, _ = listener.accept()
        with ours:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            prepare(ours)
            yield ours, client


def test_what_leaves_at_once_takes_no_memory(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, client = ends
    memory = MemoryPool(0)
    replies = SendQueue(PlainByteStream(ours), MemoryAccount(memory))
    for _ in range(1000):
        replies.fill(replies.reserve(0.0), (b"x" * 1000,))
        assert replies.send()
        assert replies.settle()
        assert len(client.recv(1000, socket.MSG_WAITALL)) == 1000
    assert not memory.exhausted


def test_what_waits_is_accounted_for_until_it_is_read(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, client = ends
    memory = MemoryPool(_MOST)
    replies = SendQueue(PlainByteStream(ours), MemoryAccount(memory))
    first = replies.reserve(0.0)
    accounted, filled = True, 0
    while accounted:
        replies.fill(replies.reserve(0.0), (bytes(50_000),))
        filled += 50_000
        assert replies.send(), "nothing may leave before the first"
        before, accounted = memory.available, replies.settle()
        taken = memory.size - memory.available
        assert not accounted or taken == max(0, replies.unsent - _FREE)
    assert memory.available == before
    assert filled - 50_000 <= _MOST + _FREE < filled
    replies.fill(first, (b"first",))
    got = bytearray()
    while not replies.send() or len(got) < filled + 5:
        replies.settle()
        got += client.recv(1 << 16)
    assert got.startswith(b"first")
    assert replies.settle()
    assert (replies.unsent, memory.available) == (0, _MOST)
