"""Draw schemas; generated classes must keep their law (tests/headworks/codec/codec_law.py)."""

from __future__ import annotations

import itertools
import shutil
import sys
import time
import traceback
from pathlib import Path

from tests.headworks.codec.codec_law import check_codec, check_defaults
from tests.soak.siege import Report

_MOST = 20  # what is wrong is wrong often


def draw_schemas(folder: Path, seconds: float, seed: int) -> Report:
    """Draw for so long, beginning at `seed`."""
    report, began = Report(), time.monotonic()
    for number in itertools.count(seed):
        if time.monotonic() - began >= seconds or len(report.wrong) >= _MOST:
            break
        here = folder / str(number)
        here.mkdir(parents=True)
        for check in (check_codec, check_defaults):
            start = time.monotonic()
            try:
                check(here, number)
            except Exception:
                report.wrong.append(f"seed {number}, {check.__name__}: {traceback.format_exc()}")
            report.slowest = max(report.slowest, time.monotonic() - start)
            report.counts[check.__name__] += 1
        shutil.rmtree(here)
        for name in [name for name in sys.modules if name.startswith("generated_")]:
            del sys.modules[name]
    report.seconds = time.monotonic() - began
    return report
