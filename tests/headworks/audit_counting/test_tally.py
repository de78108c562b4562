"""The two forms of a tally beside each other: the same counts, the same words, at every step."""

from __future__ import annotations

import gc
import sys
import tracemalloc
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headworks._audit_counting.tally import LatestWindow, PythonLatestWindow, PythonTally, Tally
from tests.tools import needs

pytestmark = [
    pytest.mark.unit,
    needs("extensions"),
]
START, END, AT = -5, 5, 3
whole = st.one_of(
    st.integers(START - 2, END + 2),
    st.integers(),
    st.sampled_from([2**63 - 1, 2**63, -(2**63) - 1]),
)
sizes = st.one_of(st.integers(0, 1 << 20), st.sampled_from([0, 2**40]))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("attempt"), st.tuples(whole, sizes)),
        st.tuples(st.just("report"), st.tuples(st.sampled_from([None, "error", 0]), st.text())),
        st.tuples(st.just("attach"), st.tuples(st.integers(-1, 1))),
        st.tuples(st.sampled_from(["attempted", "delivered", "bytes"]), st.tuples(sizes)),
    ),
    max_size=50,
)


class Told:
    """A tally of one form, with two maps that it may be attached to, and what it told."""

    def __init__(self, form: Any) -> None:
        self.told: list[Any] = []
        self.maps = [memoryview(bytearray(8 * (AT + 2))).cast("Q") for _ in range(2)]
        self.tally = form(AT, START, END, lambda *given: self.told.append(given))

    def step(self, name: str, given: tuple[Any, ...]) -> object:
        if name == "attach":
            return self.tally.attach(None if given[0] < 0 else self.maps[given[0]])
        if name in ("attempt", "report"):
            return getattr(self.tally, name)(*given)
        setattr(self.tally, name, *given)
        return None

    def seen(self) -> object:
        tally = self.tally
        return (
            tally.attempted,
            tally.delivered,
            tally.bytes,
            self.told,
            [words.tolist() for words in self.maps],
        )


@given(steps)
def test_both_forms_say_and_count_the_same(given_steps: list[tuple[str, tuple[Any, ...]]]) -> None:
    python, compiled = Told(PythonTally), Told(Tally)
    for step in given_steps:
        assert python.step(*step) == compiled.step(*step)
        assert python.seen() == compiled.seen()


def test_ordinary_messages_are_counted_by_c() -> None:
    told = Told(Tally)
    assert not told.tally.attempt(START, 7)
    told.tally.attach(told.maps[0])
    assert all(told.tally.attempt(at, 7) for at in range(START, END))
    assert told.maps[0].tolist() == [0, 0, 0, END - START, 0]
    assert told.tally.bytes == 7 * (END - START)
    others = [(START - 1, 7), (END, 7), (1 << 64, 7), (None, 7), (0.0, 7), (True, 7), (0, -1)]
    assert not any(told.tally.attempt(*other) for other in others)
    assert told.tally.attempted == END - START
    told.tally.report(None, None)
    assert (told.tally.delivered, told.told) == (1, [])


def test_an_error_of_the_delivery_callback_is_not_hidden() -> None:
    def raises(_error: object, _message: object) -> None:
        raise LookupError("so")

    forms: list[Any] = [PythonTally, Tally]
    for form in forms:
        tally = form(AT, START, END, raises)
        with pytest.raises(LookupError, match="so"):
            tally.report(5, None)
        assert tally.delivered == 0


@pytest.mark.parametrize("form", [PythonTally, Tally], ids=["python", "compiled"])
@pytest.mark.parametrize("name", ["attempt", "report"])
@pytest.mark.parametrize("given", [(), (1,), (1, 2, 3)])
def test_a_step_takes_two_arguments(form: Any, name: str, given: tuple[int, ...]) -> None:
    with pytest.raises(TypeError):
        getattr(Told(form).tally, name)(*given)


def test_words_that_are_counted_in_cannot_go() -> None:
    told = Told(Tally)
    told.tally.attach(told.maps[0])
    told.tally.attach(told.maps[1])
    told.maps[0].release()
    with pytest.raises(BufferError):
        told.maps[1].release()
    few = memoryview(bytearray(8 * AT)).cast("Q")
    with pytest.raises(ValueError, match="not the words"):
        told.tally.attach(few)
    few.release()
    assert told.tally.attempt(0, 7), "it counts where it did"
    assert told.maps[1][AT] == 1
    told.tally.attach(None)
    told.tally.attach(None)
    told.maps[1].release()
    assert not told.tally.attempt(0, 7)
    with pytest.raises(ValueError, match="released"):
        told.tally.attach(told.maps[1])


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (bytearray(8 * (AT + 1)), ValueError),
        (memoryview(bytes(8 * (AT + 1))).cast("Q"), BufferError),
        (memoryview(bytearray(16 * (AT + 1))).cast("Q")[::2], BufferError),
        (5, TypeError),
    ],
)
def test_what_is_no_map_of_words_is_refused(words: Any, error: type[Exception]) -> None:
    told = Told(Tally)
    with pytest.raises(error):
        told.tally.attach(words)
    assert not told.tally.attempt(0, 7)


@pytest.mark.parametrize(
    "given", [(), (AT, START, END), (-1, START, END, repr), (AT, 0.5, END, repr), ("", 0, 0, 0)]
)
def test_a_tally_of_nonsense_is_refused(given: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError)):
        Tally(*given)


def test_nothing_is_kept_of_any_message() -> None:
    told = Told(Tally)
    error, message = object(), object()

    def count(times: int) -> None:
        for _ in range(times):
            told.tally.attach(told.maps[0])
            told.tally.attempt(1 << 40, 1 << 40)
            told.tally.attempt(0, 1 << 40)
            told.tally.report(None, message)
            told.tally.report(error, message)
            told.told.clear()
            told.tally.attach(None)

    count(1000)
    held = [error, message, told.maps[0]]
    counts = [sys.getrefcount(value) for value in held]

    def flat() -> bool:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        count(10_000)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before < 10_000

    tracemalloc.start()
    try:
        # A leak shows in each measurement; the objects of another test's thread do not.
        assert any(flat() for _ in range(3))
    finally:
        tracemalloc.stop()
    assert [sys.getrefcount(value) for value in held] == counts


def test_a_tally_goes_with_its_owner() -> None:
    class Owner:
        def __init__(self) -> None:
            self.tally = Tally(AT, START, END, self.undelivered)
            self.words = memoryview(bytearray(8 * (AT + 1))).cast("Q")
            self.tally.attach(self.words)
            self.report = self.tally.report

        def undelivered(self, _error: object, _message: object) -> None: ...

    gone = weakref.ref(Owner())
    gc.collect()
    assert gone() is None


def test_a_tally_and_its_words_go_in_any_order() -> None:
    """The collector once cleared words that a tally still held, and the interpreter crashed."""
    gone = []
    for _ in range(100):
        told = Told(Tally)
        told.maps[0] = told.maps[0][:]
        told.tally.attach(told.maps[0])
        told.told.append(told)
        gone.append(weakref.ref(told))
        del told
    gc.collect()
    assert not any(each() for each in gone)


@pytest.mark.parametrize(
    ("tally", "latest"), [(PythonTally, PythonLatestWindow), (Tally, LatestWindow)]
)
def test_the_latest_window_counts_its_own_messages_alone(tally: Any, latest: Any) -> None:
    words = memoryview(bytearray(8 * (AT + 1))).cast("Q")
    window, first, second = latest(), tally(AT, START, END, repr), tally(AT, START, END, repr)
    assert window.attempt(0, b"1234567") is None, "it holds none at first"
    window.hold(first, "first")
    assert window.attempt(0, b"1234567") is None, "the tally is not attached"
    first.attach(words)
    assert [window.attempt(at, b"1234567") for at in (START - 1, START, END - 1, END)] == [
        None,
        "first",
        "first",
        None,
    ]
    assert (words[AT], first.attempted, first.bytes) == (2, 2, 14)
    first.attach(None)
    assert window.attempt(0, b"1") is None, "its slot was freed"
    second.attach(words)
    window.hold(second, "second")
    assert (window.attempt(0, b""), words[AT], second.bytes) == ("second", 1, 0)


def test_the_latest_window_declines_and_keeps_nothing() -> None:
    told, counts = Told(Tally), object()
    window: LatestWindow[object] = LatestWindow()
    told.tally.attach(told.maps[0])
    held = [told.tally, counts]
    before = [sys.getrefcount(each) for each in held]
    window.hold(told.tally, counts)
    others: list[Any] = [(0, None), (0, bytearray(b"1")), (None, b""), (True, b""), (1 << 64, b"")]
    assert [window.attempt(*other) for other in others] == [None] * len(others)
    for _ in range(1000):
        assert window.attempt(0, b"1") is counts
        window.hold(told.tally, counts)
    with pytest.raises(TypeError):
        window.hold(PythonTally(AT, START, END, lambda *_: None), counts)
    del window
    assert [sys.getrefcount(each) for each in held] == before
