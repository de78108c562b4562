"""ListOffsets of all our clients: what counts as an offset, and how many requests it takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException

from headworks._kafka.log_offsets import (
    EARLIEST,
    LATEST,
    ListedOffsets,
    list_offsets,
    list_several,
)

pytestmark = pytest.mark.unit


class Leaders:
    """Stands for librdkafka's admin client: each partition gets the same answer."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.requests: list[tuple[int, Any, float]] = []  # partitions, isolation level, timeout

    def list_offsets(self, asked: dict[Any, Any], **options: Any) -> dict[Any, Any]:
        self.requests.append((len(asked), options["isolation_level"], options["request_timeout"]))
        return {at: SimpleNamespace(result=self._result) for at in asked}

    def _result(self, timeout: float) -> Any:
        if isinstance(self.answer, KafkaError):
            raise KafkaException(self.answer)
        if isinstance(self.answer, Exception):
            raise self.answer
        return SimpleNamespace(offset=self.answer)


def ask(answer: Any) -> ListedOffsets:
    leaders: Any = Leaders(answer)
    return list_offsets(leaders, [("t", 0)], EARLIEST, timeout=1.0)


@pytest.mark.parametrize("offset", [7, -1], ids=["an offset", "no record is as late"])
def test_what_a_leader_answers_is_an_offset(offset: int) -> None:
    assert ask(offset) == ListedOffsets({("t", 0): offset}, {})


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (OFFSET_INVALID, KafkaError.LEADER_NOT_AVAILABLE),
        (KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION), KafkaError.NOT_LEADER_FOR_PARTITION),
        (TimeoutError(), KafkaError._TIMED_OUT),
    ],
)
def test_what_is_no_answer_of_a_leader_is_an_error(answer: Any, code: int) -> None:
    listed = ask(answer)
    assert listed.offsets == {}
    assert listed.errors["t", 0].args[0].code() == code


def test_thousands_of_partitions_take_a_few_requests() -> None:
    leaders: Any = Leaders(1)
    places = [("t", number) for number in range(4001)]
    listed = list_offsets(leaders, places, EARLIEST, timeout=3.0, committed=True)
    assert listed.offsets == dict.fromkeys(places, 1)
    level = IsolationLevel.READ_COMMITTED
    assert leaders.requests == [(2000, level, 3.0), (2000, level, 3.0), (1, level, 3.0)]
    assert list_offsets(leaders, [], EARLIEST, timeout=3.0) == ListedOffsets({}, {})


def test_several_specs_are_asked_before_any_answer_is_awaited() -> None:
    events: list[str] = []

    class Slow(Leaders):
        def list_offsets(self, asked: dict[Any, Any], **options: Any) -> dict[Any, Any]:
            events.append("asked")
            offset = 3 if EARLIEST in asked.values() else 8
            answer = SimpleNamespace(offset=offset)

            def result(_: float) -> Any:
                events.append("awaited")
                return answer

            return {at: SimpleNamespace(result=result) for at in asked}

    leaders: Any = Slow(None)
    places = [("t", 0), ("u", 1)]
    first, last = list_several(leaders, places, [EARLIEST, LATEST], timeout=1.0)
    assert first == ListedOffsets(dict.fromkeys(places, 3), {})
    assert last == ListedOffsets(dict.fromkeys(places, 8), {})
    assert events == ["asked"] * 2 + ["awaited"] * 4
