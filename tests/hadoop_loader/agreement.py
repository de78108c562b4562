"""Projection beside Avro Java: what Java resolves a datum to, our columns must show.

Java draws random data of a generated writer's schema, resolves them into a later schema and writes
what it got with that one. Reading Java's result plainly and projecting the datum itself have to
give the same rows, by both of our back ends.
"""

from __future__ import annotations

import base64
import json
import random
import time
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hadoop_loader._decode.decoder import ColumnDecoder
from hadoop_loader._fetch.messages import FetchedMessage, MessageColumns
from headworks.schema import parse
from tests.evolution import evolution
from tests.headworks.compatibility.oracle import Oracle, compact

Json = Any


@dataclass(frozen=True)
class Report:
    """What was compared; `wrong` must be empty."""

    pairs: int
    data: int
    seconds: float
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        found = "".join(f"\nWRONG: {one}" for one in self.wrong)
        return f"{self.pairs} pairs, {self.data} data in {self.seconds:.0f} s{found}"


def agree(
    oracle: Oracle, seed: int, *, pairs: int = 1 << 60, seconds: float = 1e9, data: int = 8
) -> Report:
    """Compare so many pairs of schemas, or for so long, with `data` data each."""
    rng = random.Random(seed)
    began = time.monotonic()
    asked = seen = 0
    wrong: list[str] = []
    while asked < pairs and time.monotonic() - began < seconds and not wrong:
        cases = [plain_evolution(rng) for _ in range(min(50, pairs - asked))]
        answers = oracle.ask_all(
            ("decode", compact(new), compact(old), str(data), str(rng.randrange(1 << 30)))
            for old, new in cases
        )
        for (old, new), (status, *answer) in zip(cases, answers, strict=True):
            if status != "ok" or answer[0] != "0":
                wrong.append(f"Java: {answer}: {compact(old)} -> {compact(new)}")
                continue
            both = [entry.split(":") for entry in answer[2].split()]
            written = [base64.b64decode(entry[0]) for entry in both]
            resolved = [base64.b64decode(entry[1]) for entry in both]
            seen += len(both)
            expected = rows_of(new, new, resolved, compiled=False)
            wrong += [
                f"{compact(old)} -> {compact(new)}: {found} instead of {expected}"
                for compiled in (False, True)
                if (found := rows_of(old, new, written, compiled=compiled)) != expected
            ]
        asked += len(cases)
    return Report(asked, seen, time.monotonic() - began, tuple(wrong))


def plain_evolution(rng: random.Random) -> tuple[Json, Json]:
    """Without logical types: Java's random numbers are no dates, and its bytes no decimals."""
    old, new = evolution(rng)
    return _plain(old), _plain(new)


def _plain(schema: Json) -> Json:
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if isinstance(schema, dict) and "logicalType" in schema:
        return schema["type"]
    if isinstance(schema, dict):
        return {k: v if k == "default" else _plain(v) for k, v in schema.items()}
    return schema


def rows_of(old: Json, new: Json, data: list[bytes], *, compiled: bool) -> str:
    decoder = ColumnDecoder(
        parse(json.dumps(old)), parse(json.dumps(new)), start=0, compiled=compiled
    )
    messages = MessageColumns.of(FetchedMessage(0, 0, 0, None, each) for each in data)
    spans = messages.starts, messages.ends
    arrays, errors = decoder.decode_spans(messages.data, *spans)
    table = pa.Table.from_arrays(arrays, names=[column.name for column in decoder.columns])
    return repr((_sorted(table.to_pylist()), errors))


def _sorted(value: Any) -> Any:
    """Maps by their keys: Java keeps no order."""
    if isinstance(value, dict):
        return {k: _sorted(v) for k, v in value.items()}
    if isinstance(value, list):
        items = [_sorted(item) for item in value]
        return sorted(items, key=lambda item: item[0]) if items and _is_entry(items[0]) else items
    return tuple(_sorted(item) for item in value) if isinstance(value, tuple) else value


def _is_entry(item: Any) -> bool:
    return isinstance(item, tuple)
