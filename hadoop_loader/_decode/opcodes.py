"""The instructions of a decoder's bytecode: their numbers and their arguments.

Rule: a number never changes its meaning within a version, because `bytecode` writes these numbers
and `decode_vm` runs them.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["INSTRUCTION_WIDTH", "Opcode"]

INSTRUCTION_WIDTH = 8  # numbers in an instruction, the opcode first; eight fill a cache line


class Opcode(IntEnum):
    """Numbers of the instructions.

    `s` is a node, `at` a position in `tables` or `pool`.
    """

    END = 0  # the datum has to end here
    NUMBER = 1  # s, bits (32, 64), conversion (below)
    TEXT = 2  # s, size (-1: written before the bytes), whether it must be UTF-8
    DOUBLE = 3  # s
    FLOAT = 4  # s
    BOOLEAN = 5  # s
    SYMBOL = 6  # s, table of (pool at, size) or (-1, 0), symbols
    UNION = 7  # table of code positions, branches
    JUMP = 8  # code position
    NULLS = 9  # table of nodes, how many
    PRESENT = 10  # s: the struct is present
    LIST = 11  # s, first node of the items
    ITEM = 12  # s, first node, least bytes of an item, code position after the list, is it a map
    DECIMAL = 13  # s, size (-1: as TEXT), limits in the pool, size of a limit
    WIDE_DECIMAL = 14  # s, size, limits, size of a limit, scale: becomes text
    UUID = 15  # s
    DURATION = 16  # s, and its three members
    WORD = 17  # s, value
    WORDS = 18  # s, low, high
    CONSTANT = 19  # s, pool at, size
    RESERVE = 20  # first node, s, items: room for the items of a constant list
    LISTED = 21  # s, first node: the constant list ends here
    FAIL = 22
    SKIP_NUMBER = 23
    SKIP_BYTES = 24
    SKIP_WIDTH = 25  # bytes
    SKIP_LIST = 26
    SKIP_ITEM = 27  # code position after the list, whether an item takes bytes
    CALL = 28  # code position
    RETURN = 29
