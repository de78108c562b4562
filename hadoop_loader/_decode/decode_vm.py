"""The virtual machine of compiled decoding: one loop that runs any schema's bytecode over datums.

Rules:

- It is compiled once for all schemas, because a schema is data here. `bytecode` makes the
  instructions and `column_buffers` the room. numba keeps the machine code on disk, so a process
  pays for loading it and not for compiling it.
- Nothing is read past a datum's end, and nothing is written past the room. If a buffer is full, the
  run ends before the datum that did not fit, with a request for room.
- A bad datum costs itself: the sizes of all nodes are reset to those before it.
- The generated Python is the other back end. Both give the same rows (a property test), and the
  reason for a bad datum always comes from the generated Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hadoop_loader._decode.opcodes import Opcode
from hadoop_loader._jit.jit import jit
from hadoop_loader._jit.primitives import (
    FEW_KEYS,
    copy_bytes,
    decimal_fits,
    decimal_halves,
    few_keys_repeat,
    is_utf8,
    many_keys_repeat,
    read_little_endian,
    read_span,
    read_varint,
    write_decimal,
    write_uuid,
)
from headworks._decoding.primitives import MAX_EMPTY_ITEMS

__all__ = [
    "DONE",
    "NEEDS_ITEMS",
    "NEEDS_TEXT",
    "STACK_DEPTH",
    "run_bytecode",
]

STACK_DEPTH = 1000  # loops and calls that may be inside each other
DONE, NEEDS_ITEMS, NEEDS_TEXT = 0, 1, 2
_MILLIS = 9_223_372_036_854_775  # milliseconds that still fit into 64 bits of microseconds


# As plain numbers: numba takes module constants, not attributes of classes.
(
    _END, _NUMBER, _TEXT, _DOUBLE, _FLOAT, _BOOLEAN, _SYMBOL, _UNION, _JUMP, _NULLS,
    _PRESENT, _LIST, _ITEM, _DECIMAL, _WIDE_DECIMAL, _UUID, _DURATION, _WORD, _WORDS, _CONSTANT,
    _RESERVE, _LISTED, _FAIL, _SKIP_NUMBER, _SKIP_BYTES, _SKIP_WIDTH, _SKIP_LIST, _SKIP_ITEM,
    _CALL, _RETURN,
) = map(int, Opcode)  # fmt: skip


def _walk(
    code: Any,
    tables: Any,
    pool: Any,
    data: Any,
    starts: Any,
    ends: Any,
    first: Any,
    sizes: Any,
    texts: Any,
    layout: Any,
    rooms: Any,
    flags: Any,
    words: Any,
    doubles: Any,
    heap: Any,
    bad: Any,
    seed: Any,
) -> Any:
    """Decode the datums from `first` on; return (datums done, DONE or what is needed, node).

    `sizes` and `texts` say how much of each node is filled. A row of `layout` describes a node:
    where its flags, words, and text begin, the room of its text, its kind, and its item node.
    The kind is 0 for no value, 1 for a word, 2 for two words, 3 for text,
    and 4 for a list. `bad` marks the bad datums.
    """
    stack = np.empty(STACK_DEPTH + 4, np.int64)
    kept = np.empty((2, sizes.size), np.int64)
    single = np.empty(1, np.float32)
    single_bits = single.view(np.int32)
    for row in range(first, starts.size):
        kept[0] = sizes
        kept[1] = texts
        at, end = starts[row], ends[row]
        pc = sp = empty = 0
        broken = False
        need, which = DONE, 0
        while True:
            op, s = code[pc, 0], code[pc, 1]
            if op == _NUMBER:
                value, at = read_varint(data, at, end)
                if at < 0 or (code[pc, 2] == 32 and value != np.int64(np.int32(value))):
                    broken = True
                    break
                place = layout[s, 1] + sizes[s]
                conversion = code[pc, 3]
                if conversion == 0:
                    words[place] = value
                elif conversion == 1:
                    doubles[place] = np.float64(value)
                elif conversion == 2:
                    doubles[place] = np.float64(np.float32(np.float64(value)))
                elif conversion == 3:
                    if not -_MILLIS <= value <= _MILLIS:
                        broken = True
                        break
                    words[place] = value * 1000
                else:
                    words[place] = value // 1000
                flags[layout[s, 0] + sizes[s]] = 1
                sizes[s] += 1
                pc += 1
            elif op == _TEXT:
                size, at = read_span(data, at, end, code[pc, 2])
                if at < 0:
                    broken = True
                    break
                to = texts[s]
                if to + size > layout[s, 3]:
                    need, which = NEEDS_TEXT, s
                    break
                seen = copy_bytes(data, at, heap, layout[s, 2] + to, size)
                if seen >= 0x80 and code[pc, 3] and not is_utf8(data, at, at + size):
                    broken = True
                    break
                at += size
                texts[s] = to + size
                words[layout[s, 1] + sizes[s]] = to + size
                flags[layout[s, 0] + sizes[s]] = 1
                sizes[s] += 1
                pc += 1
            elif op == _UNION:
                value, at = read_varint(data, at, end)
                if at < 0 or value < 0 or value >= code[pc, 2]:
                    broken = True
                    break
                pc = tables[s + value]
            elif op == _JUMP:
                pc = s
            elif op == _NULLS:
                for k in range(code[pc, 2]):
                    slot = tables[s + k]
                    place = sizes[slot]
                    kind = layout[slot, 4]
                    flags[layout[slot, 0] + place] = 0
                    if kind == 1:
                        words[layout[slot, 1] + place] = 0
                    elif kind == 2:
                        words[layout[slot, 1] + 2 * place] = 0
                        words[layout[slot, 1] + 2 * place + 1] = 0
                    elif kind == 3:
                        words[layout[slot, 1] + place] = texts[slot]
                    elif kind == 4:
                        words[layout[slot, 1] + place] = sizes[layout[slot, 5]]
                    sizes[slot] = place + 1
                pc += 1
            elif op == _PRESENT:
                flags[layout[s, 0] + sizes[s]] = 1
                sizes[s] += 1
                pc += 1
            elif op == _ITEM:
                if stack[sp - 2] == 0:
                    value, at = read_varint(data, at, end)
                    if at < 0:
                        broken = True
                        break
                    child = code[pc, 2]
                    if value == 0:
                        sp -= 2
                        if code[pc, 5]:
                            keys, letters = layout[child, 1], layout[child, 2]
                            begun, ended = stack[sp + 1], sizes[child]
                            if ended - begun <= FEW_KEYS:
                                broken = few_keys_repeat(words, keys, heap, letters, begun, ended)
                            else:
                                broken = many_keys_repeat(
                                    words, keys, heap, letters, begun, ended, seed
                                )
                            if broken:
                                break
                        words[layout[s, 1] + sizes[s]] = sizes[child]
                        flags[layout[s, 0] + sizes[s]] = 1
                        sizes[s] += 1
                        pc = code[pc, 4]
                        continue
                    if value < 0:
                        value = -value
                        _, at = read_varint(data, at, end)
                    least = code[pc, 3]
                    if at < 0 or value < 0 or (least > 0 and value > (end - at) // least):
                        broken = True
                        break
                    if least == 0:
                        if value > MAX_EMPTY_ITEMS - empty:
                            broken = True
                            break
                        empty += value
                    if sizes[child] + value > rooms[s]:
                        need, which = NEEDS_ITEMS, s
                        break
                    stack[sp - 2] = value
                stack[sp - 2] -= 1
                pc += 1
            elif op == _LIST:
                if sp >= STACK_DEPTH:
                    broken = True
                    break
                stack[sp] = 0
                stack[sp + 1] = sizes[code[pc, 2]]
                sp += 2
                pc += 1
            elif op in (_SYMBOL, _CONSTANT):
                source, size = code[pc, 2], code[pc, 3]
                if op == _SYMBOL:
                    value, at = read_varint(data, at, end)
                    if at < 0 or value < 0 or value >= code[pc, 3]:
                        broken = True
                        break
                    source, size = (
                        tables[code[pc, 2] + 2 * value],
                        tables[code[pc, 2] + 2 * value + 1],
                    )
                    if source < 0:
                        broken = True
                        break
                to = texts[s]
                if to + size > layout[s, 3]:
                    need, which = NEEDS_TEXT, s
                    break
                copy_bytes(pool, source, heap, layout[s, 2] + to, size)
                texts[s] = to + size
                words[layout[s, 1] + sizes[s]] = to + size
                flags[layout[s, 0] + sizes[s]] = 1
                sizes[s] += 1
                pc += 1
            elif op in (_DOUBLE, _FLOAT, _BOOLEAN):
                width = 8 if op == _DOUBLE else 4 if op == _FLOAT else 1
                if width > end - at or (op == _BOOLEAN and data[at] > 1):
                    broken = True
                    break
                value = read_little_endian(data, at, width)
                at += width
                if op == _FLOAT:
                    single_bits[0] = np.int32(value)
                    doubles[layout[s, 1] + sizes[s]] = np.float64(single[0])
                else:
                    words[layout[s, 1] + sizes[s]] = value
                flags[layout[s, 0] + sizes[s]] = 1
                sizes[s] += 1
                pc += 1
            elif op == _WORD:
                words[layout[s, 1] + sizes[s]] = code[pc, 2]
                flags[layout[s, 0] + sizes[s]] = 1
                sizes[s] += 1
                pc += 1
            elif op in (_WORDS, _DECIMAL):
                low, high = code[pc, 2], code[pc, 3]
                if op == _DECIMAL:
                    size, at = read_span(data, at, end, code[pc, 2])
                    if at < 0 or not decimal_fits(data, at, size, pool, code[pc, 3], code[pc, 4]):
                        broken = True
                        break
                    low, high = decimal_halves(data, at, size)
                    at += size
                words[layout[s, 1] + 2 * sizes[s]] = low
                words[layout[s, 1] + 2 * sizes[s] + 1] = high
                flags[layout[s, 0] + sizes[s]] = 1
                sizes[s] += 1
                pc += 1
            elif op in (_WIDE_DECIMAL, _UUID):
                size, at = read_span(data, at, end, code[pc, 2])
                longest = 36
                if op == _WIDE_DECIMAL:
                    if at < 0 or not decimal_fits(data, at, size, pool, code[pc, 3], code[pc, 4]):
                        broken = True
                        break
                    over = max(size - code[pc, 4], 0)  # signs before the number
                    at += over
                    size -= over
                    longest = 3 * size + code[pc, 5] + 4
                elif at < 0:
                    broken = True
                    break
                to = texts[s]
                if to + longest > layout[s, 3]:
                    need, which = NEEDS_TEXT, s
                    break
                base = layout[s, 2] + to
                if op == _WIDE_DECIMAL:
                    stop = write_decimal(data, at, size, code[pc, 5], heap, base)
                else:
                    write_uuid(data, at, heap, base)
                    stop = base + 36
                at += size
                texts[s] = stop - layout[s, 2]
                words[layout[s, 1] + sizes[s]] = texts[s]
                flags[layout[s, 0] + sizes[s]] = 1
                sizes[s] += 1
                pc += 1
            elif op == _DURATION:
                if end - at < 12:
                    broken = True
                    break
                flags[layout[s, 0] + sizes[s]] = 1
                sizes[s] += 1
                for k in range(3):
                    slot = code[pc, 2 + k]
                    words[layout[slot, 1] + sizes[slot]] = read_little_endian(data, at + 4 * k, 4)
                    flags[layout[slot, 0] + sizes[slot]] = 1
                    sizes[slot] += 1
                at += 12
                pc += 1
            elif op == _RESERVE:
                if sizes[s] + code[pc, 3] > rooms[code[pc, 2]]:
                    need, which = NEEDS_ITEMS, code[pc, 2]
                    break
                pc += 1
            elif op == _LISTED:
                words[layout[s, 1] + sizes[s]] = sizes[code[pc, 2]]
                flags[layout[s, 0] + sizes[s]] = 1
                sizes[s] += 1
                pc += 1
            elif op == _SKIP_NUMBER:
                _, at = read_varint(data, at, end)
                if at < 0:
                    broken = True
                    break
                pc += 1
            elif op in (_SKIP_BYTES, _SKIP_WIDTH):
                size, at = read_span(data, at, end, -1 if op == _SKIP_BYTES else s)
                if at < 0:
                    broken = True
                    break
                at += size
                pc += 1
            elif op == _SKIP_ITEM:
                if stack[sp - 1] == 0:
                    value, at = read_varint(data, at, end)
                    if at < 0:
                        broken = True
                        break
                    if value == 0:
                        sp -= 1
                        pc = s
                    elif value < 0:
                        size, at = read_span(data, at, end, -1)
                        if at < 0:
                            broken = True
                            break
                        at += size
                    elif code[pc, 2]:
                        stack[sp - 1] = value
                    continue
                stack[sp - 1] -= 1
                pc += 1
            elif op in (_CALL, _SKIP_LIST):
                if sp >= STACK_DEPTH:
                    broken = True
                    break
                stack[sp] = pc + 1 if op == _CALL else 0
                sp += 1
                pc = s if op == _CALL else pc + 1
            elif op == _RETURN:
                sp -= 1
                pc = stack[sp]
            else:
                broken = op != _END or at != end
                break
        if broken or need != DONE:
            sizes[:] = kept[0]
            texts[:] = kept[1]
        if need != DONE:
            return row, need, which
        bad[row] = broken
    return starts.size, DONE, 0


run_bytecode = jit(_walk)
