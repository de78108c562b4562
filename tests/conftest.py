"""Fixtures that every part's tests share: a broker and a registry, run as child processes.

With HEADWORKS_TEST_BROKER=apache-kafka the broker is Apache Kafka (docs/interop.md), and tests
marked `our_broker(reason)`, which look at what Kafka does not promise, are skipped.

Property tests are about what is computed, never about how long it took: a busy machine is slow.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from headworks._audit_counting import publishing
from headworks._cli.stack import ports
from headworks._server import child_process
from headworks.groups import Groups, _groups
from headworks.registry_client._schema_ids import EventSchemaIds
from producer_sdk import Producer
from tests import command_line
from tests.hangs import HangGuard
from tests.headworks.audit_counting.both_forms import BOTH, Counting, counting_in
from tests.interop.in_place import is_apache_kafka, start_in_place
from tests.kinds import UnitTestGuard
from tests.lengths import lengths
from tests.preloaded import Preloaded
from tests.rewriting import rewrite_share
from tests.soak import membership, process
from tests.tools import ToolGuard
from tests.waiting import PATIENCE

ROOT = Path(__file__).parent.parent
_STARTERS = (child_process, command_line, membership, process)  # modules that start our programs

settings.register_profile(
    "headworks", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("headworks")


class PreloadedServers:
    """Starts the servers of a run from processes that have imported them (tests/preloaded.py)."""

    def pytest_sessionstart(self) -> None:
        self._preloaded = Preloaded()
        replaced = {**vars(subprocess), "Popen": self._preloaded.popen}
        for module in _STARTERS:
            vars(module)["subprocess"] = SimpleNamespace(**replaced)

    def pytest_unconfigure(self) -> None:
        for module in _STARTERS:
            vars(module)["subprocess"] = subprocess
        self._preloaded.close()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(UnitTestGuard())
    config.pluginmanager.register(ToolGuard())
    config.pluginmanager.register(HangGuard())
    config.pluginmanager.register(PreloadedServers())
    config.addinivalue_line("markers", "our_broker(reason): not for Apache Kafka in its place")
    config.addinivalue_line("markers", "needs(tool): skipped without it (tests/tools.py)")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what runs in the background so, and every process of the tests would be.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        _sort_by_length(items, config.rootpath)
    if not is_apache_kafka():
        return
    for item in items:
        for mark in item.iter_markers("our_broker"):
            item.add_marker(pytest.mark.skip(reason=mark.args[0]))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Have each worker rewrite a share of the modules before it collects all of them.

    A million objects of the collection live to the end of the run. Python's search for garbage
    would visit them again and again, which costs a third of the collection.
    """
    gc.disable()
    try:
        worker = getattr(session.config, "workerinput", None)
        if worker is not None:
            number = int(worker["workerid"].removeprefix("gw"))
            rewrite_share(session.config, number, worker["workercount"])
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Say how many workers `-n auto` is; `-n logical`, for tests that never wait, is one a core."""
    from tests.workers import is_quick, memory_gb, worker_count

    cores = os.cpu_count() or 1
    if config.option.numprocesses == "logical":
        return cores
    return worker_count(cores, memory_gb(), quick=is_quick())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give the modules that share a Spark session to one worker."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.workers import SharedSessionScheduling

    return SharedSessionScheduling(config, log)


def _sort_by_length(items: list[pytest.Item], root: Path) -> None:
    """Put long modules first, then those with Spark, and unit tests last."""
    seconds = lengths()
    places: dict[Path, tuple[int, int]] = {}
    for item in items:
        names = {mark.name for mark in item.iter_markers()}
        kind = next((n for n, name in enumerate(("spark", "e2e", "contract")) if name in names), 3)
        length = seconds.get(item.path.relative_to(root).as_posix(), 0)
        places[item.path] = min((-length, kind), places.get(item.path, (0, 3)))
    items.sort(key=lambda item: places[item.path])


class _OwnPorts(Random):
    """Draws ports that no other worker draws, and may take before a server listens there."""

    def sample(self, population: Any, k: int, **options: Any) -> list[Any]:
        worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        size = len(population) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        own = population[worker * size : (worker + 1) * size]  # some tests want neighbors
        return super().sample(own, size) if size > 100 else super().sample(population, k)


@pytest.fixture(scope="session", autouse=True)
def busy_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let clients without a timeout of their own wait, and publish no counts of other workers.

    A client that gives up the registry soon counts a message for no schema, or publishes nothing.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setattr(EventSchemaIds.__init__, "__defaults__", (PATIENCE,))
        patch.setitem(Producer.__init__.__kwdefaults__ or {}, "registry_timeout", PATIENCE)
        patch.setattr(publishing, "_CLOSE_SECONDS", PATIENCE)
        patch.setattr(_groups, "_ZOOKEEPER_TIMEOUT_SECONDS", PATIENCE)
        patch.setitem(Groups.described.__kwdefaults__ or {}, "age_timeout", PATIENCE)
        patch.setattr(ports, "Random", _OwnPorts)
        yield


@pytest.fixture(scope="module", params=BOTH)
def counting(request: pytest.FixtureRequest) -> Iterator[Counting]:
    """The form in which messages are counted: the test is run for each."""
    yield from counting_in(request.param)


@pytest.fixture(scope="session")
def broker_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `broker` keeps its data; see `log_folder`."""
    return tmp_path_factory.mktemp("broker")


@pytest.fixture(scope="session")
def broker(broker_folder: Path) -> Iterator[child_process.Service]:
    """A broker on loopback, one for the whole run: use topic names of your own."""
    with start_in_place(broker_folder) as running:
        yield running


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[child_process.Service]:
    """A registry on loopback, one for the whole run: use subjects of your own."""
    store = f"sqlite:///{tmp_path_factory.mktemp('registry') / 'registry.db'}"
    with child_process.start(
        ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
    ) as running:
        yield running


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT
