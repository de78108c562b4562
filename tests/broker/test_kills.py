"""The short form of `python -m tests.soak kills`: nothing acknowledged is lost to SIGKILL."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.soak.ledger import Found, Ledger, value_of
from tests.soak.process import soak

pytestmark = pytest.mark.e2e

KILLS = int(os.environ.get("HEADWORKS_TEST_KILLS", "5"))


def test_nothing_acknowledged_is_lost_ordered_otherwise_or_doubled(tmp_path: Path) -> None:
    done = soak("kills", str(KILLS), "--seed", "7", "--folder", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{KILLS} kills" in done.stdout


def ledger() -> Ledger:
    """A ledger in which five messages are acknowledged."""
    made = Ledger(["p"])
    for number in range(5):
        made.acknowledge("p", 0, number)
    return made


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([0, 1, 2, 3, 4], ""),
        ([0, 1, 2, 3, 4, 5], ""),
        ([0, 1, 3, 4], "1 acknowledged are lost, the first is 2"),
        ([0, 1, 2, 3], "1 acknowledged are lost"),
        ([0, 1, 2, 2, 3, 4], "1 are there twice, the first is 2"),
        ([0, 1, 3, 2, 4], "2 is out of order"),
        ([0, 1, 2, 3, 4, 6], "numbers are missing before 6"),
    ],
)
def test_the_ledger_sees_what_is_wrong(numbers: list[int], words: str) -> None:
    found = [Found(0, at, value_of("p", 0, number)) for at, number in enumerate(numbers)]
    wrong = ledger().judge(found)
    assert bool(wrong) == bool(words)
    assert words in " ".join(wrong)


def test_the_ledger_sees_what_was_shown_and_taken_back() -> None:
    book = Ledger([])
    book.show(0, 0, value_of("p", 0, 0))
    book.show(0, 1, value_of("p", 0, 1))
    assert book.judge([Found(0, 0, value_of("p", 0, 0)), Found(0, 1, value_of("p", 0, 2))]) == [
        "0 at 1: was shown otherwise"
    ]
    assert book.judge([Found(0, 0, value_of("p", 0, 0))]) == ["0 at 1: was shown and is gone"]
    book.show(0, 0, value_of("p", 0, 9))
    assert book.failures == ["partition 0 showed two messages at offset 0"]
