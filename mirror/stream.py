"""One source of a mirror: session after session, until it is asked to stop.

Rules: an error that may pass is logged and counted. The next session starts after a pause that
grows to ten seconds, without a limit of attempts. Any other error ends the mirror.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from headworks._mirror.errors import Position, SessionEndedError
from headworks._mirror.options import MirrorOptions, MirrorSource
from headworks._mirror.session import MirrorSession, SourceContext

_log = logging.getLogger("headworks.mirror")
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.5, 10.0
_STABLE_SECONDS = 60.0  # after such a session, the pause starts from the beginning


class MirrorStream:
    """Copies one source in its own thread; `ended` is called when the thread ends."""

    def __init__(
        self,
        options: MirrorOptions,
        source: MirrorSource,
        context: SourceContext,
        stopping: threading.Event,
        ended: Callable[[], None],
    ) -> None:
        self._options, self._source = options, source
        self._source_context = context
        self._stopping = stopping
        self._ended = ended
        self.failure: BaseException | None = None  # the error that ended the thread
        self._thread = threading.Thread(target=self._run, name=f"mirror-{source.bootstrap}")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the end. Raises the error that ended the stream, if any."""
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            self._sessions()
        except BaseException as error:
            self.failure = error
        finally:
            self._ended()

    def _sessions(self) -> None:
        careful_until: Position = {}
        pause = _FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            began = time.monotonic()
            self._source_context.progress.sessions += 1
            try:
                MirrorSession(
                    self._options, self._source, self._source_context, self._stopping, careful_until
                ).run()
                careful_until, pause = {}, _FIRST_PAUSE_SECONDS
            except SessionEndedError as error:
                if time.monotonic() - began > _STABLE_SECONDS:
                    pause = _FIRST_PAUSE_SECONDS
                careful_until = error.careful_until
                _log.warning(
                    "%s; trying again in %.1f s",
                    error,
                    pause,
                    extra={"source": self._source.bootstrap, "target": self._options.target},
                )
                self._stopping.wait(pause)
                pause = min(_MAX_PAUSE_SECONDS, pause * 2)
