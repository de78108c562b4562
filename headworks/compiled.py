"""What is compiled here: all of it, where there was a compiler at installation, or nothing.

Rules: the one place that knows. Each compiled form has a Python form that is the truth and is
always there; nothing but speed tells them apart. `hatch_build.py` builds all of them or none: where
one is missing, what else is there was left by an older version, and is not used either.
"""

from __future__ import annotations

from typing import Final

try:
    from headworks.audit import _tally as tally
    from headworks.codec import _encoder as encoder
except ImportError:
    tally = encoder = None  # type: ignore[assignment]

__all__ = ["COMPILED", "encoder", "tally"]

COMPILED: Final = encoder is not None
"""Whether events are encoded and counted by what is compiled; otherwise by Python, the same."""
