"""Comparing our answers with Avro Java's over many generated pairs; also run by itself:

python -m tests.headworks.compatibility.agreement [PAIRS] [SEED]

Two laws: under policy `avro` the verdict is Java's (`check_verdicts`; `check_texts` for the printed
forms); if policy `strict` or `warehouse` passes a pair, every random datum of the writer is decoded
by the reader, by Java and by fastavro to the same value (`check_decoding`).
"""

from __future__ import annotations

import base64
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headworks.compatibility import Policy, check_pair
from headworks.errors import SchemaError
from headworks.schema import Schema, parse
from headworks.schema._canonical import canonical_text
from tests.headworks.compatibility.fastavro_form import (
    decoded,
    fastavro_form,
    promotes_before_exact,
    same,
)
from tests.headworks.compatibility.generate import random_pair
from tests.headworks.compatibility.oracle import Oracle, compact, start


@dataclass(frozen=True)
class Disagreement:
    reader: str
    writer: str
    ours: str
    java: str


def read(text: str) -> Schema | str:
    """The schema, or why it is none."""
    try:
        return parse(text)
    except SchemaError as error:
        return error.rule


def pairs(count: int, seed: int) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    return [(compact(a), compact(b)) for a, b in (random_pair(rng) for _ in range(count))]


def check_verdicts(oracle: Oracle, cases: Sequence[tuple[str, str]]) -> list[Disagreement]:
    """Pairs on which our verdict under policy `avro` is not Java's."""
    found: list[Disagreement] = []
    answers = oracle.ask_all(("compatible", *case) for case in cases)
    for (reader, writer), answer in zip(cases, answers, strict=True):
        schemas = read(reader), read(writer)
        refused = [one for one in schemas if isinstance(one, str)]
        if refused:
            ours = f"refused {refused[0]}"
            # A type named before its definition: Java alone allows it.
            same = answer[0] == "error" or "undefined-type" in refused
        else:
            left, right = schemas
            assert not isinstance(left, str)
            assert not isinstance(right, str)
            findings = check_pair(left, right, Policy.AVRO)
            ours = "INCOMPATIBLE" if findings else "COMPATIBLE"
            java = answer[1]
            if answer[0] == "error":
                same = "matches multiple fields" in java and ours == "INCOMPATIBLE"
            else:
                same = java == ours
        if not same:
            found.append(Disagreement(reader, writer, ours, "\t".join(answer)))
    return found


def check_texts(oracle: Oracle, texts: Sequence[str]) -> list[Disagreement]:
    """Schemas that we print differently from Java."""
    found: list[Disagreement] = []
    answers = oracle.ask_all(("canonical", text) for text in texts)
    for text, answer in zip(texts, answers, strict=True):
        schema = read(text)
        if isinstance(schema, str):
            if answer[0] == "ok" and schema != "undefined-type":
                found.append(Disagreement(text, "", schema, answer[1]))
        elif answer != ["ok", canonical_text(schema)]:
            found.append(Disagreement(text, "", canonical_text(schema), "\t".join(answer)))
    return found


@dataclass
class Decoded:
    """How much the second law was put to the test, and what broke it."""

    pairs: int = 0
    data: int = 0
    compared: int = 0
    broken: list[Disagreement] = field(default_factory=list)


def check_decoding(
    oracle: Oracle,
    cases: Sequence[tuple[str, str]],
    data: int = 10,
    policy: Policy = Policy.STRICT,
) -> Decoded:
    """Pairs that a policy passes although some datum does not survive."""
    done = Decoded()
    asked = [
        (case, left, right)
        for case in cases
        if not isinstance(left := read(case[0]), str)
        and not isinstance(right := read(case[1]), str)
        and not check_pair(left, right, policy)
    ]
    answers = oracle.ask_all(("decode", *case, str(data), "1") for case, _, _ in asked)
    for (case, reader, writer), answer in zip(asked, answers, strict=True):
        if _has_no_value(answer):
            continue
        done.pairs += 1
        if answer[:2] != ["ok", "0"]:
            done.broken.append(Disagreement(*case, "compatible", "\t".join(answer[:3])))
        else:
            done.data += data
            if not promotes_before_exact(reader):
                done.compared += data
                done.broken += different(case, reader, writer, answer[3].split())
    return done


def different(
    case: tuple[str, str], reader: Schema, writer: Schema, data: Sequence[str]
) -> list[Disagreement]:
    """The first datum that fastavro and Java decode differently, if any."""
    forms = fastavro_form(reader), fastavro_form(writer)
    for datum in data:
        written, read_ = (base64.b64decode(part) for part in datum.split(":"))
        want = decoded(read_, forms[0])
        try:
            got = decoded(written, forms[1], forms[0])
        except Exception as error:  # whatever it is, the datum did not survive
            return [Disagreement(*case, repr(error), repr(want))]
        if not same(got, want, narrow='"float"' in case[0]):
            return [Disagreement(*case, repr(got), repr(want))]
    return []


def _has_no_value(answer: list[str]) -> bool:
    """Types without any finite value: random data cannot be made for them."""
    return answer[0] == "error" and (
        "StackOverflowError" in answer[1] or "bound must be positive" in answer[1]
    )


def main(count: int, seed: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        for oracle in start(Path(folder)):
            cases = pairs(count, seed)
            found = check_verdicts(oracle, cases)
            found += check_texts(oracle, [text for case in cases for text in case])
            print(f"{count} pairs, seed {seed}: {len(found)} verdicts or texts differ from Java's")
            for policy in (Policy.STRICT, Policy.WAREHOUSE):
                done = check_decoding(oracle, cases, policy=policy)
                print(
                    f"{done.pairs} pairs pass {policy}, {done.data} data decoded by Java, "
                    f"{done.compared} compared with fastavro, {len(done.broken)} pairs broken"
                )
                found += done.broken
            for one in found[:10]:
                print(one, end="\n\n")
            return 1 if found else 0
    return 1


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    sys.exit(main(*(arguments + [20_000, 1][len(arguments) :])))
