"""The three kinds of tests, and the rules that keep the unit tests quick.

- `unit`: in this process. A unit test starts no process and opens no connection; it fails if its
  thread tries to. Clients of an earlier test may still reconnect in threads of their own.
- `contract`: against an independent implementation, such as Avro Java, fastavro, kio, librdkafka,
  kafka-python, Confluent's clients, ZooKeeper, or PostgreSQL.
- `e2e`: our servers and commands as processes, Spark, or a browser.

Every test module names its kind once, in `pytestmark`. A single test of a unit module may carry the
marker of a slower kind, or `seconds` if it takes more than one. It then leaves `make quick`.
"""

from __future__ import annotations

import ast
import sys
import threading

import pytest

KINDS = ("unit", "contract", "e2e")
_FORBIDDEN = {
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "socket.bind",
    "socket.connect",
    "subprocess.Popen",
}


class UnitTestError(AssertionError):
    """A unit test tried to start a process or to open a connection."""


def kinds_of(marks: list[pytest.Mark]) -> list[str]:
    """Return the kinds among these markers, in their order."""
    return [mark.name for mark in marks if mark.name in KINDS]


def kinds_named(source: str) -> list[str]:
    """Return the kinds that the source of a test module names in its `pytestmark`."""
    return [
        node.attr
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign)
        and [target.id for target in statement.targets if isinstance(target, ast.Name)]
        == ["pytestmark"]
        for node in ast.walk(statement.value)
        if isinstance(node, ast.Attribute) and node.attr in KINDS
    ]


class UnitTestGuard:
    """Fails a unit test as soon as it starts a process or opens a connection."""

    def __init__(self) -> None:
        self._guarded_thread: int | None = None  # the one that runs a unit test
        sys.addaudithook(self._refuse)  # it cannot be removed: it is idle outside unit tests

    def _refuse(self, event: str, _arguments: object) -> None:
        if event in _FORBIDDEN and self._guarded_thread == threading.get_ident():
            raise UnitTestError(f"{event} in a unit test: mark the test `contract` or `e2e`")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> object:
        if set(kinds_of(list(item.iter_markers()))) == {"unit"}:
            self._guarded_thread = threading.get_ident()
        try:
            return (yield)
        finally:
            self._guarded_thread = None
