"""The compiled decoder: spans of bytes in, Arrow columns out.

Rule: imported only when compiled decoding is used, because it imports numba.
"""

from __future__ import annotations

import secrets

import numpy as np
import numpy.typing as npt

from hadoop_loader._decode.bytecode import assemble
from hadoop_loader._decode.column_buffers import ColumnBuffers
from hadoop_loader._decode.column_builders import ArrowArray
from hadoop_loader._decode.decode_vm import DONE, NEEDS_ITEMS, run_bytecode
from hadoop_loader._tables.columns import StructField
from headworks._decoding.resolution import Action

__all__ = ["CompiledDecoder"]

Numbers = npt.NDArray[np.int64]


class CompiledDecoder:
    """Runs the bytecode of one schema pair for the columns of one table."""

    def __init__(self, read: Action, columns: tuple[StructField, ...]) -> None:
        self._buffers = ColumnBuffers(columns)  # where values collect
        self._bytecode = assemble(read, columns, self._buffers.nodes)
        # Of the hash table of map keys: random, so that nobody can send keys that all collide.
        self._seed = secrets.randbits(62)

    def decode(
        self, data: npt.NDArray[np.uint8], starts: Numbers, ends: Numbers
    ) -> tuple[list[ArrowArray], Numbers]:
        """Return the columns of the datums at `starts`..`ends`, and the numbers of the bad ones."""
        buffers, bytecode = self._buffers, self._bytecode
        bad = np.zeros(len(starts), np.bool_)
        buffers.reserve(len(starts), int((ends - starts).sum()))
        at, need = 0, DONE
        while at < len(starts):
            at, need, node = run_bytecode(
                bytecode.code,
                bytecode.tables,
                bytecode.pool,
                data,
                starts,
                ends,
                at,
                buffers.sizes,
                buffers.texts,
                buffers.layout,
                buffers.rooms,
                buffers.flags,
                buffers.words,
                buffers.words.view(np.float64),
                buffers.heap,
                bad,
                self._seed,
            )
            if need == DONE:
                break
            if need == NEEDS_ITEMS:
                buffers.grow_items(node)
            else:
                buffers.grow_text(node, at, len(starts), int((ends[at:] - starts[at:]).sum()))
        return buffers.take(), np.flatnonzero(bad)
