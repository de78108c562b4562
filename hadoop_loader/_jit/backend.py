"""Which of the two back ends works: generated Python for little, compiled loops for much.

Rules:

- By bytes, and by process: the compiled loops take a good second to be loaded (and, once for a
  version and a machine, some seconds to be compiled), which is paid back after some megabytes.
  Once they are there they are used for everything; where so much is expected, from the beginning.
- Both give the same rows, so the choice is never seen but in the time that a load takes.
"""

from __future__ import annotations

import importlib.util

__all__ = ["COMPILE_AFTER_BYTES", "PROCESS_SELECTOR", "BackendSelector"]

COMPILE_AFTER_BYTES = 16 << 20  # bytes


class BackendSelector:
    """Decides by the bytes it was told of so far."""

    def __init__(self, after: int = COMPILE_AFTER_BYTES) -> None:
        self._left = after

    def expect_bytes(self, size: float) -> None:
        """So many bytes are to come: what is worth the loops in the end is worth them at once."""
        if size >= self._left:
            self._left = 0

    def use_compiled(self, size: int) -> bool:
        """Whether the next `size` bytes are worth the compiled loops."""
        if self._left > 0:
            self._left -= size
            return False
        return self.compiled_available

    @property
    def compiled_available(self) -> bool:
        """Whether there are compiled loops: numba is an extra."""
        return importlib.util.find_spec("numba") is not None


PROCESS_SELECTOR = BackendSelector()
