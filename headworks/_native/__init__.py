"""The C extensions: the event encoder (`_encoder.c`) and the audit counters (`_tally.c`).

Rules:

- No other module decides whether compiled code runs. `hatch_build.py` builds both extensions or
  neither; if one is missing, the other was left by an older version and is not used.
- Each extension has a Python form that defines the result and is always present
  (`headworks.codec`, `headworks._audit_counting.tally`). Only the speed differs.
- Imports neither of those packages, because both import this one.
"""

from __future__ import annotations

from typing import Final

try:
    from headworks._native import _encoder as encoder
    from headworks._native import _tally as tally
except ImportError:
    tally = encoder = None  # type: ignore[assignment]

__all__ = ["COMPILED", "encoder", "tally"]

COMPILED: Final = encoder is not None
"""Whether compiled code encodes and counts events; otherwise Python does, with the same result."""
