"""The two laws, against Avro Java itself (the same over more pairs: `agreement.py`)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from headworks.compatibility import Finding, Policy, check_pair
from headworks.schema import parse
from tests.headworks.compatibility.agreement import (
    check_decoding,
    check_verdicts,
    different,
    pairs,
    read,
)
from tests.headworks.compatibility.generate import random_pair
from tests.headworks.compatibility.oracle import Oracle, compact

pytestmark = pytest.mark.contract

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
        # A fix for a table never asks for an alias: everything else of a finding is the same.
        assert _without_fixes(table[: len(strict)]) == _without_fixes(strict)


def _without_fixes(found: list[Finding]) -> list[Finding]:
    return [replace(one, fix="") for one in found]


def own(kind: str, name: str, **more: object) -> dict[str, object]:
    return {
        "type": kind,
        "name": name.rpartition(".")[2],
        "namespace": name.rpartition(".")[0],
        **more,
    }


def holding(name: str, *fields: object) -> dict[str, object]:
    """A record whose fields are named a, b, .. by their place."""
    return own(
        "record",
        name,
        fields=[{"name": chr(ord("a") + at), "type": one} for at, one in enumerate(fields)],
    )


# Found by `agreement.py` in generated pairs: Java's verdict is "compatible", and data do not
# survive. The union holds the record that it stands in.
NAMESAKE = own("enum", "n.A", symbols=["X", "Z"])
COUNTER_EXAMPLES = [
    pytest.param(
        holding("m.A", ["long", NAMESAKE, "m.A"], "float"),
        holding("m.A", ["long", NAMESAKE, "m.A"], "long"),
        "HW102",
        id="a union of the record around it and an enum of that simple name",
    ),
    pytest.param(
        holding("m.A", ["m.A", NAMESAKE]),
        holding("m.A", ["m.A", own("enum", "n.A", symbols=["X"])]),
        "HW102",
        id="the same, with a symbol more",
    ),
    pytest.param(
        holding("m.D", [own("fixed", "n.C", size=4), "m.D"], ["null", "int"]),
        holding("m.D", [own("fixed", "m.C", size=4), "m.D"], "int"),
        "HW109",
        id="a fixed that moved, in a union with the record around it",
    ),
]


@pytest.mark.parametrize(("reader", "writer", "rule"), COUNTER_EXAMPLES)
def test_counter_examples_are_refused_by_strict(
    oracle: Oracle, reader: dict[str, object], writer: dict[str, object], rule: str
) -> None:
    case = compact(reader), compact(writer)
    left, right = (parse(text) for text in case)
    assert check_pair(left, right, Policy.AVRO) == []
    assert {one.rule for one in check_pair(left, right, Policy.STRICT)} == {rule}
    assert check_verdicts(oracle, [case]) == []
    (answer,) = oracle.ask_all([("decode", *case, "50", "1")])
    broken = answer[:2] != ["ok", "0"] or different(case, left, right, answer[3].split())
    assert broken, "the rule refuses what works"
