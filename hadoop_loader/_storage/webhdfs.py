"""WebHDFS, as far as a warehouse needs it: HTTP to name nodes, bytes to and from data nodes.

Rules:

- It needs no installation and no JVM: the driver, tasks, and `load status` use it alike.
- A name node that is on standby or does not answer is skipped. A request that was sent without an
  answer is not repeated, because it may have been executed. The caller fails, and recovers later.
- Errors of HDFS are raised as the OSError of a local disk, and UnreachableError if it does not
  answer. A file that is being written exists when `Upload.close` returns.
"""

from __future__ import annotations

import errno
import io
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from headworks import _system_calls
from headworks.errors import UnreachableError

_TIMEOUT_SECONDS = 60.0
_ERRNO_OF = {
    "FileNotFoundException": errno.ENOENT,
    "PathIsNotEmptyDirectoryException": errno.ENOTEMPTY,
    "FileAlreadyExistsException": errno.EEXIST,
    "AccessControlException": errno.EACCES,
    "SecurityException": errno.EACCES,
    "AlreadyBeingCreatedException": errno.EBUSY,
    "RecoveryInProgressException": errno.EBUSY,
    "NSQuotaExceededException": errno.EDQUOT,
    "DSQuotaExceededException": errno.EDQUOT,
}
_URL_CHARACTERS = "".join(map(chr, range(33, 127)))
_KEEPALIVE_OPTIONS = _system_calls.keepalive_options(idle=5, interval=5, probes=2)
_STANDBY_EXCEPTION = "StandbyException"


@dataclass(frozen=True, slots=True)
class NameNodes:
    """The name nodes of one file system; one of them is active."""

    addresses: tuple[str, ...]  # HOST:PORT of each one's HTTP server
    user: str  # the owner of new files

    def ask(self, method: str, path: str, op: str, **given: str) -> dict[str, Any]:
        """Send an operation on a path to the active name node, and return its answer."""
        query = urlencode({"op": op, "user.name": self.user, **given})
        target = f"/webhdfs/v1{quote(path)}?{query}"
        problem: object = "none is known"
        for address in self.addresses:
            with connection_to(address) as connection:
                try:
                    connection.connect()
                except OSError as error:
                    problem = f"{address}: {error}"
                    continue
                with _raising_unreachable(address):
                    connection.request(method, target)
                    answer = connection.getresponse()
                    status, body = answer.status, answer.read()
            if status < 300:
                found = json.loads(body or b"{}")
                return dict(found)
            if _STANDBY_EXCEPTION not in body.decode(errors="replace"):
                raise os_error_of(status, body, path)
            problem = f"{address} is on standby"
        raise UnreachableError(
            f"no name node answers over WebHDFS: {problem}",
            fix="start HDFS, or name the folder of its hdfs-site.xml in HADOOP_CONF_DIR; "
            "nothing is lost, run again",
        )

    def location(self, method: str, path: str, op: str, **given: str) -> str:
        """Return the URL of the data node that serves an operation on a file's bytes."""
        return str(self.ask(method, path, op, noredirect="true", **given)["Location"])

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return bytes of a file: `length`, or fewer at its end."""
        url = self.location("GET", path, "OPEN", offset=str(offset), length=str(length))
        return _exchange("GET", url, path)

    def probe_append(self, path: str) -> None:
        """Open a file for append and close it; OSError EBUSY if another process has it open."""
        _exchange("POST", self.location("POST", path, "APPEND"), path)


class HdfsFileLease:
    """A new file that is kept open: HDFS lets no other process open it until `close` or our death.

    TCP keepalive notices the loss of the data node within seconds. HDFS waits longer than that
    before it lets another process write the file.
    """

    def __init__(self, nodes: NameNodes, path: str) -> None:
        given = {"overwrite": "false", "createparent": "false"}
        address, target = _address_and_target(nodes.location("PUT", path, "CREATE", **given))
        head = f"PUT {target} HTTP/1.1\r\nHost: {address}\r\nTransfer-Encoding: chunked\r\n\r\n"
        parts = urlsplit(f"//{address}")
        self._address = address
        with _raising_unreachable(address):
            endpoint = (parts.hostname or "", parts.port or 80)
            self._socket = socket.create_connection(endpoint, _TIMEOUT_SECONDS)
            for option in _KEEPALIVE_OPTIONS:
                self._socket.setsockopt(*option)
            self._socket.sendall(head.encode())
            self._begin()
        self._wait(nodes, path)

    def alive(self) -> bool:
        """Return whether it is still held: a data node sends nothing until all is written."""
        self._socket.setblocking(False)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            self._socket.settimeout(_TIMEOUT_SECONDS)
        return False

    def close(self) -> None:
        """Close the file; other processes can open it when this returns."""
        with suppress(OSError):
            self._socket.sendall(b"0\r\n\r\n")
            self._socket.recv(4096)
        self._socket.close()

    def _begin(self) -> None:
        """Read the data node's `100 Continue`, and nothing after it."""
        while (head := self._socket.recv(4096, socket.MSG_PEEK)) and b"\r\n\r\n" not in head:
            time.sleep(0.001)
        if head.startswith(b"HTTP/1.1 100"):
            self._socket.recv(head.find(b"\r\n\r\n") + 4)

    def _wait(self, nodes: NameNodes, path: str) -> None:
        """Return when the file exists; OSError if HDFS refuses it."""
        until = time.monotonic() + _TIMEOUT_SECONDS
        while time.monotonic() < until:
            try:
                nodes.ask("GET", path, "GETFILESTATUS")
                return
            except FileNotFoundError:
                if not self.alive():
                    break
            time.sleep(0.01)
        answer = HTTPResponse(self._socket)
        with _raising_unreachable(self._address):
            answer.begin()
            body = answer.read()
        self._socket.close()
        raise os_error_of(answer.status, body, path)


class Upload(io.RawIOBase):
    """A file that is being written in chunks through the data node of `url`."""

    def __init__(self, method: str, url: str, path: str) -> None:
        self._address, target = _address_and_target(url)
        self._path = path
        self._sent = 0  # bytes
        self._refused = False  # the data node closed the connection before the end
        self._connection = HTTPConnection(self._address, timeout=_TIMEOUT_SECONDS)
        with _raising_unreachable(self._address):
            self._connection.putrequest(method, target, skip_accept_encoding=True)
            self._connection.putheader("Transfer-Encoding", "chunked")
            self._connection.endheaders()

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any, /) -> int:
        """Send bytes."""
        size = memoryview(data).nbytes
        if size:
            self._send(b"%x\r\n%b\r\n" % (size, bytes(data)))
            self._sent += size
        return size

    def tell(self) -> int:
        """Return the number of bytes sent."""
        return self._sent

    def close(self) -> None:
        """End the file; it exists when this returns."""
        if self.closed:
            return
        try:
            self._send(b"0\r\n\r\n")
            with _raising_unreachable(self._address):
                answer = self._connection.getresponse()
                body = answer.read()
                if self._refused and answer.status < 300:
                    raise ConnectionResetError("it took a part only")
        finally:
            super().close()
            self._connection.close()
        if answer.status >= 300:
            raise os_error_of(answer.status, body, self._path)

    def _send(self, data: bytes) -> None:
        """Send bytes; if the data node refuses, its answer at the end says why."""
        with _raising_unreachable(self._address):
            try:
                self._connection.send(data)
            except (BrokenPipeError, ConnectionResetError):
                self._refused = True


@contextmanager
def connection_to(address: str) -> Iterator[HTTPConnection]:
    """Open a connection for one request: a kept one might be dead."""
    connection = HTTPConnection(address, timeout=_TIMEOUT_SECONDS)
    try:
        yield connection
    finally:
        connection.close()


def _exchange(method: str, url: str, path: str) -> bytes:
    """Send a request without a body to a data node, and return its answer."""
    address, target = _address_and_target(url)
    with connection_to(address) as connection, _raising_unreachable(address):
        connection.request(method, target)
        answer = connection.getresponse()
        body = answer.read()
    if answer.status >= 300:
        raise os_error_of(answer.status, body, path)
    return body


def os_error_of(status: int, body: bytes, path: str) -> OSError:
    """Return an error answer of HDFS as the OSError of a local disk."""
    try:
        exception = json.loads(body)["RemoteException"]
        kind, message = str(exception["exception"]), str(exception["message"])
    except (ValueError, KeyError, TypeError):
        kind, message = "", f"HDFS answers {status}: {body[:200].decode(errors='replace')}"
    if status == 401:
        return PermissionError(
            errno.EACCES, "HDFS requires Kerberos, which Headworks does not support", path
        )
    first = next((line.strip() for line in message.splitlines() if line.strip()), kind)
    number = next((n for name, n in _ERRNO_OF.items() if name == kind or name in first), errno.EIO)
    return OSError(number, first, path)


def _address_and_target(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    # A name node does not escape characters beyond ASCII.
    return parts.netloc, quote(f"{parts.path}?{parts.query}", safe=_URL_CHARACTERS)


@contextmanager
def _raising_unreachable(address: str) -> Iterator[None]:
    try:
        yield
    except (OSError, HTTPException) as error:
        raise UnreachableError(
            f"HDFS at {address} stopped answering: {error or type(error).__name__}",
            fix="see whether its nodes run and can be reached by name, then run again; "
            "nothing is lost, and the next run finishes the work of this one",
        ) from None
