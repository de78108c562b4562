"""Hurt the state folder of producers in every way, at the start and in mid-life.

Rules:

- Each case is a program of its own. It sends events of many windows, closes its producer, and must
  end with 0, without a traceback, and with every event in the log.
- The state folder is full, read-only, bound by a quota, out of inodes, or gone; by the seed, before
  the producer is made, or after some of its events. Half of the programs count in Python.
- A case that needs `mount` is for root alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import confluent_kafka

from headworks._server import child_process
from tests.headworks.codec.generated_packages import environment
from tests.producer_sdk.events import Site, new_site
from tests.small_disk import small_disk

_LONGEST_SECONDS = 120.0
_MOST_WRONG = 10
_PROGRAM = """
import datetime as dt, errno, os, resource, shutil, subprocess, sys
from contextlib import suppress
from pathlib import Path
if {python}:
    import headworks._native as native
    native.tally = None
from producer_sdk import Producer
from {package}.web import Visit
folder = Path({state!r})

def full():
    with suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))

covers = []

def read_only():
    if subprocess.run(["mount", "-o", "remount,ro", str(folder)], capture_output=True).returncode:
        # Files are open there: new ones cannot be opened from now on.
        subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
        covers.append(folder)
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)

def quota():
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit))

def inodes():
    subprocess.run(["mount", "-o", "remount,nr_inodes=64", str(folder)], check=True)
    with suppress(OSError):
        for number in range(1 << 20):
            (folder / f"inode-{{number}}").touch()

def gone():
    shutil.rmtree(folder, ignore_errors=True)

def file_in_its_place():
    gone()
    folder.write_text("a file")

def send(start, end):
    for window in range(start, end):
        at = dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + window * dt.timedelta(minutes=10)
        assert producer.send(Visit(user="ada", at=at, seconds=5)), window

if {before} == 0:
    {harm}()
producer = Producer(
    {bootstrap!r}, {registry!r}, application="hurt", state_dir=folder, audit_every={every},
    registry_timeout=60,
)
send(0, {before})
if {before}:
    {harm}()
send({before}, {events})
left = producer.close()
for cover in covers:
    subprocess.run(["umount", "-l", str(cover)], check=True)
assert left == 0, left
"""
_ON_A_DISK = ("full", "read_only", "inodes")
HARMS = (*_ON_A_DISK, "quota", "gone", "file_in_its_place")


@dataclass
class HurtFolders:
    """The observations of a campaign; `wrong` must be empty."""

    cases: Counter[str] = field(default_factory=Counter)
    events: int = 0
    warned: int = 0  # cases that warned that counts are in memory
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.cases.items()))
        total = f"{self.cases.total()} cases ({kinds}), {self.events} events, {self.warned} warned"
        return "\n".join([f"{total}, in {self.seconds:.0f} s", *self.wrong])


def campaign(folder: Path, count: int, seed: int) -> HurtFolders:
    """Run so many cases on servers of their own."""
    with servers(folder) as (bootstrap, registry):
        return hurt(folder, bootstrap, registry, count, seed)


@contextmanager
def servers(folder: Path) -> Iterator[tuple[str, str]]:
    """A broker and a registry in a folder; their addresses."""
    listen = ["--listen", "127.0.0.1:0"]
    store = f"sqlite:///{folder}/registry.db"
    data = ["--data-dir", str(folder / "broker")]
    with (
        child_process.start(["broker", "start", *listen, *data]) as broker,
        child_process.start(["registry", "start", *listen, "--store", store]) as registry,
    ):
        yield broker.address, registry.url


def hurt(folder: Path, bootstrap: str, registry: str, count: int, seed: int) -> HurtFolders:
    """Run so many cases; each kind of harm comes equally often."""
    chance, report, began = Random(seed), HurtFolders(), time.monotonic()
    for number in range(count):
        if len(report.wrong) >= _MOST_WRONG:
            break
        harm = HARMS[number % len(HARMS)]
        before = chance.choice([0, chance.randint(1, 500)])
        events = before + chance.choice([1, 10, 600])
        here = folder / f"case-{number}"
        here.mkdir()
        site = new_site(here, bootstrap, registry)
        with on_disk(site, wanted=harm in _ON_A_DISK):
            values = {
                "harm": harm,
                "before": before,
                "events": events,
                "every": chance.choice([0.2, 60]),
                "python": chance.random() < 0.5,
            }
            _case(site, values, report)
        shutil.rmtree(here, ignore_errors=True)
    report.seconds = time.monotonic() - began
    return report


def on_disk(site: Site, *, wanted: bool) -> AbstractContextManager[object]:
    """The state folder, on a disk of 1 MiB if that is wanted."""
    site.state.mkdir()
    return small_disk(site.state) if wanted else nullcontext()


def _case(site: Site, values: dict[str, object], report: HurtFolders) -> None:
    package = site.one.__name__.partition(".")[0]
    servers = {"bootstrap": site.bootstrap, "registry": site.registry, "state": str(site.state)}
    folder = site.state.parent
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM.format(**values, **servers, package=package)],
            cwd=folder,
            env=environment(folder),
            capture_output=True,
            text=True,
            timeout=_LONGEST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        report.wrong.append(f"{values}: no end after {_LONGEST_SECONDS:.0f} s")
        return
    found = arrived(site.bootstrap, site.topic)
    if done.returncode or "Traceback" in done.stderr or found != values["events"]:
        tail = done.stderr[-2000:]
        report.wrong.append(f"{values}: exit {done.returncode}, {found} arrived: {tail}")
    when = "mid-life" if values["before"] else "start"
    report.cases[f"{values['harm']} at {when}"] += 1
    report.events += found
    report.warned += "kept in memory from now on" in done.stderr


def arrived(bootstrap: str, topic: str) -> int:
    """The number of messages of a topic."""
    client = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    place = confluent_kafka.TopicPartition
    found = client.list_topics(topic, timeout=60).topics[topic]
    partitions = [place(topic, each) for each in found.partitions]
    ends = [client.get_watermark_offsets(each, timeout=60)[1] for each in partitions]
    client.close()
    return sum(ends)
