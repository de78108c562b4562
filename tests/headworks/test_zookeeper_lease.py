"""A lease expires before ZooKeeper can end the session: the protocol as a model, and the clock."""

from __future__ import annotations

import threading
import time
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headworks._zookeeper.lease import Lease, LeaseThread
from tests.waiting import PATIENCE

pytestmark = pytest.mark.unit

TIMEOUT = 24  # units of time, so that a report is due every 6 and two thirds are 16


class Clock:
    """The time, as a test sets it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_lease_is_valid_for_two_thirds_of_the_timeout_after_a_write() -> None:
    clock = Clock()
    lease = Lease(clock)
    assert not lease.valid
    lease.extend(100.0, 6.0)
    assert lease.valid
    clock.now = 103.99
    assert lease.valid
    clock.now = 104.0
    assert not lease.valid


def test_an_older_write_neither_extends_nor_shortens_it() -> None:
    clock = Clock()
    lease = Lease(clock)
    lease.extend(100.0, 6.0)
    lease.extend(99.0, 6.0)
    assert lease.until == 104.0
    lease.extend(100.0, 3.0)
    assert lease.until == 104.0, "what was proven stays proven"


def test_steady_writes_keep_it_valid_for_two_thirds_after_the_last() -> None:
    lease = Lease(Clock())
    for number in range(50):
        lease.extend(float(number), 6.0)  # six in a timeout
    assert lease.until == 49 + 4


def test_after_a_silence_one_write_does_not_count_in_full() -> None:
    """The server that took it may die before it reports to the leader."""
    lease = Lease(Clock())
    lease.extend(100.0, 6.0)
    lease.extend(105.5, 6.0)
    assert lease.until == 106.0
    lease.extend(107.0, 6.0)
    assert lease.until == 111.0, "two thirds after it, less than the timeout after the one before"


def test_an_ended_lease_begins_again_with_the_next_session() -> None:
    clock = Clock()
    lease = Lease(clock)
    lease.extend(95.0, 6.0)
    lease.end()
    assert not lease.valid
    lease.extend(100.0, 6.0)
    assert lease.until == 104.0


@given(
    reports=st.lists(st.integers(1, TIMEOUT // 4), min_size=200, max_size=200),
    writes=st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=20),
)
@example(reports=[6] * 200, writes=[(22, True)])  # a stopped process, and a follower that dies
def test_the_leader_never_ends_a_session_under_a_valid_lease(
    reports: list[int], writes: list[tuple[int, bool]]
) -> None:
    """A model of the protocol: the follower reports in intervals, and may die after any write.

    `writes` are the times between writes, and whether the answer of each reaches the process.
    """
    lease = Lease(lambda: 0.0)
    report_times = list(accumulate(reports))
    sent_times = [0, *accumulate(gap for gap, _ in writes)]
    for index, sent in enumerate(sent_times):
        heard = (
            0  # when the leader last heard of the session, if the follower dies after this write
        )
        before = 0
        for at in report_times:
            if at > sent:
                break
            if any(before <= earlier < at for earlier in sent_times[: index + 1]):
                heard = at
            before = at
        session_end = heard + TIMEOUT
        if sent >= session_end:
            return  # the leader refuses the write
        if index == 0 or writes[index - 1][1]:
            lease.extend(sent, TIMEOUT)
        assert lease.until <= session_end


class Node:
    """An ephemeral node that a lease thread writes; `answers` are what the writes meet."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.answers = list(answers)
        self.written = threading.Semaphore(0)
        self.ended = threading.Event()

    def write(self) -> bool:
        answer = self.answers.pop(0) if self.answers else True
        self.written.release()
        if isinstance(answer, Exception):
            raise answer
        return answer


def kept(node: Node, *, timeout: float = 0.2) -> LeaseThread:
    return LeaseThread(node.write, lambda: timeout, node.ended.set, joined=time.monotonic())


@pytest.mark.seconds
def test_a_thread_keeps_the_lease_with_four_writes_in_a_timeout() -> None:
    for timeout in (2.0, 10.0, 50.0):  # if the machine stands still, longer than a lease lasts
        node = Node()
        lease = kept(node, timeout=timeout)
        try:
            was_valid = [lease.valid]
            for _ in range(6):
                assert node.written.acquire(timeout=PATIENCE)
                was_valid.append(lease.valid)
        finally:
            lease.end()
        assert lease.ended
        assert not lease.valid
        if all(was_valid):
            return
    raise AssertionError(f"the lease was valid: {was_valid}")


def test_a_thread_lets_the_lease_run_out_while_no_write_is_acknowledged() -> None:
    node = Node(*[OSError("no answer")] * 10_000)
    lease = kept(node)
    for _ in range(8):
        assert node.written.acquire(timeout=PATIENCE)
    assert not lease.valid
    assert not lease.ended, "the session may be open still"
    assert not node.ended.is_set()
    lease.end()


def test_a_thread_ends_the_lease_when_the_node_is_gone() -> None:
    node = Node(True, False)
    lease = kept(node)
    assert node.ended.wait(PATIENCE)
    assert lease.ended
    assert not lease.valid


@pytest.mark.parametrize("per_timeout", [1, 2, 3, 4, 6, 10])
def test_the_lease_outlasts_the_time_to_the_next_write(per_timeout: int) -> None:
    """With three or more writes in a timeout, a lease never lapses while all are answered."""
    clock, interval = Clock(), 6.0 / per_timeout
    lease = Lease(clock)
    lapses = 0
    for _ in range(30):
        lease.extend(clock.now, 6.0)
        clock.now += interval
        lapses += not lease.valid
    assert (lapses == 0) == (per_timeout >= 3)
