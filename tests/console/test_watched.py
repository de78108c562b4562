"""A source that is down keeps its last answer, with its age and the reason."""

from __future__ import annotations

from console.sources import Watched
from headworks.errors import UnreachableError


def test_a_failed_reading_keeps_the_last_good_one() -> None:
    now = [100.0]
    answers: list[object] = [1, UnreachableError("gone", fix="start it"), RuntimeError("bug"), 2]

    def read() -> int:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, int)
        return found

    source = Watched("thing", read, every=1.0, clock=lambda: now[0])
    assert source.latest.value is None
    source.refresh()
    now[0] += 5
    source.refresh()
    found = source.latest
    assert (found.value, found.state.age_seconds) == (1, 5.0)
    assert (found.state.problem, found.state.fix) == ("gone", "start it")
    source.refresh()
    assert "bug" in (source.latest.state.problem or "")
    source.refresh()
    assert source.latest.value == 2
    assert source.latest.state.problem is None
