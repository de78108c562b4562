"""How functions become machine code: numba, and the folder in which it caches what it compiled.

Rules:

- The folder is in the user's cache, and its name is a digest of all compiled modules. The code of
  another version can never be taken for this one's.
- If no folder can be written, each process compiles for itself.
- Import it only when there is much to decode: importing numba takes a moment.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core.options import DefaultOptions

__all__ = ["jit", "jit_leaf"]

_UNCOUNTED = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
_COMPILED_MODULES = (
    "_decode/decode_vm.py",
    "_fetch/record_spans.py",
    "_jit/jit.py",
    "_jit/primitives.py",
)
# Modules whose constants numba copies into machine code.
_CONSTANT_MODULES = (
    "_decode/opcodes.py",
    "_fetch/messages.py",
    "../headworks/_decoding/primitives.py",
)


def jit(function: Callable[..., Any]) -> Any:
    """Return `function` as machine code, compiled at the first call for each set of types."""
    folder = _folder()
    config: Any = numba.config
    before = config.CACHE_DIR
    if folder is not None and not before:
        config.CACHE_DIR = str(folder)
    try:
        return numba.njit(cache=folder is not None, nogil=True)(function)
    finally:
        config.CACHE_DIR = before


def jit_leaf(function: Callable[..., Any]) -> Any:
    """Return `function` as machine code for other compiled code to call; it must create no arrays.

    By default, a call increments and decrements the reference count of each array argument with
    locking instructions. In a function that runs once per value, that cost more than the work. A
    function that creates no arrays need not count. The numba option is not public: if a version
    lacks it, references are counted.
    """
    njit: Any = numba.njit
    return njit(nogil=True, **_UNCOUNTED)(function)


def _folder() -> Path | None:
    """Return the cache folder of this code, created if missing; None if it is not writable."""
    package = Path(__file__).parent.parent
    names = (*_COMPILED_MODULES, *_CONSTANT_MODULES)
    digest = hashlib.sha256(b"".join((package / name).read_bytes() for name in names))
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "headworks" / f"compiled-{digest.hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
