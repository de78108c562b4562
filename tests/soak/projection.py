"""The loader's projection beside Avro Java, for as long as one likes.

Avro Java remembers every pair of schemas that it has resolved, so a process of it is asked for some
minutes and then another one.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path

from tests.hadoop_loader.agreement import Report, agree
from tests.headworks.compatibility import oracle as avro_java

_OF_A_PROCESS = 120.0  # seconds


def compare(folder: Path, seconds: float, seed: int) -> Report:
    """Compare generated pairs of schemas for so many seconds."""
    found = Report(0, 0, 0.0, ())
    end = time.monotonic() + seconds
    while not found.wrong and (left := end - time.monotonic()) > 0:
        with contextmanager(avro_java.start)(folder) as oracle:
            more = agree(oracle, seed, seconds=min(left, _OF_A_PROCESS))
        seed += 1
        found = Report(
            found.pairs + more.pairs,
            found.data + more.data,
            found.seconds + more.seconds,
            more.wrong,
        )
    return found
