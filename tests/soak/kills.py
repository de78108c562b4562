"""Kill a broker under load, again and again, and hold the ledger against what is left.

Two fates: `kill` is SIGKILL, which keeps the page cache; `cut` is SIGKILL and the loss of all that
was not on disk (see `power`). Now and then the broker is killed once more while it recovers.

Rules: every choice comes from the seed; between most kills all clients must have got on, so that a
kill hits a broker at work; the broker's log may hold no traceback.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.broker.wire import Wire, kind
from tests.command_line import run_command
from tests.soak.ledger import Ledger
from tests.soak.load import GROUP, Load, read_all
from tests.soak.power import cut_power
from tests.soak.process import Broker

_TOPIC = "load"
_PARTITIONS = 4
_KEPT = ("librdkafka", "kafka-python")
_PROGRESS = 300  # messages that each kept producer has acknowledged before the next kill
_PATIENCE = 120.0
_OFFSET_FETCH = 9


@dataclass(frozen=True, slots=True)
class Report:
    """The observations of a campaign; `wrong` must be empty."""

    kills: int
    during_recovery: int
    cuts: int
    lost_bytes: int
    acknowledged: int
    shown: int
    found: int
    seconds: float
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.kills} kills ({self.during_recovery} of them during recovery),"
            f" {self.cuts} power cuts that took {self.lost_bytes} bytes, in {self.seconds:.0f} s",
            f"{self.acknowledged} messages acknowledged, {self.shown} shown, {self.found} found",
            *self.wrong[:20],
        ]
        return "\n".join(lines)


def campaign(folder: Path, kills: int, seed: int, *, power: bool = False) -> Report:
    """Kill `kills` times; with `power`, most kills are power cuts."""
    began = time.monotonic()
    random = Random(seed)
    options = ("--segment-bytes", "60000", "--flush-ms", "300")
    broker = Broker(folder, *options, observed=power)
    ledger = Ledger(_KEPT)
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    admin.create_topics([NewTopic(_TOPIC, _PARTITIONS, 1)])[_TOPIC].result(60)
    load = Load(broker.address, _TOPIC, _PARTITIONS, ledger)
    deaths = _Deaths(broker, random, power=power)
    try:
        load.start()
        while deaths.kills < kills and not ledger.failures:
            if random.random() < 0.8:  # else it dies young
                _wait_for_progress(ledger)
            time.sleep(random.random() * 0.3)
            deaths.kill()
            before = ledger.committed()
            while deaths.kills < kills and random.random() < 0.2:
                deaths.kill_while_recovering()
            broker.start()
            _check_commits(broker.address, before, ledger)
        load.finish()
        found = read_all(broker.address, _TOPIC, _PARTITIONS, random)
        wrong = ledger.judge(found)
    except Exception as error:
        found, wrong = [], [*ledger.failures, f"it could not go on: {error}"]
    finally:
        load.finish()
        broker.stop()
    return Report(
        deaths.kills,
        deaths.during_recovery,
        deaths.cuts,
        deaths.lost_bytes,
        sum(ledger.acknowledged.values()),
        ledger.shown,
        len(found),
        time.monotonic() - began,
        (*wrong, *_damage(broker), *_tracebacks(broker)),
    )


class _Deaths:
    """How the broker dies."""

    def __init__(self, broker: Broker, random: Random, *, power: bool) -> None:
        self.kills = self.during_recovery = self.cuts = self.lost_bytes = 0
        self._broker = broker
        self._random = random
        self._power = power

    def kill(self) -> None:
        self._broker.kill()
        self.kills += 1
        if self._power and self._random.random() < 0.7:
            self.cuts += 1
            self.lost_bytes += cut_power(self._broker.logs, self._broker.journal, self._random)

    def kill_while_recovering(self) -> None:
        self._broker.launch()
        time.sleep(self._random.random() * 0.8)
        self.during_recovery += 1
        self.kill()


def _wait_for_progress(ledger: Ledger) -> None:
    goals = {name: ledger.acknowledged[name] + _PROGRESS for name in ledger.kept}
    end = time.monotonic() + _PATIENCE
    while any(ledger.acknowledged[name] < goal for name, goal in goals.items()):
        if ledger.failures:
            return
        if time.monotonic() > end:
            behind = {n: goal - ledger.acknowledged[n] for n, goal in goals.items()}
            ledger.fail(f"clients did not get on within {_PATIENCE:.0f} s: missing {behind}")
            return
        time.sleep(0.01)


def _check_commits(address: str, before: dict[int, int], ledger: Ledger) -> None:
    """Positions that were acknowledged before the kill are there after it."""
    asked = kind(_OFFSET_FETCH, 5, "request", "OffsetFetchRequestTopic")
    with Wire(address) as wire:
        topic = asked(name=_TOPIC, partition_indexes=tuple(range(_PARTITIONS)))
        reply = wire.ask(_OFFSET_FETCH, 5, group_id=GROUP, topics=(topic,))
    for partition in reply.topics[0].partitions:
        known = before.get(partition.partition_index, -1)
        if partition.committed_offset < known:
            ledger.fail(
                f"partition {partition.partition_index}: committed {known},"
                f" and {partition.committed_offset} is left"
            )


def _damage(broker: Broker) -> list[str]:
    """What `headworks log dump` says against the partitions."""
    wrong = []
    for partition in range(_PARTITIONS):
        done = run_command("log", "dump", str(broker.logs / f"{_TOPIC}-{partition}"))
        if done.returncode:
            wrong.append(f"log dump of partition {partition}: {done.stderr[-500:]}")
    return wrong


def _tracebacks(broker: Broker) -> list[str]:
    words = broker.words()
    bad = [w for w in ("Traceback", "internal error", "is not served") if w in words]
    return [f"the broker's log holds {word!r}: {broker.log}" for word in bad]
