"""A broker that counts the requests of its clients on a metrics page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headworks._server import child_process
from headworks._server.child_process import Service
from tests.broker.test_logs import page, sample


@contextmanager
def counting_broker(folder: Path) -> Iterator[Service]:
    listen = ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(folder)]
    with child_process.start([*listen, "--metrics", "127.0.0.1:0"]) as broker:
        yield broker


def list_offsets_requests(broker: Service) -> float:
    """How often the broker was asked for offsets."""
    return sample(page(broker).data.decode(), "headworks_broker_requests_total", api="list_offsets")
