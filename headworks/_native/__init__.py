"""The C extensions: encoder, decoder, a consumer's messages, a load's rows, and audit counters.

Rules:

- No other module decides whether compiled code runs. `hatch_build.py` builds all extensions or
  none; if one is missing, the others were left by an older version and are not used.
- Each extension has a Python form that defines the result and is always present
  (`headworks.codec`, `headworks._decoding`, `consumer_sdk._topic_decoders`,
  `hadoop_loader._fetch.row_numbers`, `headworks._audit_counting.tally`). Only the speed differs.
- Imports none of those packages, because they import this one.
"""

from __future__ import annotations

from typing import Final

try:
    from headworks._native import _decoder as decoder
    from headworks._native import _encoder as encoder
    from headworks._native import _messages as messages
    from headworks._native import _rows as rows
    from headworks._native import _tally as tally
except ImportError:
    tally = rows = messages = encoder = decoder = None  # type: ignore[assignment]

__all__ = ["COMPILED", "decoder", "encoder", "messages", "rows", "tally"]

COMPILED: Final = encoder is not None
"""Whether compiled code runs; otherwise Python does, with the same result."""
