"""The decoder that the kernel carries out: spans of bytes in, Arrow columns out.

Rule: imported only where the kernel is used; it brings numba with it.
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
    """Carries out one resolution program for the columns of one table."""

    def __init__(self, read: Action, columns: tuple[StructField, ...]) -> None:
        self._buffers = ColumnBuffers(columns)
        self._program = assemble(read, columns, self._buffers.nodes)
        # Whoever writes maps must not know which keys fall on one place of the table of keys.
        self._seed = secrets.randbits(62)

    def decode(
        self, data: npt.NDArray[np.uint8], starts: Numbers, ends: Numbers
    ) -> tuple[list[ArrowArray], Numbers]:
        """The columns of the datums at `starts`..`ends`, and the numbers of the broken ones."""
        buffers, program = self._buffers, self._program
        bad = np.zeros(len(starts), np.bool_)
        buffers.reserve(len(starts), int((ends - starts).sum()))
        at, need = 0, DONE
        while at < len(starts):
            at, need, node = run_bytecode(
                program.code,
                program.tables,
                program.pool,
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
