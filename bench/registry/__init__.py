"""The registry: reads by id, look-ups in the client, registrations, checks of compatibility.

The server is the one that users start, on SQLite; the load comes over real sockets. A plain FastAPI
route, in a process of its own, is the yardstick for reads. A server on PostgreSQL takes turns with
one on SQLite, if PostgreSQL is installed.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient

from bench.frame import Bench
from bench.processes import Usage
from bench.registry.load import Load, drive, get, post
from bench.registry.schemas import event, proposal
from headworks._server import child_process
from headworks.compatibility import check_pair
from headworks.registry_client import RegistryClient
from headworks.schema import parse

TITLE = "The schema registry: reads, registrations and checks, beside a plain FastAPI route"
US = "headworks"
PLAIN = "plain FastAPI route"
ON_POSTGRESQL = "headworks on PostgreSQL"
SHARE = "rate that is left on PostgreSQL"
CONNECTIONS = (1, 32)
VERSIONS = (1, 100, 1000)
WIDTH = 50
# Schemas that no other request has used.
_fresh = itertools.count(1_000_000)


def run(bench: Bench) -> None:
    """Measure everything."""
    seconds = 1.0 if bench.quick else 5.0
    store = f"sqlite:///{bench.folder / 'registry.db'}"
    with _registry(store) as server:
        bench.say("registering the versions to check against")
        for count in VERSIONS:
            _prepare(server.address, count)
        ids = _by_id(server)
    for _ in bench.rounds(full=3):
        with _registry(store) as server, _plain() as plain:
            _first_registration(bench, server)
            for connections in CONNECTIONS:
                _reads(bench, US, server.address, server.process.pid, connections, seconds, ids)
                _reads(bench, PLAIN, *plain, connections, seconds, range(1, 101))
                _checks(bench, server, connections, seconds)
                _registrations(bench, server, connections, seconds)
            _client(bench, server, seconds, ids)
        _model(bench, seconds)
    _beside_postgresql(bench, seconds)
    _bars(bench)


def _bars(bench: Bench) -> None:
    bench.bar(
        "reads by id at 32 connections, one process",
        at_least=7000,
        got=bench.median("reads by id, 32 connections", US),
        unit="requests/s",
    )
    bench.bar(
        "checks against 1 version at 32 connections, one process",
        at_least=1200,
        got=bench.median("check against 1 version, 32 connections", US),
        unit="requests/s",
    )
    bench.bar(
        "registrations of a first version at 32 connections, one process",
        at_least=600,
        got=bench.median("registration of a first version, 32 connections", US),
        unit="requests/s",
    )
    for what in ("check against 1 version", "registration of a first version"):
        bench.bar(
            f"{SHARE}: {what}, 32 connections",
            at_least=50,
            got=bench.median(f"{SHARE}: {what}, 32 connections", ON_POSTGRESQL),
            unit="%",
        )
    bench.bar(
        "a registration checked against 1,000 versions of 50 fields",
        at_most=250,
        got=bench.median("registration against 1,000 versions, 1 connection, p50", US),
        unit="ms",
    )
    bench.bar(
        "checks on the pure model, 20 fields",
        at_least=4000,
        got=bench.median("checks on the pure model, 20 fields", US),
        unit="pairs/s",
    )


@contextmanager
def _registry(store: str) -> Iterator[child_process.Service]:
    arguments = ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
    with child_process.start(arguments) as running:
        yield running


@contextmanager
def _plain() -> Iterator[tuple[str, int]]:
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "bench.registry.plain"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        try:
            address = json.loads(process.stdout.readline())["listen"]
            yield address, process.pid
        finally:
            process.terminate()


def _beside_postgresql(bench: Bench, seconds: float) -> None:
    """Compare the two stores in turns: the machine's speed changes from second to second."""
    from tests import tools
    from tests.registry.postgresql import running_cluster

    if tools.postgresql() is None:
        bench.missing(ON_POSTGRESQL, "PostgreSQL is not installed")
        return
    store = f"sqlite:///{bench.folder / 'beside.db'}"
    with (
        running_cluster() as cluster,
        _registry(store) as here,
        _registry(cluster.new_store()) as there,
    ):
        for server in (here, there):
            _prepare(server.address, 1)
        at = f"/compatibility/subjects/{_subject(1)}/versions"
        for _ in bench.rounds(full=5):
            for what, asked in (
                ("check against 1 version", (post(at, proposal(WIDTH, n)) for n in _fresh)),
                ("registration of a first version", _new_subjects()),
            ):
                rates = [
                    drive(server.address, asked, connections=32, seconds=seconds).rate
                    for server in (here, there)
                ]
                left = 100 * rates[1] / rates[0]
                bench.record(f"{SHARE}: {what}, 32 connections", ON_POSTGRESQL, left, "%")


def _new_subjects() -> Iterator[bytes]:
    """Requests that register the first versions of subjects."""
    for number in _fresh:
        yield post(f"/subjects/new-{number}/versions", proposal(WIDTH, number))


def _subject(versions: int) -> str:
    return f"events-{versions}"


def _prepare(address: str, count: int) -> None:
    """A subject with so many versions, each checked against none while they are made."""
    at = f"/subjects/{_subject(count)}/versions"
    _put(address, _subject(count), "NONE")
    bodies = (post(at, proposal(WIDTH, number)) for number in itertools.count())
    drive(address, bodies, connections=1, most=count)
    _put(address, _subject(count), "BACKWARD_TRANSITIVE")


def _put(address: str, subject: str, level: str) -> None:
    RegistryClient(f"http://{address}").set_compatibility(subject, level)


def _by_id(server: child_process.Service) -> list[int]:
    """The ids of a hundred schemas of 20 fields."""
    client = RegistryClient(server.url)
    return [client.register(f"read-{number}", event(20, number)).id for number in range(100)]


def _record(bench: Bench, what: str, who: str, load: Load, cpu: float | None = None) -> None:
    per_request = None if cpu is None else 1e6 * cpu / load.count
    bench.record(what, who, load.rate, "requests/s", cpu=per_request, cpu_unit="us/request")
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        bench.record(f"{what}, {name}", who, load.percentile_ms(share), "ms")


def _reads(
    bench: Bench,
    who: str,
    address: str,
    pid: int,
    connections: int,
    seconds: float,
    ids: Iterator[int] | list[int] | range,
) -> None:
    asked = itertools.cycle([get(f"/schemas/ids/{number}") for number in ids])
    drive(address, asked, connections=connections, seconds=0.3)
    usage = Usage(pid)
    before = usage.now().cpu
    load = drive(address, asked, connections=connections, seconds=seconds)
    spent = usage.now().cpu - before
    _record(bench, f"reads by id, {_many(connections)}", who, load, spent)


def _measured(
    bench: Bench,
    what: str,
    server: child_process.Service,
    asked: Iterator[bytes],
    connections: int,
    seconds: float,
) -> None:
    usage = Usage(server.process.pid)
    before, own = usage.now().cpu, time.process_time()
    load = drive(server.address, asked, connections=connections, seconds=seconds)
    spent, own = usage.now().cpu - before, time.process_time() - own
    _record(bench, what, US, load, spent)
    bench.record(f"{what}, processor time of the client", US, 1e6 * own / load.count, "us/request")
    bench.say(f"server CPU per request: {1e6 * spent / load.count:,.0f} us, {what}")


def _checks(bench: Bench, server: child_process.Service, connections: int, seconds: float) -> None:
    for versions in VERSIONS:
        at = f"/compatibility/subjects/{_subject(versions)}/versions"
        asked = (post(at, proposal(WIDTH, number)) for number in _fresh)
        what = f"check against {versions:,} version{'s' * (versions > 1)}, {_many(connections)}"
        _measured(bench, what, server, asked, connections, seconds)


def _registrations(
    bench: Bench, server: child_process.Service, connections: int, seconds: float
) -> None:
    what = f"registration of a first version, {_many(connections)}"
    _measured(bench, what, server, _new_subjects(), connections, seconds)
    most = 5 if bench.quick else 30
    at = f"/subjects/{_subject(1000)}/versions"
    asked = (post(at, proposal(WIDTH, number)) for number in _fresh)
    load = drive(server.address, asked, connections=connections, most=most)
    _record(bench, f"registration against 1,000 versions, {_many(connections)}", US, load)


def _first_registration(bench: Bench, server: child_process.Service) -> None:
    """The first one after a start: all versions are read from the store and parsed."""
    at = f"/subjects/{_subject(1000)}/versions"
    load = drive(
        server.address, iter([post(at, proposal(WIDTH, next(_fresh)))]), connections=1, most=1
    )
    bench.record(
        "first registration against 1,000 versions after a start", US, load.percentile_ms(0), "ms"
    )


def _client(bench: Bench, server: child_process.Service, seconds: float, ids: list[int]) -> None:
    """Look-ups that the client answers from memory."""
    ours = RegistryClient(server.url)
    with SchemaRegistryClient({"url": server.url}) as theirs:
        for who, look_up in ((US, ours.schema_text), ("confluent-kafka", theirs.get_schema)):
            for number in ids:
                look_up(number)
            rate = _rate(look_up, itertools.cycle(ids), min(seconds, 1.0))
            bench.record("cached look-ups in the client", who, rate, "look-ups/s")


def _model(bench: Bench, seconds: float) -> None:
    """No server: the checker itself, on parsed schemas and with both parsed every time."""
    texts = [event(20, number) for number in range(200)]
    schemas = [parse(text) for text in texts]
    pairs = list(itertools.pairwise(schemas))
    bench.record(
        "checks on the pure model, 20 fields",
        US,
        _rate(lambda pair: check_pair(pair[0], pair[1]), itertools.cycle(pairs), seconds / 2),
        "pairs/s",
    )
    both = list(itertools.pairwise(texts))
    bench.record(
        "checks with both schemas parsed each time, 20 fields",
        US,
        _rate(
            lambda pair: check_pair(parse(pair[0]), parse(pair[1])),
            itertools.cycle(both),
            seconds / 2,
        ),
        "pairs/s",
    )


def _rate(work: Callable[[Any], object], items: Iterator[Any], seconds: float) -> float:
    count, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        for item in itertools.islice(items, 100):
            work(item)
        count += 100
    return count / took


def _many(connections: int) -> str:
    return f"{connections} connection{'s' * (connections > 1)}"
