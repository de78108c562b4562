"""The loader's projection beside Avro Java, for as long as one likes."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

from tests.compatibility import oracle as avro_java
from tests.loader.agreement import Report, agree

__all__ = ["compare"]


def compare(folder: Path, seconds: float, seed: int) -> Report:
    """Compare generated pairs of schemas for so many seconds."""
    with contextmanager(avro_java.start)(folder) as oracle:
        return agree(oracle, seed, seconds=seconds)
