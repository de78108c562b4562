"""A broker of this folder's own, with limits that tests can reach."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headworks._cli.stack.ports import free_ports
from headworks._server import child_process
from tests.broker.clients import DEADLINE, eventually
from tests.interop.in_place import start_in_place

_numbers = itertools.count()


def start_broker(folder: Path, *options: str, listen: str = "127.0.0.1:0") -> child_process.Service:
    """A broker on a free port, its data in `folder`."""
    return child_process.start(
        ["broker", "start", "--listen", listen, "--data-dir", str(folder), *options]
    )


def kept_address() -> str:
    """An address for a broker that goes and comes back to it."""
    return f"127.0.0.1:{free_ports(1)[0]}"


@pytest.fixture(scope="package")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `running` keeps its data."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="package")
def running(data_dir: Path) -> Iterator[child_process.Service]:
    """A broker that all tests here share."""
    options = ("--default-partitions", "1", "--segment-bytes", "100000")
    with start_in_place(data_dir, *options) as process:
        yield process


@pytest.fixture
def address(running: child_process.Service) -> str:
    return running.address


@pytest.fixture
def topic(address: str) -> str:
    """A new topic with one partition."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    name = f"topic-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(DEADLINE)
    eventually(lambda: name in admin.list_topics(timeout=DEADLINE).topics)
    return name


@pytest.fixture
def new_name() -> Callable[[], str]:
    """Names that nobody has used."""
    return lambda: f"name-{next(_numbers)}"
