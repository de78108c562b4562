"""The repository of the benchmark: a catalog of any size, with the history of every file."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TEAMS = 50
_SHARED = 40
_TYPES: tuple[Any, ...] = (
    "long",
    "string",
    "double",
    ["null", "string"],
    {"type": "array", "items": "string"},
    {"type": "long", "logicalType": "timestamp-millis"},
)


@dataclass(frozen=True, slots=True)
class Size:
    """How many schemas the catalog has, and how many versions of each."""

    schemas: int
    versions: int

    def __str__(self) -> str:
        return f"{self.schemas:,} schemas of {self.versions} versions"


def create(folder: Path, size: Size) -> None:
    """Create the repository; HEAD is on a branch that has changed nothing."""
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    stream = b"".join(_stream(size))
    subprocess.run(["git", "-C", str(folder), "fast-import", "--quiet"], input=stream, check=True)
    subprocess.run(["git", "-C", str(folder), "reset", "-q", "--hard", "main"], check=True)
    subprocess.run(["git", "-C", str(folder), "checkout", "-q", "-b", "change"], check=True)


def _stream(size: Size) -> Iterator[bytes]:
    """Yield the commits for `git fast-import`."""
    at = 1_600_000_000
    for files in _commits(size):
        at += 3600
        yield f"commit refs/heads/main\ncommitter A <a@example.org> {at} +0000\n".encode()
        yield b"data 1\nx\n"
        for path, text in files:
            content = text.encode()
            yield f"M 100644 inline {path}\ndata {len(content)}\n".encode() + content + b"\n"


def _commits(size: Size) -> Iterator[list[tuple[str, str]]]:
    yield [("schemas/governance.toml", ""), *(_place(number, 0) for number in range(_SHARED))]
    for first in range(0, size.schemas, 5):
        yield [_event(n, 0) for n in range(first, min(first + 5, size.schemas))]
    rng = random.Random(1)
    for version in range(1, size.versions):
        numbers = rng.sample(range(size.schemas), size.schemas)
        for first in range(0, size.schemas, 4):
            yield [_event(number, version) for number in numbers[first : first + 4]]
        yield [_place(rng.randrange(_SHARED), version)]


def _event(number: int, version: int) -> tuple[str, str]:
    """Return the path and the text of an event; each version adds a field."""
    team = number % _TEAMS
    fields: list[dict[str, Any]] = []
    for i in range(16):
        type_ = _TYPES[(i + number) % len(_TYPES)]
        default = {"default": None} if isinstance(type_, list) else {}
        fields.append({"name": f"field_{i}", "type": type_, "doc": f"The field {i}.", **default})
    if number % 4 == 0:
        place = f"acme.shared.Place{number % _SHARED}"
        fields.append({"name": "place", "type": place, "doc": "The place."})
    fields += [
        {"name": f"added_{i}", "type": "long", "default": i, "doc": "Added later."}
        for i in range(version)
    ]
    schema = {
        "type": "record",
        "name": f"Event{number}",
        "namespace": f"acme.team{team}",
        "doc": "An event.",
        "headworks": {"topic": f"team{team}.event{number}", "owner": f"team{team}"},
        "fields": fields,
    }
    return f"schemas/team{team}/event{number}.avsc", json.dumps(schema, indent=2) + "\n"


def _place(number: int, version: int) -> tuple[str, str]:
    """Return the path and the text of a type that events share."""
    fields = [{"name": name, "type": "double"} for name in ("latitude", "longitude")]
    more = [{"name": f"more_{i}", "type": "int", "default": 0} for i in range(version)]
    schema = {
        "type": "record",
        "name": f"Place{number}",
        "namespace": "acme.shared",
        "fields": [*fields, *more],
    }
    return f"schemas/shared/place{number}.avsc", json.dumps(schema, indent=2) + "\n"
