"""A state folder whose disk is full, read-only, bounded, or gone: the service lives, and sends."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import confluent_kafka
import pytest

from headworks._server.child_process import Service
from tests.producer_sdk.events import Site, new_site
from tests.producer_sdk.test_processes import run
from tests.small_disk import small_disk

pytestmark = pytest.mark.e2e

WARNING = "the audit counts are kept in memory from now on"
# More windows of 10 minutes than the file of the counts has room for.
SEND_MANY = """
for window in range({windows}):
    at = dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + window * dt.timedelta(minutes=10)
    assert producer.send(Visit(user="ada", at=at, seconds=5))
assert producer.close() == 0
"""
FILL = """
import errno
try:
    with open({folder!r} + "/filler", "wb", buffering=0) as file:
        while True: file.write(bytes(4096))
except OSError as error:
    assert error.errno == errno.ENOSPC
"""


@pytest.fixture
def site(tmp_path: Path, broker: Service, registry: Service) -> Site:
    return new_site(tmp_path, broker.address, registry.url)


@pytest.fixture
def disk(site: Site) -> Iterator[Path]:
    """The state folder on a disk of 1 MiB."""
    site.state.mkdir()
    with small_disk(site.state):
        yield site.state


def arrived(site: Site) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": site.bootstrap, "group.id": "none"})
    place = confluent_kafka.TopicPartition
    partitions = consumer.list_topics(site.topic, timeout=60).topics[site.topic].partitions
    ends = [consumer.get_watermark_offsets(place(site.topic, p), timeout=60) for p in partitions]
    consumer.close()
    return sum(end for _, end in ends)


def check(site: Site, done: subprocess.CompletedProcess[str], windows: int) -> None:
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert done.stderr.count(WARNING) == 1, done.stderr
    assert arrived(site) == windows


@pytest.mark.parametrize("windows", [10, 600])
def test_a_full_disk_at_the_start(site: Site, disk: Path, windows: int) -> None:
    fill(disk)
    check(site, run(site, SEND_MANY.format(windows=windows)), windows)


def test_a_disk_that_is_full_in_the_middle(site: Site, disk: Path) -> None:
    code = "producer.send(visit())\n" + FILL.format(folder=str(disk))
    check(site, run(site, code + SEND_MANY.format(windows=600)), 601)


def test_room_that_was_reserved_needs_no_disk(site: Site, disk: Path) -> None:
    """Windows within the file that was made: every page of it has its block."""
    code = FILL.format(folder=str(disk)) + SEND_MANY.format(windows=200)
    done = run(site, code)
    assert (done.returncode, WARNING in done.stderr) == (0, False), done.stderr
    assert arrived(site) == 200


def test_a_read_only_disk_at_the_start(site: Site, disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    check(site, run(site, SEND_MANY.format(windows=10)), 10)


def test_a_quota_in_the_middle(site: Site) -> None:
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
    check(site, run(site, limit + SEND_MANY.format(windows=600)), 600)


def test_a_folder_that_vanishes(site: Site) -> None:
    code = f"import shutil\nshutil.rmtree({str(site.state)!r})\n" + SEND_MANY.format(windows=600)
    done = run(site, code)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert arrived(site) == 600


def test_a_folder_that_cannot_be_made(site: Site) -> None:
    site.state.write_text("a file in its place")
    check(site, run(site, SEND_MANY.format(windows=10)), 10)


def fill(folder: Path) -> None:
    with suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
