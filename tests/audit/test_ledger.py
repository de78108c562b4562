"""The ledger against a brute-force count: redelivery and order never matter."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headworks._audit.balance import Balance, total
from headworks._audit.increments import Increment
from headworks._audit.ledger import Ledger

pytestmark = pytest.mark.unit

WINDOW = 600_000


def increment(number: int, topic: str, tier: str, window: int, counts: dict[str, int]) -> Increment:
    return Increment(
        f"id-{number}", topic, tier, window * WINDOW, counts, 0, "host", "test", number
    )


def sent(count: int) -> dict[str, int]:
    return {"attempted": count, "delivered": count}


reports = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from(["producer", "hadoop"]),
        st.integers(0, 3),
        st.integers(0, 5),
    ),
    max_size=40,
)


@given(reports, st.randoms(use_true_random=False))
def test_any_order_and_any_redelivery_give_the_brute_force_answer(
    given_reports: list[tuple[str, str, int, int]], chance: random.Random
) -> None:
    increments = [
        increment(i, topic, tier, window, sent(n) if tier == "producer" else {"loaded": n})
        for i, (topic, tier, window, n) in enumerate(given_reports)
    ]
    sent_again = increments + [i for i in increments if chance.random() < 0.5]
    chance.shuffle(sent_again)
    ledger = Ledger()
    for item in sent_again:
        ledger.add(item)

    missing = surplus = 0
    for topic in {t for t, tier, _, _ in given_reports if tier == "producer"}:
        for window in range(4):
            rows = [r for r in given_reports if r[0] == topic and r[2] == window]
            there = sum(n for _, tier, _, n in rows if tier == "producer")
            seen = sum(n for _, tier, _, n in rows if tier == "hadoop")
            missing += max(0, there - seen)
            surplus += max(0, seen - there)
    whole = total(ledger.balances("hadoop"))
    assert (whole.missing, whole.surplus) == (missing, surplus)


def only(ledger: Ledger) -> Balance:
    (row,) = ledger.balances("hadoop")
    return row


def test_quarantine_is_accounted_for_and_shown() -> None:
    ledger = Ledger()
    ledger.add(increment(1, "t", "producer", 0, {"attempted": 5, "delivered": 4, "failed": 1}))
    ledger.add(increment(2, "t", "hadoop", 0, {"loaded": 3, "quarantined": 1}))
    row = only(ledger)
    assert not row.missing
    assert (row.delivered, row.accounted, row.quarantined, row.failed) == (4, 4, 1, 1)


def test_loss_and_duplication_in_two_windows_do_not_cancel_out() -> None:
    ledger = Ledger()
    for window, loaded in ((0, 9), (1, 11)):
        ledger.add(increment(window, "t", "producer", window, sent(10)))
        ledger.add(increment(10 + window, "t", "hadoop", window, {"loaded": loaded}))
    whole = total(ledger.balances("hadoop"), "t")
    assert (whole.delivered, whole.accounted, whole.missing, whole.surplus) == (20, 20, 1, 1)
    assert whole.completeness == 0.95


def test_dropped_messages_are_a_loss_and_not_on_the_way() -> None:
    ledger = Ledger()
    counts = {"attempted": 3, "delivered": 1, "dropped:queue_full": 2}
    ledger.add(increment(1, "t", "producer", 0, counts))
    ledger.add(increment(2, "t", "hadoop", 0, {"loaded": 1}))
    row = only(ledger)
    assert (row.missing, row.dropped, row.losses, row.complete) == (0, 2, 2, False)
    assert row.completeness == 1 / 3


def test_a_topic_whose_producers_do_not_count_has_no_reference() -> None:
    ledger = Ledger()
    ledger.add(increment(1, "foreign", "hadoop", 0, {"loaded": 7}))
    row = only(ledger)
    assert not row.referenced
    assert row.complete


def test_what_a_killed_producer_took_with_it_is_unresolved() -> None:
    ledger = Ledger()
    counts = {"attempted": 10, "delivered": 6, "unresolved": 4}
    ledger.add(increment(1, "t", "producer", 0, counts))
    ledger.add(increment(2, "t", "hadoop", 0, {"loaded": 8}))
    assert (only(ledger).missing, only(ledger).unresolved) == (2, 2)
    ledger.add(increment(3, "t", "hadoop", 0, {"loaded": 3}))
    assert (only(ledger).missing, only(ledger).surplus) == (0, 1)
