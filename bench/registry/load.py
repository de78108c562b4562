"""A load generator: HTTP/1.1 over raw sockets, one request in flight on each connection.

Rules:

- Only the status and the length are parsed, so that the client is never the bottleneck: it reaches
  several times the servers' rates.
- Any reply other than 200 ends the run.
- Latencies are of every single request, from the moment it is written.
- A connection that the server closed between two requests is opened again, as every client does.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

from headworks.errors import UsageError

_TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True, slots=True)
class Load:
    """The result of a run: requests, seconds, and the latencies in seconds, ascending."""

    count: int
    seconds: float
    latencies: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.count / self.seconds

    def percentile_ms(self, share: float) -> float:
        """The latency that this share of the requests stayed below, in milliseconds."""
        return 1000 * self.latencies[min(len(self.latencies) - 1, int(share * self.count))]


def get(path: str) -> bytes:
    """A GET request."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {_TYPE}\r\n\r\n".encode()


def post(path: str, body: bytes) -> bytes:
    """A POST request."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {_TYPE}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class _Connection:
    """One connection, and the answer that it is reading."""

    __slots__ = ("_address", "_poll", "answer", "began", "request", "sock")

    def __init__(self, address: str, poll: select.epoll) -> None:
        self._address = address
        self._poll = poll
        self.answer = b""
        self.began = 0.0
        self.request = b""
        self._connect()

    def _connect(self) -> None:
        host, _, port = self._address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=60)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._poll.register(self.sock.fileno(), select.EPOLLIN)

    def send(self, request: bytes) -> None:
        self.answer = b""
        self.request = request
        self.began = time.perf_counter()
        self.sock.sendall(request)

    def reconnect(self) -> None:
        """Open the connection again, and repeat the request; its time goes on."""
        if self.answer:
            raise UsageError("the server closed the connection in the middle of an answer")
        self.sock.close()
        self._connect()
        self.sock.sendall(self.request)

    def is_answered(self, data: bytes) -> bool:
        """Take what has come; whether the answer is whole."""
        self.answer += data
        end = self.answer.find(b"\r\n\r\n")
        if end < 0:
            return False
        if not self.answer.startswith(b"HTTP/1.1 200"):
            raise UsageError(f"not the answer of a benchmark: {self.answer[:300]!r}")
        head = self.answer[:end].lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        return len(self.answer) >= end + 4 + length


def drive(
    address: str,
    requests: Iterator[bytes],
    *,
    connections: int,
    seconds: float = 1e9,
    most: int = 10**9,
) -> Load:
    """Send requests on so many connections, for so many seconds or until `most` are answered."""
    poll = select.epoll()
    open_ = [_Connection(address, poll) for _ in range(connections)]
    by_number = {one.sock.fileno(): one for one in open_}
    latencies: list[float] = []
    try:
        began = time.perf_counter()
        waiting = 0
        for one in open_[:most]:
            one.send(next(requests))
            waiting += 1
        until = began + seconds
        while waiting:
            for number, _ in poll.poll():
                one = by_number[number]
                data = _received(one.sock)
                if not data:
                    del by_number[number]
                    one.reconnect()
                    by_number[one.sock.fileno()] = one
                    continue
                if not one.is_answered(data):
                    continue
                now = time.perf_counter()
                latencies.append(now - one.began)
                if now < until and len(latencies) + waiting <= most:
                    one.send(next(requests))
                else:
                    poll.unregister(number)  # the server may close it while others are answered
                    waiting -= 1
        took = time.perf_counter() - began
    finally:
        poll.close()
        for one in open_:
            one.sock.close()
    return Load(len(latencies), took, tuple(sorted(latencies)))


def _received(sock: socket.socket) -> bytes:
    try:
        return sock.recv(262_144)
    except ConnectionResetError:
        return b""
