"""A broker in a thread of this process, for proofs that start one hundreds of times."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from threading import Thread

from headworks._broker.server import BrokerServer, ServerConfig
from headworks.errors import HeadworksError

_SECONDS = 60.0  # that it may take to start or stop
_NEVER_SECONDS = 1e6


class LocalBroker:
    """A broker in a thread of this process, with its log: a case starts several."""

    def __init__(self, folder: Path, configs: Mapping[str, str]) -> None:
        self.folder = folder
        self._configs = configs  # the defaults of topics
        self.address = ""
        self.words = ""  # all that it has logged
        self._seen = 0
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server: BrokerServer | None = None
        self._handler = _Words(self)

    def start(self) -> str:
        """Start it, and return why it refuses, or nothing."""
        logging.getLogger("headworks").addHandler(self._handler)
        try:
            asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(_SECONDS)
        except HeadworksError as error:
            self.words += f"error: {error}\n"
            self._seen = len(self.words)
            return str(error)
        return ""

    async def _start(self) -> None:
        config = ServerConfig(
            self.folder / "broker", topic_defaults=self._configs, compaction_seconds=_NEVER_SECONDS
        )
        server = BrokerServer(config)
        await server.start()
        self._server, self.address = server, server.address

    def stop(self) -> None:
        """Stop it in order, if it runs."""
        server, self._server = self._server, None
        if server is not None:
            asyncio.run_coroutine_threadsafe(server.stop(), self._loop).result(_SECONDS)
        logging.getLogger("headworks").removeHandler(self._handler)

    def close(self) -> None:
        """Stop it for good."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def new_words(self) -> str:
        """Return what it has logged since the last call."""
        new, self._seen = self.words[self._seen :], len(self.words)
        return new


class _Words(logging.Handler):
    def __init__(self, broker: LocalBroker) -> None:
        super().__init__(logging.INFO)
        self._broker = broker

    def emit(self, record: logging.LogRecord) -> None:
        self._broker.words += self.format(record).replace("\n  fix:", " fix:") + "\n"
