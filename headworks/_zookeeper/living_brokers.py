"""The living brokers: those that are registered in ZooKeeper, read once or followed.

Rules:

- A broker with an invalid registration is logged and skipped. It does not hide the others.
- `BrokerWatch` calls back with all living brokers, never with a difference. It uses its own thread,
  makes one call at a time, and makes none if nothing has changed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from headworks._zookeeper import paths
from headworks._zookeeper.nodes import BrokerNode
from headworks._zookeeper.session import SessionState, ZooKeeperSession, kazoo
from headworks.errors import CorruptError

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 0.5


def live_brokers(
    session: ZooKeeperSession, *, watch: Callable[[Any], None] | None = None
) -> dict[int, BrokerNode]:
    """Return the living brokers by id, in order. `watch` is called once when they change.

    Raises kazoo's exceptions if the session fails.
    """
    exceptions = kazoo("exceptions")
    client = session.client
    try:
        names = client.get_children(paths.BROKERS, watch=watch)
    except exceptions.NoNodeError:
        # no broker has ever registered: watch for the first one
        if watch is None or client.exists(paths.BROKERS, watch=watch) is None:
            return {}
        return live_brokers(session, watch=watch)
    found = {}
    for number in sorted(int(name) for name in names if name.isdigit()):
        path = paths.broker(number)
        try:
            found[number] = BrokerNode.load(client.get(path)[0], path)
        except exceptions.NoNodeError:  # gone meanwhile
            continue
        except CorruptError as error:
            _log.warning("%s", error, extra={"path": path})
    return found


class BrokerWatch:
    """Calls `changed` with the living brokers, at first and after every change, until `stop`."""

    def __init__(
        self, session: ZooKeeperSession, changed: Callable[[Mapping[int, BrokerNode]], None]
    ) -> None:
        self._session = session
        self._changed = changed
        self._dirty = threading.Event()  # something may have changed
        self._dirty.set()
        self._stopped = False
        self._reported: dict[int, BrokerNode] | None = None
        session.on_state(self._on_state)
        self._thread = threading.Thread(target=self._run, name="broker-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop. No call is made after it returns, unless it is called from within one."""
        self._stopped = True
        self._session.off_state(self._on_state)
        self._dirty.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:  # the earlier watches are void
            self._dirty.set()

    def _on_event(self, _event: object) -> None:
        self._dirty.set()

    def _run(self) -> None:
        while True:
            self._dirty.wait()
            if self._stopped:
                return
            self._dirty.clear()
            try:
                found = live_brokers(self._session, watch=self._on_event)
            except Exception as error:
                _log.debug("brokers cannot be read now: %r", error)
                if self._session.state is SessionState.CONNECTED:
                    threading.Timer(_RETRY_SECONDS, self._dirty.set).start()
                continue
            if found != self._reported and not self._stopped:
                self._reported = found
                self._changed(dict(found))
