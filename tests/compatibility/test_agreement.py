"""The two laws, against Avro Java itself (the same over more pairs: `agreement.py`)."""

from __future__ import annotations

import random

from headworks.compatibility import Policy, check_pair
from tests.compatibility.agreement import check_decoding, check_verdicts, pairs, read
from tests.compatibility.generate import random_pair
from tests.compatibility.oracle import Oracle, compact

PAIRS = 4000


def test_policy_avro_gives_javas_verdict(oracle: Oracle) -> None:
    assert check_verdicts(oracle, pairs(PAIRS, seed=20)) == []


def test_what_strict_passes_decodes_to_the_same_value_everywhere(oracle: Oracle) -> None:
    done = check_decoding(oracle, pairs(PAIRS, seed=21))
    assert done.broken == []
    assert done.pairs > 500
    assert done.compared > 0.9 * done.data > 5000


def test_strict_and_warehouse_only_add(oracle: Oracle) -> None:
    rng = random.Random(22)
    for _ in range(500):
        left, right = (read(compact(one)) for one in random_pair(rng))
        if isinstance(left, str) or isinstance(right, str):
            continue
        lax, strict, table = (check_pair(left, right, policy) for policy in Policy)
        assert [one for one in strict if one.rule < "HW100"] == lax
        assert table[: len(strict)] == strict
