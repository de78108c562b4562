"""The fate of every message by name, and the states in which the audit counts it.

The names are those of the journals. A message is taken (`+`) or dropped (`-`) by its producer,
written by a client that does not count (`p`), or poison of one (`x`). Its fate is read from the
tables' files: how often it is a row, or in quarantine.

Rules: knows nothing of the audit but the names of its states. A topic is hurt in one way, so a
taken message that is missing has one name: lost if its log was cut, unresolved if its producer was
killed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from headworks._audit.balance import Balance
from headworks._audit.increments import id_bytes
from headworks._audit.states import DEFINITIONS
from headworks._audit.store import AuditStore
from headworks._audit.store.apply import known_ids
from headworks._audit_counting.counters import CounterFile
from tests.soak.fire_tables import WINDOW_MS, Identity

_UNKNOWN_BY_NAME = ("delivered", "late")  # what the broker said, and when a load ran
_POISON = "poison"


@dataclass(slots=True)
class Fates:
    """Messages of one topic by (window, state), and what cannot be."""

    states: Counter[tuple[int, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def total(self, state: str) -> int:
        """The messages of all windows in a state."""
        return sum(n for (_, name), n in self.states.items() if name == state)


def poison(sender: str, n: int) -> bytes:
    """A value that is no event, and names itself."""
    return f"{_POISON} {sender} {n}".encode()


def poison_of_tables(root: Path, topic: str) -> Counter[Identity]:
    """The quarantined messages of a topic."""
    found: Counter[Identity] = Counter()
    for path in (root / "headworks_quarantine").rglob("[!._]*.parquet"):
        columns = pq.ParquetFile(path).read(columns=["topic", "value"]).to_pydict()
        for of, value in zip(columns["topic"], columns["value"], strict=True):
            word, sender, n = value.decode(errors="replace").split(" ")
            assert word == _POISON
            if of == topic:
                found[sender, int(n)] += 1
    return found


def fates_of(
    folder: Path, topic: str, rows: Counter[Identity], quarantined: Counter[Identity], missing: str
) -> Fates:
    """Return the fate of every message in the journals of a topic, in `folder`."""
    found, unknown = Fates(), {*rows, *quarantined}
    for journal in sorted(folder.glob(f"{topic}-*.journal")):
        for line in journal.read_text().splitlines():
            mark, sender, number, at = line.split()
            if mark == ">":
                continue
            name, window = (sender, int(number)), int(at) - int(at) % WINDOW_MS
            unknown.discard(name)
            n, poisoned = rows[name], quarantined[name]
            counted = mark in "+-"
            states = {
                "attempted": int(counted),
                "loaded": n,
                "quarantined": poisoned,
                "dropped": int(mark == "-"),
                missing: int(mark == "+" and not n),
                "surplus": max(0, n + poisoned - (mark == "+")),
            }
            for state, messages in states.items():
                found.states[window, state] += messages
            if (mark == "x") != bool(poisoned) or (mark == "-" and n) or (mark == "p" and not n):
                found.wrong.append(f"{topic} {name} {mark}: {n} rows, {poisoned} in quarantine")
    found.wrong += [f"{topic} {name}: nobody sent it" for name in sorted(unknown)[:5]]
    return found


def differences(topic: str, fates: Fates, balances: Iterable[Balance]) -> list[str]:
    """Return where the audit's states are not those of the fates, window by window."""
    audit = {row.window_start or 0: row for row in balances}
    wrong = list(fates.wrong)
    for window in sorted({*audit, *(window for window, _ in fates.states)}):
        for state in DEFINITIONS:
            told = getattr(audit[window], state) if window in audit else 0
            true = fates.states[window, state]
            if state not in _UNKNOWN_BY_NAME and told != true:
                wrong.append(f"{topic} {window}: {true} are {state}, by the audit {told}")
    return wrong


def unpublished(store: AuditStore, files: Iterable[Path]) -> Counter[int]:
    """Return the attempts by window that only the files of killed processes know."""
    found: Counter[int] = Counter()
    for path in files:
        file = CounterFile(path.parent, path=path)
        # An increment that was on its way comes first, and then what was counted after it.
        while increments := list(file.increments(owner_died=True)):
            with store.read() as connection:
                known = known_ids(connection, [id_bytes(one.id) for one in increments])
            for one in increments:
                if id_bytes(one.id) not in known:
                    found[one.window_start] += one.counts.get("attempted", 0)
                file.published(one)
        file.close()
    return found


def differences_forever(
    topic: str, fates: Fates, balances: Iterable[Balance], unknown: Counter[int]
) -> list[str]:
    """Return what is wrong for producers that were killed for good.

    `unknown` attempts were never published, so these messages are a surplus if they arrived, and
    the audit does not know of them if they did not.
    """
    audit = {row.window_start or 0: row for row in balances}
    wrong = list(fates.wrong)
    for window in sorted({*audit, *(window for window, _ in fates.states)}):
        row = audit.get(window)
        attempted, loaded, surplus, unresolved, others = (
            (0, 0, 0, 0, 0)
            if row is None
            else (
                *(row.attempted, row.loaded, row.surplus, row.unresolved),
                row.lost + row.waiting + row.failed + row.duplicated + row.quarantined,
            )
        )
        sent, rows = fates.states[window, "attempted"], fates.states[window, "loaded"]
        if (
            attempted + unknown[window] != sent
            or loaded != rows
            or surplus != max(0, rows - attempted)
            or unresolved != max(0, attempted - rows)
            or others
        ):
            wrong.append(
                f"{topic} {window}: {sent} sent, {rows} rows, {unknown[window]} never reported; "
                f"by the audit {row}"
            )
    return wrong
