"""Counter files: whatever is killed and whenever, the published increments sum to the truth; the
same in both forms of counting.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headworks._audit_counting import WINDOW_MS, tally, window_of
from headworks._audit_counting.counters import CounterFile, PendingIncrement, leftover_files
from headworks._audit_counting.outcomes import (
    ATTEMPTED,
    BROKER_ERROR,
    DELIVERED,
    FAILED,
    OUTCOMES,
    QUEUE_FULL,
)
from headworks._kafka.partitioner import KeylessPartitioner
from headworks.errors import UsageError
from producer_sdk._transport import Transport
from tests.headworks.audit_counting.both_forms import Counting

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("counting")]
Books = dict[str, PendingIncrement]


def summed(books: Books) -> Counter[tuple[str, int, str]]:
    """What the audit makes of the increments: each id once."""
    total: Counter[tuple[str, int, str]] = Counter()
    for increment in books.values():
        for outcome, count in increment.counts.items():
            total[increment.topic, increment.window_start, outcome] += count
    return total


def book(books: Books, increment: PendingIncrement) -> None:
    """Receive an increment; the same id must never say something else."""
    assert books.setdefault(increment.id, increment).counts == increment.counts


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("send"),
            st.sampled_from(["a", "b"]),
            st.integers(0, 3),
            st.sampled_from([DELIVERED, FAILED, QUEUE_FULL, BROKER_ERROR, None]),
        ),
        st.tuples(
            st.sampled_from(["report", "report-without-ack", "crash"]),
            st.just(""),
            st.just(0),
            st.none(),
        ),
    ),
    max_size=60,
)


@given(steps)
def test_increments_sum_to_what_was_counted(
    tmp_path_factory: pytest.TempPathFactory, given_steps: list[tuple[str, str, int, int | None]]
) -> None:
    folder = tmp_path_factory.mktemp("counts")
    books: Books = {}
    truth: Counter[tuple[str, int, str]] = Counter()
    open_messages: Counter[tuple[str, int, str]] = Counter()
    counters = CounterFile(folder)
    for what, topic, number, outcome in given_steps:
        window = number * WINDOW_MS
        if what == "send":
            slot = counters.attempt(topic, window, 10)
            truth[topic, window, "attempted"] += 1
            if outcome is None:
                open_messages[topic, window, "unresolved"] += 1
            else:
                slot.resolve(outcome)
                truth[topic, window, OUTCOMES[outcome]] += 1
        elif what == "crash":
            counters.close()
            truth.update(open_messages)
            open_messages.clear()
            counters = CounterFile(folder)
            publish_leftovers(folder, books)
        else:
            for increment in counters.increments():
                book(books, increment)
                if what == "report":
                    counters.published(increment)
    counters.close()
    truth.update(open_messages)
    publish_leftovers(folder, books)
    assert summed(books) == truth
    assert not list(folder.iterdir())


def publish_leftovers(folder: Path, books: Books) -> None:
    for file in leftover_files(folder):
        # Twice: what was being published when the process died, then what came after.
        for _ in range(2):
            for increment in file.increments(owner_died=True):
                book(books, increment)
                file.published(increment)
        file.close(remove=file.settled())


@pytest.mark.e2e
def test_counts_survive_sigkill_and_a_live_file_is_left_alone(
    tmp_path: Path, counting: Counting
) -> None:
    code = counting.begin + (
        "import sys, time; from pathlib import Path\n"
        "from headworks._audit_counting.counters import CounterFile\n"
        "from headworks._audit_counting.outcomes import DELIVERED\n"
        f"c = CounterFile(Path({str(tmp_path)!r}))\n"
        "for i in range(1000):\n"
        "    s = c.attempt('flights', 0, 7)\n"
        "    if i % 2: s.resolve(DELIVERED)\n"
        "print('counted', flush=True); time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "counted\n"
        assert not list(leftover_files(tmp_path))
        os.kill(process.pid, signal.SIGKILL)
    (file,) = leftover_files(tmp_path)
    (increment,) = file.increments(owner_died=True)
    file.close()
    assert increment.counts == {"attempted": 1000, "delivered": 500, "unresolved": 500}
    assert increment.bytes == 7000


@pytest.mark.e2e
def test_what_was_not_written_down_before_a_sigkill_is_unresolved_and_never_lost(
    tmp_path: Path, counting: Counting
) -> None:
    code = counting.begin + (
        "import sys, time; from pathlib import Path\n"
        "from headworks._audit_counting.counters import CounterFile\n"
        f"c = CounterFile(Path({str(tmp_path)!r}))\n"
        "slots = [c.attempt('flights', 0, 7) for _ in range(20)]\n"
        "for slot in slots[:10]: slot.report(None, None)\n"
        "c.flush()\n"
        "for slot in slots[10:15]: slot.report(None, None)\n"
        "print('counted', flush=True); time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "counted\n"
        os.kill(process.pid, signal.SIGKILL)
    (file,) = leftover_files(tmp_path)
    (increment,) = file.increments(owner_died=True)
    file.close()
    assert increment.counts == {"attempted": 20, "delivered": 10, "unresolved": 10}


def test_a_thread_that_publishes_after_the_close_finds_nothing(tmp_path: Path) -> None:
    counters = CounterFile(tmp_path)
    counters.attempt("t", 0, 1).resolve(DELIVERED)
    counters.close()
    assert not counters.settled()
    assert list(counters.increments()) == []


def test_more_windows_than_the_file_first_had_room_for(tmp_path: Path) -> None:
    counters = CounterFile(tmp_path)
    for number in range(2000):
        counters.attempt("t", number * WINDOW_MS, 1).resolve(DELIVERED)
    published = list(counters.increments())
    for increment in published:
        counters.published(increment)
    assert len({increment.window_start for increment in published}) == 2000
    assert counters.settled()
    counters.attempt("t", 0, 1)
    assert counters.used == 1 + 2000, "freed slots are used again"
    counters.close()


@given(st.integers(-(2**40), 2**40))
def test_a_window_holds_its_timestamp(timestamp: int) -> None:
    start = window_of(timestamp)
    assert start <= timestamp < start + WINDOW_MS
    assert start % WINDOW_MS == 0


def test_windows_before_1970_are_kept(tmp_path: Path) -> None:
    counters = CounterFile(tmp_path)
    counters.attempt("t", -WINDOW_MS, 1)
    (increment,) = counters.increments()
    counters.close()
    assert increment.window_start == -WINDOW_MS


@pytest.mark.seconds
@pytest.mark.usefixtures("hasty")
def test_counting_and_publishing_at_once_while_the_file_grows(tmp_path: Path) -> None:
    counters = CounterFile(tmp_path)
    published: Counter[str] = Counter()
    failures: list[BaseException] = []
    done = threading.Event()

    def publish() -> None:
        try:
            while not done.is_set():
                publish_once()
        except BaseException as error:
            failures.append(error)

    def publish_once() -> None:
        for increment in counters.increments():
            published.update(increment.counts)
            counters.published(increment)

    publisher = threading.Thread(target=publish)
    publisher.start()
    for number in range(20_000):
        counters.attempt("t", number * WINDOW_MS, 1).resolve(DELIVERED)
    done.set()
    publisher.join()
    assert not failures
    publish_once()
    publish_once()
    counters.close()
    assert published == {"attempted": 20_000, "delivered": 20_000}


class _AtOnce:
    """Delivers a message before it has taken it."""

    def produce(self, _topic: str, *message: Any) -> None:
        message[3](None, None)


def sending(counters: CounterFile) -> Any:
    """What counts messages as a producer does, delivered at once."""
    transport: Any = object.__new__(Transport)
    transport.counters, transport.client, transport._partitioner = (
        counters,
        _AtOnce(),
        KeylessPartitioner(),
    )
    transport._spill, transport.windows = None, defaultdict(tally.LatestWindow)
    return transport


def put(transport: Any, topic: str, at: int) -> None:
    latest = transport.windows[topic]
    assert transport.enqueue(topic, b"1234567", None, at, None, 0, latest)


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads that change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
def test_many_threads_count_to_the_message_while_slots_come_and_go(tmp_path: Path) -> None:
    counters = CounterFile(tmp_path)
    transport = sending(counters)
    published: Counter[str] = Counter()
    size = 0
    senders, each = 4, 20_000

    def send(first: int) -> None:
        for number in range(each):
            window = first + number // 100 % 3  # the threads meet in some windows, and leave them
            put(transport, "t", window * WINDOW_MS + number)

    def publish_once() -> None:
        nonlocal size
        for increment in counters.increments():
            published.update(increment.counts)
            size += increment.bytes
            counters.published(increment)

    threads = [threading.Thread(target=send, args=(first,)) for first in range(senders)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        publish_once()
    for thread in threads:
        thread.join()
    publish_once()
    publish_once()
    total = senders * each
    assert published == {"attempted": total, "delivered": total}
    assert size == 7 * total
    assert counters.settled()
    counters.close()


def test_no_count_is_taken_after_the_end_and_a_late_report_is_left_open(tmp_path: Path) -> None:
    counters = CounterFile(tmp_path)
    slot = counters.attempt("t", 5, 1)
    counters.close()
    slot.report(None, None)
    with pytest.raises(UsageError, match="closed"):
        counters.attempt("t", 6, 1)
    (file,) = leftover_files(tmp_path)
    (increment,) = file.increments(owner_died=True)
    file.close()
    assert increment.counts == {"attempted": 1, "unresolved": 1}


def test_a_freed_window_starts_from_zero(tmp_path: Path) -> None:
    counters = CounterFile(tmp_path)
    published: Counter[str] = Counter()
    for number in range(3):
        counters.attempt("t", number, 1).report(None, None)
        for increment in counters.increments():
            published.update(increment.counts)
            counters.published(increment)
    counters.close()
    assert published == {"attempted": 3, "delivered": 3}


def test_every_way_to_count_adds_to_the_same_counts_and_a_growing_file_keeps_them(
    tmp_path: Path,
) -> None:
    counters = CounterFile(tmp_path)
    slots = []
    for number in range(300):  # more than the file first has room for
        window = number * WINDOW_MS
        slots.append(counters.attempt("t", window, 7))
        counters.count("t", window, 30, ATTEMPTED, 3)
        counters.attempt("t", window, 5)
    for number, slot in enumerate(slots):
        slot.report(None, None)
        slot.resolve(DELIVERED)
        counters.count("t", number * WINDOW_MS, 0, DELIVERED)
        slot.report(None, None)
        slot.resolve(FAILED)
    increments = list(counters.increments())
    assert len(increments) == 300
    for increment in increments:
        assert increment.counts == {"attempted": 5, "delivered": 4, "failed": 1}
        assert increment.bytes == 42
        counters.published(increment)
    assert counters.settled()
    counters.close(remove=True)


@pytest.mark.usefixtures("hasty")
def test_messages_are_counted_while_the_file_gets_another_map(tmp_path: Path) -> None:
    counters = CounterFile(tmp_path)
    transport = sending(counters)
    senders, each, grown = 3, 30_000, 5_000

    def send(topic: str) -> None:
        for number in range(each):
            put(transport, topic, number)

    threads = [threading.Thread(target=send, args=(f"t{n % 2}",)) for n in range(senders)]
    for thread in threads:
        thread.start()
    for number in range(grown):
        counters.attempt("more", number * WINDOW_MS, 0).resolve(DELIVERED)
    for thread in threads:
        thread.join()
    counts = dict.fromkeys(("t0", "t1", "more"), 0)
    for increment in counters.increments():
        assert increment.counts["attempted"] == increment.counts["delivered"]
        counts[increment.topic] += increment.counts["attempted"]
    assert counts == {"t0": 2 * each, "t1": each, "more": grown}
    counters.close()


def put_until_the_end(transport: Any, counted: list[int], who: int) -> None:
    def put_on() -> None:
        while True:
            put(transport, "t", 5)
            counted[who] += 1

    with pytest.raises(UsageError, match="closed"):
        put_on()


@pytest.mark.usefixtures("hasty")
def test_whatever_was_counted_before_the_end_is_in_the_file_and_the_rest_is_refused(
    tmp_path: Path,
) -> None:
    for turn in range(20):
        counters = CounterFile(tmp_path)
        transport = sending(counters)
        counted = [0] * 3

        threads = [
            threading.Thread(target=put_until_the_end, args=(transport, counted, who))
            for who in range(len(counted))
        ]
        for thread in threads:
            thread.start()
        while sum(counted) < 100 * turn:
            pass
        counters.close()
        for thread in threads:
            thread.join()
        (file,) = leftover_files(tmp_path)
        (increment,) = file.increments(owner_died=True)
        file.close(remove=True)
        assert increment.counts["attempted"] == sum(counted)


STOPPED = """
import os, signal
from pathlib import Path
from headworks._audit_counting.counters import CounterFile
from tests.headworks.audit_counting.test_counters import WINDOW_MS, put, sending
counters = CounterFile(Path({folder!r}))
running = sending(counters)
for number in range({count}):
    put(running, "t", number // {a_window} * WINDOW_MS + number % 7)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.e2e
@pytest.mark.parametrize(("count", "a_window"), [(1, 1), (2, 5), (1000, 1000), (1237, 3)])
def test_each_attempt_before_a_sigkill_is_in_the_file(
    tmp_path: Path, counting: Counting, count: int, a_window: int
) -> None:
    code = counting.begin + STOPPED.format(folder=str(tmp_path), count=count, a_window=a_window)
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    (file,) = leftover_files(tmp_path)
    found = {i.window_start // WINDOW_MS: i.counts for i in file.increments(owner_died=True)}
    file.close()
    assert {window: counts["attempted"] for window, counts in found.items()} == {
        n: min(a_window, count - n * a_window) for n in range(-(-count // a_window))
    }
    for counts in found.values():
        assert counts.get("delivered", 0) + counts.get("unresolved", 0) == counts["attempted"]


KILLED = """
import mmap, threading
from pathlib import Path
from headworks._audit_counting.counters import CounterFile
from tests.headworks.audit_counting.test_counters import put, sending
counters = CounterFile(Path({folder!r}))
running = sending(counters)
with open({witness!r}, "r+b") as file:
    witness = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")

def send(who):
    n = 0
    while True:
        put(running, "t", 5)
        n += 1
        witness[who] = n

for who in range(len(witness)):
    threading.Thread(target=send, args=(who,)).start()
print("begun", flush=True)
"""


@pytest.mark.e2e
def test_a_sigkill_at_any_moment_loses_no_attempt_and_invents_none(
    tmp_path: Path, counting: Counting
) -> None:
    senders, witness = 3, tmp_path / "witness"
    for turn in range(3):
        witness.write_bytes(bytes(8 * senders))
        code = counting.begin + KILLED.format(folder=str(tmp_path), witness=str(witness))
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            time.sleep(0.05 * turn)
            process.kill()
        counted = sum(memoryview(witness.read_bytes()).cast("Q"))
        (file,) = leftover_files(tmp_path)
        attempted = file.unpublished()["attempted"]
        file.close(remove=True)
        assert counted <= attempted <= counted + senders  # each was within one, at most


def test_a_slot_counts_by_itself_as_long_as_it_is_its_own(tmp_path: Path) -> None:
    counters = CounterFile(tmp_path)
    slot, other = counters.attempt("t", 5, 1), counters.attempt("u", 5, 1)
    assert slot.attempt(6, 1)
    assert not slot.attempt(WINDOW_MS, 1)

    def publish() -> None:
        for increment in counters.increments():
            counters.published(increment)

    publish()
    assert slot.attempt(7, 1), "messages are open in it"
    for number in range(300):
        counters.attempt("more", number * WINDOW_MS, 1).resolve(DELIVERED)
    assert slot.attempt(8, 1), "the file has grown"
    for _ in range(4):
        slot.report(None, None)
    publish()
    assert not slot.attempt(9, 1), "all is published, and it is free"
    assert counters.attempt("v", 5, 1).attempt(6, 1)
    assert other.attempt(6, 1)
    assert counters.open_messages() == 4
    counters.close()
    assert not other.attempt(7, 1)


def test_a_message_in_another_window_or_time_is_counted_where_it_belongs(tmp_path: Path) -> None:
    counters = CounterFile(tmp_path)
    transport = sending(counters)
    times = [0, WINDOW_MS - 1, WINDOW_MS, -1, 0, -WINDOW_MS, 2**62, 1, 2 * WINDOW_MS - 1, True]
    times += [2**63 - 1] * 2
    for at in times:
        put(transport, "t", at)
    found = {i.window_start: i.counts["attempted"] for i in counters.increments()}
    assert found == Counter(window_of(at) for at in times)
    counters.close()


@pytest.mark.parametrize("at", [2**63, 2**70, -(2**63) - 1])
def test_a_time_that_no_file_can_hold_is_counted_all_the_same(tmp_path: Path, at: int) -> None:
    counters = CounterFile(tmp_path)
    for _ in range(3):
        put(sending(counters), "t", at)
    assert counters.unpublished()["attempted"] == counters.unpublished()["delivered"] == 3
    counters.close()


@pytest.mark.parametrize("at", [None, "5", b"", [], 1j])
def test_what_is_no_time_is_refused_by_python(tmp_path: Path, at: Any) -> None:
    counters = CounterFile(tmp_path)
    transport = sending(counters)
    for _ in range(2):
        with pytest.raises(TypeError):
            put(transport, "t", at)
        put(transport, "t", 5)
    assert counters.unpublished()["attempted"] == 2
    counters.close()


def test_a_folder_that_comes_and_goes_has_no_leftovers(tmp_path: Path) -> None:
    folder, done = tmp_path / "state", threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            folder.mkdir()
            folder.rmdir()

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(5000):
            assert list(leftover_files(folder)) == []
    finally:
        done.set()
        other.join()
