"""Avro Java, fastavro, the generated Python, and the compiled decoders on drawn pairs of schemas.

Avro Java draws data of a generated writer's schema and resolves them into a later schema. The
loader's columns, the consumer's events, and fastavro must give the same values, compiled and in
Python. Then each datum is damaged: both forms of each decoder, and of the broker's check, must give
the same verdict, with the same reason and the same place.
"""

from __future__ import annotations

import base64
import random
import shutil
import sys
import time
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headworks.schema import parse
from tests.consumer_sdk.test_decoding import as_table_value, decoder
from tests.evolution import as_column
from tests.hadoop_loader.agreement import plain_evolution, rows_of
from tests.headworks.compatibility import oracle as avro_java
from tests.headworks.compatibility.fastavro_form import decoded, fastavro_form, same
from tests.headworks.compatibility.oracle import compact
from tests.headworks.decoding.damaged_data import damaged
from tests.soak.decoders import compare_columns, compare_events, compare_verdicts
from tests.soak.siege import Report

_MOST = 20  # what is wrong is wrong often
_DATA = 40  # of each pair
_ASKED = 50  # pairs in a question
_OF_A_PROCESS = 1000  # pairs: Avro Java remembers every one that it has resolved

Json = Any


def read_alike(folder: Path, pairs: int, seed: int) -> Report:
    """Compare so many pairs of schemas, with 40 data each."""
    report, began, chance = Report(), time.monotonic(), random.Random(seed)
    while report.counts["pairs"] < pairs and len(report.wrong) < _MOST:
        with contextmanager(avro_java.start)(folder) as oracle:
            end = min(pairs, report.counts["pairs"] + _OF_A_PROCESS)
            while report.counts["pairs"] < end and len(report.wrong) < _MOST:
                count = min(_ASKED, end - report.counts["pairs"])
                cases = [plain_evolution(chance) for _ in range(count)]
                answers = oracle.ask_all(
                    ("decode", compact(new), compact(old), str(_DATA), str(chance.getrandbits(30)))
                    for old, new in cases
                )
                for (old, new), answer in zip(cases, answers, strict=True):
                    _compare_pair(folder, old, new, answer, chance, report)
        report.seconds = time.monotonic() - began
        print(f"{report.counts['pairs']} pairs in {report.seconds:.0f} s", flush=True)
    return report


def _compare_pair(
    folder: Path, old: Json, new: Json, answer: list[str], chance: random.Random, report: Report
) -> None:
    start = time.monotonic()
    try:
        assert answer[:2] == ["ok", "0"], f"Java: {answer}"
        both = [entry.split(":") for entry in answer[3].split()]
        written = [base64.b64decode(entry[0]) for entry in both]
        resolved = [base64.b64decode(entry[1]) for entry in both]
        here = folder / f"pair-{report.counts['pairs']}"
        decode = decoder(here, old, new)
        _compare_values(old, new, written, resolved, decode)
        bad = [damaged(chance, datum) for datum in written]
        report.counts["bad data"] += compare_columns(old, new, bad)
        report.counts["verdicts"] += compare_verdicts(old, bad)
        compare_events(decode, bad)
        report.counts["data"] += len(both) + len(bad)
        shutil.rmtree(here)
    except Exception:
        report.wrong.append(f"{compact(old)} -> {compact(new)}: {traceback.format_exc()}")
    report.counts["pairs"] += 1
    report.slowest = max(report.slowest, time.monotonic() - start)
    for name in [name for name in sys.modules if name.startswith("generated_")]:
        del sys.modules[name]


def _compare_values(
    old: Json, new: Json, written: list[bytes], resolved: list[bytes], decode: Any
) -> None:
    expected = rows_of(new, new, resolved, compiled=False)
    for compiled in (False, True):
        assert rows_of(old, new, written, compiled=compiled) == expected, compiled
    forms = fastavro_form(parse(compact(old))), fastavro_form(parse(compact(new)))
    for datum, result in zip(written, resolved, strict=True):
        value, of_java = decoded(datum, *forms), decoded(result, forms[1])
        assert same(value, of_java, narrow=True), (value, of_java)
        assert as_table_value(decode(datum, 0)) == as_column(new, value["top"])
