"""An HTTP server in the place of a registry, which answers what a test wants."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def prepared_server(
    answer: Callable[[str], tuple[int, object]], *, content_type: str = "application/json"
) -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a server, and its requests as "METHOD PATH".

    `answer` returns the status and the body for a path: bytes, or what becomes JSON. It is called
    once at a time.
    """
    requests: list[str] = []
    one_at_a_time = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            with one_at_a_time:
                requests.append(f"{self.command} {self.path}")
                status, body = answer(self.path)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", requests
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def canned(*answers: tuple[int, object]) -> Iterator[tuple[str, list[str]]]:
    """Run a server that gives these answers, one after the other, then the last for ever."""
    left = list(answers)
    with prepared_server(lambda _: left.pop(0) if len(left) > 1 else left[0]) as server:
        yield server
