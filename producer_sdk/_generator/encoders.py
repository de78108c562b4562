"""The straight-line encoder of one record, as source text.

Rules:

- Each value becomes one or more bytes expressions ("pieces"). All pieces of a record are joined
  once, at its end. The statements that a piece needs (a temporary, a loop) come before it.
- A value of the wrong type must raise, and never encode. A bare attribute access proves nothing.
- A union chooses its branch by exact class. Among branches of one Python class, an integer takes
  the first that holds it, and a float takes double. Bytes take the first fixed of their length, a
  decimal the first that fits it, and every other value the first.
- The lines are as `ruff format` leaves them, if each single name fits its line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headworks.schema import Array, EnumType, Fixed, MapType, Primitive, Record, Schema, Union
from producer_sdk._generator.annotations import annotation, byte_literal, python_type

WIDTH = 100  # characters of a generated line
_MAX_NESTED_LOOPS = 12
_MAX_ADDED_PIECES = 3  # up to this many pieces are added, and more are joined
_INT_RANGE = "-2147483648 <= {0} <= 2147483647"
_LOGICAL_CALLS = {
    "date": "_date_days({0})",
    "time-millis": "_time_millis({0})",
    "time-micros": "_time_micros({0})",
    "timestamp-millis": "_instant_millis({0})",
    "timestamp-micros": "_instant_micros({0})",
    "local-timestamp-millis": "_local_millis({0})",
    "local-timestamp-micros": "_local_micros({0})",
}
_SMALL_INTEGER = "_ZIGZAG[{0}] if {0}.__class__ is int and -8192 <= {0} < 8192 else {1}({0})"
_PRIMITIVE_CALLS = {
    "boolean": "_TRUE if {0} is True else _FALSE if {0} is False else _refuse({0})",
    "int": _SMALL_INTEGER.replace("{1}", "_int32"),
    "long": _SMALL_INTEGER.replace("{1}", "_int64"),
    "float": "_pack_float({0}) if {0}.__class__ is float else _float32({0})",
    "double": "_pack_double({0}) if {0}.__class__ is float else _double64({0})",
    "bytes": "_bytes_of({0})",
}


class RecordEncoder:
    """Writes the body of `_encode_X(_v)`.

    `ref` names a generated class, `function` the encoder of a record class and `symbols` the table
    of an enum class, each by the full Avro name.
    """

    def __init__(
        self,
        ref: Callable[[str], str],
        function: Callable[[str], str],
        symbols: Callable[[str], str],
        attributes: Callable[[Record], dict[str, str]],
    ) -> None:
        self._ref = ref
        self._function = function
        self._symbols = symbols
        self._attributes = attributes
        self._lines: list[str] = []
        self._depth = 1
        self._temporaries = self._loops = 0

    def body(self, record: Record) -> list[str]:
        """Return the indented lines of the function."""
        cls = self._ref(record.name)
        self._write(f"if not isinstance(_v, {cls}):")
        self._write("    raise TypeError(_v)")
        self._write_result("return", self._fields(record, "_v"))
        return self._lines

    def _write(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    def _write_result(self, before: str, pieces: Sequence[str]) -> None:
        """Write `before` and one bytes expression of all the pieces."""
        line = f"{before} {_joined(pieces)}"
        if self._fits(line):
            self._write(line)
        elif len(pieces) <= 1:
            self._write(f"{before} {self._shortened(_joined(pieces), f'{before} ')}")
        else:
            few = len(pieces) <= _MAX_ADDED_PIECES
            pieces = [self._shortened(p, " " * (WIDTH if few else 8), ",") for p in pieces]
            if self._fits(line := f"{before} {_joined(pieces)}"):
                self._write(line)
                return
            self._write(f'{before} b"".join(')
            self._write("    (")
            for piece in pieces:
                self._write(f"        {piece},")
            self._write("    )")
            self._write(")")

    def _fits(self, line: str) -> bool:
        return 4 * self._depth + len(line) <= WIDTH

    def _shortened(self, piece: str, before: str, after: str = "") -> str:
        """Return a piece, or a temporary that holds it if its line would be too long."""
        value, _, rest = piece.partition(" if ")
        if not rest or self._fits(before + piece + after):
            return piece
        test, _, other = rest.partition(" else ")
        name = self._temporary()
        self._write(f"if {test}:")
        self._write(f"    {name} = {value}")
        self._write("else:")
        self._write(f"    {name} = {other}")
        return name

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"_{self._temporaries}"

    def _in_temporary(self, expression: str) -> str:
        """Return a temporary that holds `expression`."""
        if expression.isidentifier():
            return expression
        name = self._temporary()
        self._write(f"{name} = {expression}")
        return name

    def _fields(self, record: Record, owner: str) -> list[str]:
        names = self._attributes(record)
        pieces: list[str] = []
        for field in record.fields:
            pieces += self._value(field.type, f"{owner}.{names[field.name]}")
        return pieces

    def _value(self, schema: Schema, expression: str) -> list[str]:
        if isinstance(schema, Record):
            return [f"{self._function(schema.name)}({expression})"]
        if isinstance(schema, EnumType):
            x, table = self._in_temporary(expression), self._symbols(schema.name)
            cls = self._ref(schema.name)
            return [f"{table}[{x}] if {x}.__class__ is {cls} else _refuse({x})"]
        if isinstance(schema, (Array, MapType)):
            if self._loops >= _MAX_NESTED_LOOPS:
                return [self._in_function(schema, expression)]
            return [self._blocks(schema, expression)]
        if isinstance(schema, Union):
            return [self._union(schema, expression)]
        return self._leaf(schema, expression)

    def _leaf(self, schema: Primitive | Fixed, expression: str) -> list[str]:
        logical = schema.logical
        if logical is not None and logical.name in _LOGICAL_CALLS:
            return [_LOGICAL_CALLS[logical.name].format(expression)]
        if logical is not None and logical.name == "uuid":
            form = "fixed" if isinstance(schema, Fixed) else "text"
            return [f"_uuid_{form}({expression})"]
        if logical is not None and logical.name == "decimal":
            limits = f"{expression}, {logical.precision}, {logical.scale}"
            if isinstance(schema, Fixed):
                return [f"_decimal_fixed({limits}, {schema.size})"]
            return [f"_decimal_bytes({limits})"]
        if isinstance(schema, Fixed):
            return [f"_fixed_of({expression}, {schema.size})"]
        if schema.kind == "null":
            x = self._in_temporary(expression)
            self._write(f"if {x} is not None:")
            self._write(f"    raise TypeError({x})")
            return []
        if schema.kind == "string":
            return self._string(expression)
        if schema.kind == "bytes":
            return [_PRIMITIVE_CALLS[schema.kind].format(expression)]
        return [_PRIMITIVE_CALLS[schema.kind].format(self._in_temporary(expression))]

    def _string(self, expression: str) -> list[str]:
        text, size = self._temporary(), self._temporary()
        self._write(f"{text} = _utf8({expression})")
        self._write(f"{size} = len({text})")
        return [f"_COUNT[{size}] if {size} < 8192 else _count({size})", text]

    def _blocks(self, schema: Array | MapType, expression: str) -> str:
        self._loops += 1
        if isinstance(schema, Array):
            piece = self._array(schema, expression)
        else:
            piece = self._map(schema, expression)
        self._loops -= 1
        return piece

    def _in_function(self, schema: Array | MapType, expression: str) -> str:
        """Write a nested function, because Python's compiler limits the depth of nested loops."""
        x, function = self._in_temporary(expression), self._temporary()
        loops, self._loops = self._loops, 0
        given = annotation(schema, self._ref, str)
        self._write(f"def {function}({x}: {given}) -> bytes:")
        self._depth += 1
        self._write(f"return {self._blocks(schema, x)}")
        self._depth -= 1
        self._loops = loops
        return f"{function}({x})"

    def _array(self, schema: Array, expression: str) -> str:
        x, parts, item = self._in_temporary(expression), self._temporary(), self._temporary()
        self._write(f"if {x}.__class__ is not list:")
        self._write(f"    _array_of({x})")
        self._write(f"{parts} = [_count(len({x}))] if {x} else []")
        self._write(f"for {item} in {x}:")
        self._append_pieces(parts, lambda: self._value(schema.items, item))
        return f"{_joined_list(parts)}"

    def _map(self, schema: MapType, expression: str) -> str:
        x, parts, key, item = (
            self._in_temporary(expression),
            self._temporary(),
            self._temporary(),
            self._temporary(),
        )
        self._write(f"if {x}.__class__ is not dict:")
        self._write(f"    _map_of({x})")
        self._write(f"{parts} = [_count(len({x}))] if {x} else []")
        self._write(f"for {key}, {item} in {x}.items():")
        self._append_pieces(parts, lambda: [f"_KEYS[{key}]", *self._value(schema.values, item)])
        return f"{_joined_list(parts)}"

    def _append_pieces(self, parts: str, pieces: Callable[[], list[str]]) -> None:
        """Write, one level deeper, the lines that append the pieces of an item to `parts`."""
        self._depth += 1
        found = pieces()
        if len(found) == 1:
            self._write(f"{parts}.append({self._shortened(found[0], f'{parts}.append(', ')')})")
        elif self._fits(line := f"{parts} += ({', '.join(found)})"):
            self._write(line)
        elif found:
            found = [self._shortened(piece, " " * 4, ",") for piece in found]
            self._write(f"{parts} += (")
            for piece in found:
                self._write(f"    {piece},")
            self._write(")")
        self._depth -= 1

    def _union(self, schema: Union, expression: str) -> str:
        x, result = self._in_temporary(expression), self._temporary()
        word = "if"
        other = schema.nullable
        if other is not None:
            null = 0 if schema.branches[0].kind == "null" else 1
            self._write(f"if {x} is None:")
            self._write(f"    {result} = {_index(null)}")
            self._write("else:")
            self._branch(1 - null, other, x, result)
            return result
        groups = self._by_class(schema)
        for cls, branches in groups.items():
            test = f"{x} is None" if cls == "None" else f"type({x}) is {cls}"
            if cls == "float" and "int" not in groups:
                test += f" or type({x}) is int"  # as a type checker allows
            self._write(f"{word} {test}:")
            self._choose(cls, branches, x, result)
            word = "elif"
        if not schema.branches:
            return f"_refuse({x})"
        self._write("else:")
        self._write(f"    raise TypeError({x})")
        return result

    def _by_class(self, schema: Union) -> dict[str, list[tuple[int, Schema]]]:
        groups: dict[str, list[tuple[int, Schema]]] = {}
        for i, branch in enumerate(schema.branches):
            groups.setdefault(python_type(branch, self._ref), []).append((i, branch))
        return groups

    def _choose(
        self, cls: str, branches: Sequence[tuple[int, Schema]], x: str, result: str
    ) -> None:
        """Write the choice among branches of one Python class."""
        index, branch = branches[0]
        if cls == "int" and branch.kind == "int" and len(branches) > 1:
            self._either(_INT_RANGE.format(x), branches, x, result)
        elif cls == "float":
            double = next((pair for pair in branches if pair[1].kind == "double"), branches[0])
            self._branch(*double, x, result)
        elif cls == "bytes" and isinstance(branch, Fixed) and len(branches) > 1:
            self._either(f"len({x}) == {branch.size}", branches, x, result)
        elif cls == "_decimal.Decimal" and len(branches) > 1:
            self._depth += 1
            self._write("try:")
            self._branch(index, branch, x, result)
            self._write("except (ValueError, OverflowError):")
            self._choose(cls, branches[1:], x, result)
            self._depth -= 1
        else:
            self._branch(index, branch, x, result)

    def _either(
        self, test: str, branches: Sequence[tuple[int, Schema]], x: str, result: str
    ) -> None:
        self._depth += 1
        self._write(f"if {test}:")
        self._branch(*branches[0], x, result)
        self._write("else:")
        self._choose("int" if "<=" in test else "bytes", branches[1:], x, result)
        self._depth -= 1

    def _branch(self, index: int, schema: Schema, x: str, result: str) -> None:
        self._depth += 1
        pieces = [] if schema.kind == "null" else self._value(schema, x)
        self._write_result(f"{result} =", [_index(index), *pieces])
        self._depth -= 1


def _index(branch: int) -> str:
    number, out = branch << 1, bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    return byte_literal(bytes((*out, number)))


def _joined(pieces: Sequence[str]) -> str:
    """Return one bytes expression for several."""
    if not pieces:
        return 'b""'
    if len(pieces) == 1:
        return pieces[0]
    if len(pieces) <= _MAX_ADDED_PIECES:
        return " + ".join(f"({piece})" if " if " in piece else piece for piece in pieces)
    return f'b"".join(({", ".join(pieces)}))'


def _joined_list(parts: str) -> str:
    return f'b"".join({parts}) + b"\\x00"'
