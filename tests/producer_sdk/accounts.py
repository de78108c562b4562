"""A producer in a process of its own that comes to some end, and what the audit and the log say.

The law, to the message: attempted = delivered + failed + dropped + unresolved, and what the log
holds is what was delivered (and perhaps some of which nobody heard what became of them). Short in
tests/producer_sdk/test_accounts.py, for minutes in `python -m tests.soak producer`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import confluent_kafka

from headworks._audit.balance import Balance, total
from headworks._audit.reader import read_ledger
from producer_sdk import Producer, WhenFull
from tests.headworks.codec.generated_packages import environment
from tests.producer_sdk.events import Site

ENDS = ("close", "exit", "fork", "sigterm", "sigkill")
_PROGRAM = """
import datetime as dt, gc, importlib, json, os, signal, sys, time
from pathlib import Path
from producer_sdk import Producer, WhenFull, close_on_sigterm
given = json.loads(sys.argv[1])
Visit = importlib.import_module(given["module"]).Visit
began = time.time()
steps = iter(given["clock"])
def clock():  # an hour back and forth for each step, and then the truth
    return time.time() + 3600 * next(steps, 0)
producer = Producer(
    given["bootstrap"], given["registry"], application="child", state_dir=Path(given["state"]),
    when_full=WhenFull(given["when_full"]), block_ms=10, queue_messages=given["queue"],
    close_timeout=given["close_timeout"], audit_every=given["audit_every"], clock=clock,
    config=given["config"], registry_timeout=60,
)
def send(count, name):
    taken = 0
    for n in range(count):
        at = dt.datetime.fromtimestamp(clock(), dt.UTC)
        taken += producer.send(Visit(user=f"{name}{n}", at=at, seconds=n))
        time.sleep(given["pause"])
    return taken
end = given["end"]
if end == "sigterm":
    close_on_sigterm(producer)
part = 0
while sys.stdin.readline() == "send\\n":  # whoever started this says when
    part += 1
    taken = send(given["count"], f"part {part} ")
    print(json.dumps({"sent": given["count"], "taken": taken}), flush=True)
producer.flush(given["flush"])
if end == "fork":
    child = os.fork()
    taken = send(given["count"], "parent " if child else "child ")
    print(json.dumps({"sent": given["count"], "taken": taken}), flush=True)
    if child == 0:
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
elif end == "close":
    producer.close()
elif end == "forgotten":
    del producer
    gc.collect()
elif end != "exit":
    os.kill(os.getpid(), signal.SIGTERM if end == "sigterm" else signal.SIGKILL)
"""


@dataclass(frozen=True)
class Child:
    """What the child is to do; it sends `count` messages in each part of its life."""

    end: str = "close"
    count: int = 500
    when_full: str = WhenFull.DROP_NEW.value
    queue: int = 100_000
    pause: float = 0.0
    close_timeout: float = 120.0
    audit_every: float = 0.2
    flush: float = 0.0
    clock: tuple[int, ...] = ()
    config: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Account:
    """What it said, and what is found."""

    sent: int
    taken: int
    balance: Balance
    log: list[str]


def run(
    site: Site,
    child: Child,
    *,
    bootstrap: str = "",
    meanwhile: Sequence[Callable[[], None]] = (lambda: None,),
) -> Account:
    """Run a child to its end, then open the books.

    Each of `meanwhile` is called while the child sends one part; the next part begins after both.
    """
    given = {
        **asdict(child),
        "config": dict(child.config),
        "module": site.one.__name__,
        "bootstrap": bootstrap or site.bootstrap,
        "registry": site.registry,
        "state": str(site.state),
    }
    with subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-P", "-c", _PROGRAM, json.dumps(given)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(site.state.parent),
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        said = []
        for hurt in meanwhile:
            process.stdin.write("send\n")
            process.stdin.flush()
            hurting = threading.Thread(target=hurt)
            hurting.start()
            said.append(json.loads(process.stdout.readline()))
            hurting.join()
        process.stdin.write("enough\n")
        process.stdin.flush()
        said += map(json.loads, process.stdout)
        code = process.wait(240)
    assert code in (0, -15, -9), code
    settle(site, child, bootstrap)
    return Account(
        sum(each["sent"] for each in said),
        sum(each["taken"] for each in said),
        balance(site),
        log(site),
    )


def settle(site: Site, child: Child, reached: str) -> None:
    """The next producer on the machine: it publishes, and sends, what the last one left.

    It also names the address `reached`, or what was left for that would stay.
    """
    with Producer(
        ",".join(filter(None, (site.bootstrap, reached))),
        site.registry,
        application="next",
        state_dir=site.state,
        when_full=WhenFull(child.when_full),
        close_timeout=120,
    ):
        pass
    assert not list(site.state.glob("*.counts"))
    assert not list(site.state.glob("*.spill"))


def balance(site: Site) -> Balance:
    return total(read_ledger(site.bootstrap, site.registry).balances("hadoop", site.topic))


def log(site: Site) -> list[str]:
    """The users of all events in the topic, read without the SDK."""
    import struct

    found: list[str] = []
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": site.bootstrap,
            "group.id": f"log-{os.urandom(4).hex()}",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    try:
        known = consumer.list_topics(site.topic, 60).topics[site.topic].partitions
        consumer.assign([confluent_kafka.TopicPartition(site.topic, p, 0) for p in known])
        ends = 0
        while ends < len(known):
            for message in consumer.consume(1000, 0.2):
                problem = message.error()
                if problem is not None:
                    assert problem.code() == confluent_kafka.KafkaError._PARTITION_EOF
                    ends += 1
                    continue
                value = message.value() or b""
                assert struct.unpack_from(">b", value) == (0,)
                size = value[5] >> 1  # the user is the first field, and short
                found.append(value[6 : 6 + size].decode())
    finally:
        consumer.close()
    return found


def check(account: Account, child: Child) -> None:
    """AssertionError unless every message is accounted for."""
    row, spills = account.balance, child.when_full == WhenFull.SPILL
    unknown = row.unresolved + row.failed + row.dropped - (account.sent - account.taken)
    assert row.attempted == account.sent, account
    if not spills:  # what another process sends again is resolved twice, and attempted once
        assert row.attempted == row.delivered + row.failed + row.dropped + row.unresolved, row
        assert row.in_flight == 0, row
        assert row.failed + row.dropped >= account.sent - account.taken, account
    assert row.delivered <= len(account.log) <= row.delivered + max(0, unknown), account
    distinct = set(account.log)
    assert len(distinct) <= account.taken
    if spills:  # all but what the queue in memory held
        held = child.queue if child.end == "sigkill" else 0
        assert len(distinct) >= account.taken - held, (len(distinct), account.taken)
    elif child.end != "sigkill" and not unknown:
        assert sorted(distinct) == sorted(account.log)
        assert len(account.log) == row.delivered == account.taken
