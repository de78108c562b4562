"""The choice of back end: generated Python for few bytes, compiled loops for many.

Rules:

- A process counts its bytes. The compiled loops take about 1 s to load and, once per version and
  machine, some seconds to compile. Some megabytes pay that back.
- Once loaded, the compiled loops are used for everything. If many bytes are expected, they are used
  from the beginning.
- Both give the same rows, so the choice shows only in the time that a load takes.
"""

from __future__ import annotations

import importlib.util

__all__ = ["COMPILE_AFTER_BYTES", "PROCESS_SELECTOR", "BackendSelector"]

COMPILE_AFTER_BYTES = 16 << 20  # bytes


class BackendSelector:
    """Decides by the bytes that it has seen so far."""

    def __init__(self, after: int = COMPILE_AFTER_BYTES) -> None:
        self._left = after  # bytes until the compiled loops are worth loading

    def expect_bytes(self, size: float) -> None:
        """Select the compiled loops at once if this many bytes are worth them."""
        if size >= self._left:
            self._left = 0

    def use_compiled(self, size: int) -> bool:
        """Return whether the next `size` bytes are worth the compiled loops."""
        if self._left > 0:
            self._left -= size
            return False
        return self.compiled_available

    @property
    def compiled_available(self) -> bool:
        """Whether numba, an optional dependency, is installed."""
        return importlib.util.find_spec("numba") is not None


PROCESS_SELECTOR = BackendSelector()
