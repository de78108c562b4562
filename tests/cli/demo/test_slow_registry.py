"""The demo on a machine that is busy: its registry stands still for a moment."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from threading import Timer

import pytest

from headworks import _bundled_schemas
from headworks._cli.demo.progress import DemoProgress
from headworks._cli.demo.run import Demo
from headworks._server.child_process import Service

pytestmark = pytest.mark.e2e


def test_the_producer_waits_for_the_registry(
    broker: Service, registry: Service, tmp_path: Path
) -> None:
    demo = Demo(tmp_path, limit=10, progress=DemoProgress())
    demo._bootstrap, demo._registry_url = broker.address, registry.url
    shutil.copytree(_bundled_schemas.folder(), demo._schemas)
    demo._govern()
    os.kill(registry.process.pid, signal.SIGSTOP)
    again = Timer(2, os.kill, (registry.process.pid, signal.SIGCONT))
    again.start()
    try:
        demo._produce(1, ("airlines",))
    finally:
        again.join()
    assert demo.outcome.sent["airlines"] > 0
