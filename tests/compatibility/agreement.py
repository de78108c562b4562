"""Comparing our answers with Avro Java's over many generated pairs; also run by itself:

python -m tests.compatibility.agreement [PAIRS] [SEED]
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headworks.compatibility import Policy, check_pair
from headworks.errors import SchemaError
from headworks.schema import Schema, parse
from headworks.schema.canonical import canonical_text, parsing_form
from tests.compatibility.generate import random_pair
from tests.compatibility.oracle import Oracle, compact, start


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
    for command, form in (("canonical", canonical_text), ("parsing-form", parsing_form)):
        answers = oracle.ask_all((command, text) for text in texts)
        for text, answer in zip(texts, answers, strict=True):
            schema = read(text)
            if isinstance(schema, str):
                if answer[0] == "ok" and schema != "undefined-type":
                    found.append(Disagreement(text, "", schema, answer[1]))
            elif answer != ["ok", form(schema)]:
                found.append(Disagreement(text, "", form(schema), "\t".join(answer)))
    return found


def main(count: int, seed: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        for oracle in start(Path(folder)):
            cases = pairs(count, seed)
            found = check_verdicts(oracle, cases)
            found += check_texts(oracle, [text for case in cases for text in case])
            for one in found[:10]:
                print(one, end="\n\n")
            print(f"{count} pairs, seed {seed}: {len(found)} disagreements")
            return 1 if found else 0
    return 1


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    sys.exit(main(*(arguments + [20_000, 1][len(arguments) :])))
