"""Both forms of counting: in this process, and in those that a test starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from headworks._audit_counting import tally, window_counts
from headworks._audit_counting.tally import LatestWindow, PythonLatestWindow, PythonTally, Tally
from headworks._native import COMPILED
from tests.tools import needs


@dataclass(frozen=True)
class Counting:
    """One form; `begin` is what the code of another process begins with to count in it."""

    tally: type[Any]
    latest: Any
    begin: str


PYTHON = Counting(
    PythonTally,
    PythonLatestWindow,
    "import sys; sys.modules['headworks._native._tally'] = None\n"
    "from headworks._native import COMPILED; assert not COMPILED\n",
)
AS_INSTALLED = Counting(
    Tally,
    LatestWindow,
    f"from headworks._native import COMPILED; assert COMPILED is {COMPILED}\n",
)
BOTH = [
    pytest.param(PYTHON, id="python"),
    pytest.param(
        AS_INSTALLED,
        id="compiled",
        marks=needs("extensions"),
    ),
]


def counting_in(form: Counting) -> Iterator[Counting]:
    """Have every counter file of this process count in `form`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_counts, "Tally", form.tally)
        patch.setattr(tally, "LatestWindow", form.latest)
        yield form
