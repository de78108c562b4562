"""A socket to one broker, with at most one request in flight."""

from __future__ import annotations

import socket
import struct

import pyarrow as pa

from hadoop_loader._fetch import requests

Address = tuple[str, int]
_MAX_RESPONSE_BYTES = 1 << 30
_RESPONSE_HEADER = struct.Struct(">ii")


class BrokerConnection:
    """A socket to one broker, with at most one request in flight."""

    def __init__(self, address: Address, timeout: float) -> None:
        self.address = address  # host and port
        self._socket = socket.create_connection(address, timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._asked = 0  # correlation id of the last request

    def ask(self, api: tuple[int, int], body: bytes) -> None:
        """Send a request."""
        self._asked += 1
        self._socket.sendall(requests.request_frame(api, self._asked, body))

    def receive(self) -> memoryview:
        """Return the body of the response to the request in flight."""
        size, answered = _RESPONSE_HEADER.unpack(self._exactly(_RESPONSE_HEADER.size))
        if answered != self._asked or not 4 <= size <= _MAX_RESPONSE_BYTES:
            raise ValueError("the reply is none of Kafka's protocol")
        return self._exactly(size - 4)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _exactly(self, size: int) -> memoryview:
        reply = memoryview(pa.allocate_buffer(size)).cast("B")  # unlike a bytearray, not zeroed
        at = 0
        while at < size:
            count = self._socket.recv_into(reply[at:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            at += count
        return reply
