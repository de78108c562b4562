"""Producers in children of multiprocessing: every kind of child, and every way to start one."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from headworks._server.child_process import Service
from tests.headworks.codec.generated_packages import environment
from tests.producer_sdk.events import Site, new_site
from tests.producer_sdk.test_full_disk import arrived

pytestmark = pytest.mark.e2e

CHILDREN, EACH = 4, 100
PROGRAM = """
import datetime as dt, multiprocessing, pathlib, sys
from concurrent.futures import ProcessPoolExecutor
from producer_sdk import Producer
from {package}.web import Visit

def make():
    state = pathlib.Path({state!r})
    return Producer({bootstrap!r}, {registry!r}, application="w", state_dir=state, audit_every=60,
                    registry_timeout=60)

def work(number):
    global producer
    if "producer" not in globals():
        producer = make()
    at = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    for _ in range({each}):
        assert producer.send(Visit(user=str(number), at=at, seconds=5))

if __name__ == "__main__":
    how, made_before = sys.argv[1], sys.argv[2] == "before"
    context = multiprocessing.get_context(how)
    if made_before:
        producer = make()
        producer.send(Visit(user="parent", at=dt.datetime(2020, 1, 1, tzinfo=dt.UTC), seconds=5))
"""
PROCESSES = """
    children = [context.Process(target=work, args=(n,)) for n in range({children})]
    for child in children: child.start()
    for child in children: child.join()
    assert [child.exitcode for child in children] == [0] * {children}
"""
POOL = """
    pool = context.Pool(2)
    pool.map(work, range({children}), chunksize=1)
    pool.close()
    pool.join()
"""
EXECUTOR = """
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        list(pool.map(work, range({children})))
"""
WORKERS = {"processes": PROCESSES, "pool": POOL, "executor": EXECUTOR}


@pytest.fixture
def site(tmp_path: Path, broker: Service, registry: Service) -> Site:
    return new_site(tmp_path, broker.address, registry.url)


@pytest.mark.parametrize(
    ("workers", "how", "made"),
    [
        ("processes", "fork", "before"),
        ("pool", "fork", "before"),
        ("executor", "fork", "after"),
        ("processes", "forkserver", "after"),
        ("executor", "spawn", "after"),
    ],
)
def test_children_lose_nothing(site: Site, workers: str, how: str, made: str) -> None:
    folder = site.state.parent
    values = {"bootstrap": site.bootstrap, "registry": site.registry, "state": str(site.state)}
    package = site.one.__name__.partition(".")[0]
    text = PROGRAM.format(**values, package=package, each=EACH) + WORKERS[workers].format(
        children=CHILDREN
    )
    (folder / "program.py").write_text(textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, "program.py", how, made],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert arrived(site) == CHILDREN * EACH + (made == "before")
