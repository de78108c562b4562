"""A mirror under fire: a second cluster, whose producers' messages a mirror brings to the first.

`fire.mirrored` is written to the source while the mirror, the source and the target are killed and
paused: what comes twice on the target is the mirror's doing. Of `fire.gone` the source drops
messages before the mirror has read them, when nothing is killed any more: so a loss and a duplicate
never hide each other here, either.

Rules that are judged, per topic and window, against the target's log as a plain client reads it:

- what the tier of the mirror lacks is what is not on the target, to the message;
- what it has twice is there twice; what may be there twice besides, it has called unresolved.

What came to Hive through the mirror is judged with all the rest, doubles included, to the message.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headworks._audit import queries
from headworks._audit.balance import Balance
from headworks._audit.store import AuditStore
from headworks._audit_counting import AUDIT_TOPIC
from tests.soak.fire_tables import Truth, rows_of_log, truth_of
from tests.soak.mirror import drain, end_offsets
from tests.soak.process import PATIENCE, Broker, Child, wait_until

MIRRORED, GONE = "fire.mirrored", "fire.gone"
_NAME = "fire"
_READY = f"as mirror:{_NAME}\n".encode()
_PAUSE = 1.5  # seconds at most: long enough for the group to give the mirror up
_SOME = 40_000  # bytes of a journal
_ENDS = 20  # tries to publish all counts: at its end a mirror has some seconds for it


class Mirrored:
    """The source, and the mirror from it to `target`."""

    def __init__(self, folder: Path, target: Broker, registry: str, chance: Random) -> None:
        self.folder, self.target, self._chance = folder, target, chance
        self.log = folder / "mirror.log"
        self.source = Broker(folder / "source", "--default-partitions", "2")
        self.source.start()
        quick = folder / "quick.properties"
        quick.write_text("session.timeout.ms=1000\nheartbeat.interval.ms=200\n")
        topics = "|".join((MIRRORED, GONE, AUDIT_TOPIC)).replace(".", r"\.")
        command = ["headworks._cli", "mirror", "--name", _NAME, "--topics", topics]
        command += ["--from", self.source.address, "--to", target.address]
        command += ["--to-registry", registry, "--data-dir", str(folder)]
        self._command = [*command, "--commit-every", "0.3", "--refresh-every", "0.5"]
        self._hurried = [*self._command, "--from-config", str(quick)]
        self.mirror = self._start(self._hurried)
        self._seen = 0

    def _start(self, command: list[str]) -> Child:
        before = self._starts()
        return Child(command, self.log, ready=lambda: self._starts() > before)

    def _starts(self) -> int:
        return self.log.read_bytes().count(_READY) if self.log.exists() else 0

    @property
    def evils(self) -> list[tuple[int, str, Callable[[], bool | None]]]:
        """What can be done to it: how often, its name, and the doing."""
        return [
            (3, "mirror killed", self._kill),
            (2, "mirror paused", self._pause),
            (1, "source killed", self._kill_source),
            (1, "source paused", lambda: self._frozen(self.source, self._chance.random())),
        ]

    def _kill(self) -> bool:
        """Not before it has copied something; now and then while the target is frozen."""
        if self._is_dead() or self._copied() <= self._seen:
            return False
        if self._chance.random() < 0.5:
            self._frozen(self.target, 0.5, self.mirror.kill)
        else:
            self.mirror.kill()
        self._seen = self._copied()
        self.mirror = self._start(self._hurried)
        return True

    def _copied(self) -> int:
        return sum(end_offsets(self.target.address, MIRRORED).values())

    def _is_dead(self) -> bool:
        """One that starts while a cluster is away ends: then start it again."""
        dead = self.mirror.process.poll() is not None
        if dead:
            self.mirror = self._start(self._hurried)
        return dead

    def _pause(self) -> bool:
        if self._is_dead():
            return False
        self.mirror.signal(signal.SIGSTOP)
        time.sleep(self._chance.random() * _PAUSE)
        self.mirror.signal(signal.SIGCONT)
        return True

    def _frozen(
        self, broker: Broker, seconds: float, then: Callable[[], None] | None = None
    ) -> None:
        os.kill(broker.pid, signal.SIGSTOP)
        time.sleep(seconds)
        if then is not None:
            then()
        os.kill(broker.pid, signal.SIGCONT)

    def _kill_source(self) -> None:
        self.source.kill()
        time.sleep(self._chance.random() * 0.5)
        self.source.start()

    def rest(self) -> None:
        """Kill the mirror, if it lives, and let nothing be mirrored until `settle`."""
        if self.mirror.process.poll() is None:
            self.mirror.kill()

    def settle(self, last: Child, journal: Path) -> list[str]:
        """Lose some of what `last` has sent to fire.gone, and end the mirror; what went wrong."""
        wait_until(lambda: journal.exists() and journal.stat().st_size > _SOME)
        wrong = [] if last.end() == 0 else [f"the producer of {GONE} did not end: {last.log}"]
        self._cut()
        for _ in range(_ENDS):
            self.mirror = self._start(self._command)
            drain(self.source.address, f"headworks-mirror-{_NAME}", MIRRORED, GONE, AUDIT_TOPIC)
            if self.mirror.end() != 0:
                wrong.append(f"the mirror did not end well: {self.log}")
            if not list((self.folder / "mirror" / _NAME).glob("*.counts")):
                break
        else:
            wrong.append("the mirror did not publish all that it had counted")
        if b"Traceback" in self.log.read_bytes():
            wrong.append(f"a traceback in {self.log}")
        return wrong

    def _cut(self) -> None:
        """Drop messages of fire.gone on the source, of each partition some."""
        admin = AdminClient({"bootstrap.servers": self.source.address, "log_level": 2})
        places = [
            TopicPartition(GONE, index, self._chance.randrange(1, end))
            for index, end in end_offsets(self.source.address, GONE).items()
            if end > 1
        ]
        for done in admin.delete_records(places).values():
            done.result(PATIENCE)

    def compare(self, store: AuditStore, topic: str) -> tuple[list[str], str]:
        """Hold the figures of the mirror's tier against the target's log: what is wrong, a line."""
        truth = truth_of(self.folder, topic, rows_of_log(self.target.address, topic))
        wrong = []
        balances = queries.balances(store, f"mirror:{_NAME}", topic)
        rows = {row.window_start or 0: row for row in balances}
        doubled = unresolved = 0
        for window in sorted({*truth.sent, *rows}):
            row, open_ = rows.get(window), _unresolved(store, topic, window)
            audit = (
                (row.attempted - row.dropped - row.failed, row.missing, row.surplus)
                if row
                else (0, 0, 0)
            )
            ledger = (truth.sent[window], truth.lost[window])
            known, there = audit[2], truth.doubled[window]
            if audit[:2] != ledger or not known <= there <= known + open_:
                wrong.append(
                    f"{topic} {window} on the target: sent, lost, doubled are "
                    f"{(*ledger, there)}, by the mirror {audit}, unresolved {open_}"
                )
            doubled, unresolved = doubled + known, unresolved + open_
        return wrong, _line(
            topic, truth, sum(r.missing for r in rows.values()), doubled, unresolved
        )

    def put_out(self) -> None:
        """End everything."""
        self.rest()
        if self.source.alive:
            self.source.kill()


def _expected(row: Balance) -> int:
    return row.attempted - row.dropped - row.failed


def _unresolved(store: AuditStore, topic: str, window: int) -> int:
    found = queries.explain(store, topic, window).contributions
    return sum(one.counts.get("unresolved", 0) for one in found if one.tier == f"mirror:{_NAME}")


def _line(topic: str, truth: Truth, lost: int, doubled: int, unresolved: int) -> str:
    return (
        f"{topic} on the target: ledger sent {sum(truth.sent.values())}, lost "
        f"{sum(truth.lost.values())}, doubled {sum(truth.doubled.values())}; the mirror's tier "
        f"lost {lost}, doubled {doubled}, unresolved {unresolved}"
    )
