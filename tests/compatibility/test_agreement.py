"""The two laws, against Avro Java itself (the same over more pairs: `agreement.py`)."""

from __future__ import annotations

import random

from headworks.compatibility import Policy, check_pair
from tests.compatibility.agreement import check_verdicts, pairs, read
from tests.compatibility.generate import random_pair
from tests.compatibility.oracle import Oracle, compact

PAIRS = 4000


def test_policy_avro_gives_javas_verdict(oracle: Oracle) -> None:
    assert check_verdicts(oracle, pairs(PAIRS, seed=20)) == []


def test_what_strict_passes_decodes_for_every_random_datum(oracle: Oracle) -> None:
    rng = random.Random(21)
    cases = []
    for _ in range(PAIRS):
        reader, writer = (compact(one) for one in random_pair(rng))
        left, right = read(reader), read(writer)
        if isinstance(left, str) or isinstance(right, str):
            continue
        if not check_pair(left, right, Policy.STRICT):
            cases.append((reader, writer))
    answers = oracle.ask_all(("decode", *case, "10", "1") for case in cases)
    failed = [
        (case, answer)
        for case, answer in zip(cases, answers, strict=True)
        if answer[:2] != ["ok", "0"] and not _has_no_value(answer)
    ]
    assert len(cases) > 500
    assert failed == []


def _has_no_value(answer: list[str]) -> bool:
    """Types without any finite value: random data cannot be made for them."""
    return answer[0] == "error" and (
        "StackOverflowError" in answer[1] or "bound must be positive" in answer[1]
    )


def test_strict_and_warehouse_only_add(oracle: Oracle) -> None:
    rng = random.Random(22)
    for _ in range(500):
        left, right = (read(compact(one)) for one in random_pair(rng))
        if isinstance(left, str) or isinstance(right, str):
            continue
        lax, strict, table = (check_pair(left, right, policy) for policy in Policy)
        assert [one for one in strict if one.rule < "HW100"] == lax
        assert table[: len(strict)] == strict
