"""The short form of `python -m tests.soak mirror`, and that its judge can say no."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.soak.mirror import judge
from tests.soak.process import soak

pytestmark = pytest.mark.e2e

KILLS = int(os.environ.get("HEADWORKS_TEST_MIRROR_KILLS", "2"))


def test_a_killed_mirror_loses_nothing(tmp_path: Path) -> None:
    done = soak("mirror", str(KILLS), "--seed", "4", "--folder", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{KILLS} kills" in done.stdout


class Copy:
    """A message as the judge sees it."""

    def __init__(self, number: int) -> None:
        self._value = b"%d" % number

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return self._value

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 0


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([0, 1, 2, 3, 4], ""),
        ([0, 1, 2, 1, 2, 3, 4], ""),
        ([0, 1, 2, 4], "1 messages are missing, the first is 3"),
        ([0, 2, 1, 3, 4], "not stand in the order"),
        ([0, 1, 9, 2, 3, 4], "offset 2 is no message of the source"),
        ([0, 1, 2, 0, 1, 2, 3, 4], "0 came again behind 2, when 1 was committed"),
    ],
)
def test_the_judge_can_say_no(numbers: list[int], words: str) -> None:
    theirs: list[Any] = [Copy(number) for number in range(5)]
    ours: list[Any] = [Copy(number) for number in numbers]
    wrong = judge(theirs, ours, [(2, 1)])
    assert words in " ".join(wrong) if words else not wrong
