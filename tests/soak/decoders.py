"""The compiled decoders beside the generated Python, on damaged data of drawn pairs of schemas.

Columns and events must be the same, and so must the numbers and reasons of the bad data, and the
verdicts of `datum_check`. `python -m tests.soak sanitized` runs it with a decoder that was compiled
with `-fsanitize=address,undefined`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import sys
import time
import traceback
from array import array
from itertools import chain
from pathlib import Path
from typing import Any

from consumer_sdk._generated_decoder import DATUM_ERRORS, Decode
from hadoop_loader._decode.decoder import ColumnDecoder
from hadoop_loader._fetch.messages import FetchedMessage, MessageColumns
from headworks._decoding.datum_check import DatumCheck
from headworks._native import COMPILED
from headworks.schema import parse
from tests.consumer_sdk.test_decoding import decoder, written
from tests.evolution import evolution, value_of
from tests.headworks.decoding.damaged_data import damaged
from tests.soak.siege import Report

_MOST = 20  # what is wrong is wrong often
_DATA = 40  # of each pair
_ALL = 1_000_000  # items of an array that are printed


def decode_damage(folder: Path, seconds: float, seed: int) -> Report:
    """Compare for so long, beginning at `seed`."""
    assert COMPILED, "run `python hatch_build.py`"
    report, began = Report(), time.monotonic()
    for number in itertools.count(seed):
        if time.monotonic() - began >= seconds or len(report.wrong) >= _MOST:
            break
        start, chance = time.monotonic(), random.Random(number)
        try:
            writer, reader = evolution(chance)
            good = [written(writer, value_of(writer, chance)) for _ in range(6)]
            data = [damaged(chance, chance.choice(good)) for _ in range(_DATA)]
            report.counts["bad data"] += compare_columns(writer, reader, data)
            for schema in (writer, reader):
                report.counts["verdicts"] += compare_verdicts(schema, data)
            _compare_events(folder / str(number), writer, reader, data)
        except Exception:
            report.wrong.append(f"seed {number}: {traceback.format_exc()}")
        report.counts["data"] += _DATA
        report.slowest = max(report.slowest, time.monotonic() - start)
        for name in [name for name in sys.modules if name.startswith("generated_")]:
            del sys.modules[name]
    report.seconds = time.monotonic() - began
    return report


def compare_columns(writer: Any, reader: Any, data: list[bytes]) -> int:
    """Compare the columns of data, and the reasons of the bad ones; return the number of those."""
    schemas = parse(json.dumps(writer)), parse(json.dumps(reader))
    messages = MessageColumns.of(FetchedMessage(0, 0, 0, None, datum) for datum in data)
    spans = messages.data, messages.starts, messages.ends
    (expected, errors), (found, others) = (
        ColumnDecoder(*schemas, start=0, compiled=compiled).decode_spans(*spans)
        for compiled in (False, True)
    )
    assert others == errors
    for one, other in zip(expected, found, strict=True):
        other.validate(full=True)
        assert one.equals(other) or _text(one) == _text(other), (one, other)
    return len(errors)


def compare_verdicts(schema: Any, data: list[bytes]) -> int:
    """Compare the verdicts on data of one schema: the loader's, and both forms of the check."""
    model = parse(json.dumps(schema))
    messages = MessageColumns.of(FetchedMessage(0, 0, 0, None, datum) for datum in data)
    places = messages.starts, messages.ends
    _, errors = ColumnDecoder(model, model, start=0).decode_spans(messages.data, *places)
    pairs = zip(*(each.to_pylist() for each in places), strict=True)
    spans = array("q", chain.from_iterable(pairs)).tobytes()
    given = bytes(messages.data), bytes(8 * len(data)), spans
    by_reason, *others = (
        DatumCheck(model, compiled=compiled).find_bad(*given, 0, len(data))
        for compiled in dict.fromkeys((False, COMPILED))
    )
    assert [number for number, _ in by_reason] == [number for number, _ in errors]
    assert all(other == by_reason for other in others)
    return len(data)


def _text(array: Any) -> str:
    """A text of all values: NaN equals itself there, and a day may be one that Python lacks."""
    return str(array.to_string(window=_ALL, container_window=_ALL))


def _compare_events(folder: Path, writer: Any, reader: Any, data: list[bytes]) -> None:
    folder.mkdir(parents=True)
    compare_events(decoder(folder, writer, reader), data)


def compare_events(decode: Decode, data: list[bytes]) -> None:
    """Decode data with both forms (`tests.consumer_sdk.test_decoding.Both`), which must agree."""
    for datum in data:
        with contextlib.suppress(*DATUM_ERRORS, ArithmeticError):
            decode(datum, 0)
