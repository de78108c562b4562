"""Ends a test process that is stuck in C, where pytest-timeout's signal is not served.

librdkafka waits for ever in `rd_kafka_assign` if a consumer is closed at the wrong moment of a
rebalance. A run would then wait as well. pytest-xdist reports the test and ends the run: with
`--max-worker-restart=0` it does not try the test again in another worker.
"""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Generator

import pytest

_GRACE_SECONDS = 60  # after the timeout, for a test that the signal ends


class HangGuard:
    """Prints all stacks and ends the process when a test is well over its timeout."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        seconds = _timeout(item)
        if seconds > 0:
            assert sys.__stderr__ is not None
            faulthandler.dump_traceback_later(
                seconds + _GRACE_SECONDS, exit=True, file=sys.__stderr__
            )
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()


def _timeout(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    if marker is not None and marker.args:
        return float(marker.args[0])
    return float(item.config.getini("timeout") or 0)
