"""Schema resolution: can this reader decode all data of that writer (specification of Avro 1.12)?

The verdict is that of Avro Java 1.12.1's `SchemaCompatibility`. It keeps Java's order of work and
its memo, because the answer for recursive types depends on what was assumed on the way. It differs
from Java in two ways:

- Every cause is reported. Inside a union, it is the cause in the branch that was meant; Java only
  says "missing branch".
- Under the strict policies, the same walk also reports data loss that Java allows. Such reasons
  never change which branches resolve.

Rules: nothing recurses on the schema (pairs wait on an explicit stack). Each pair of nodes is
compared once, and a Budget bounds the whole. Findings are in the order of the reader's fields.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from headworks.compatibility import _messages as messages
from headworks.compatibility._budget import Budget
from headworks.compatibility._finding import Finding, Policy
from headworks.compatibility._messages import Reason
from headworks.compatibility._rules import RULES
from headworks.compatibility._soundness import (
    aliases_in_use,
    default_problem,
    field_aliases_in_use,
    logical_problem,
)
from headworks.compatibility._wording import Sides, rename_of, simple_name
from headworks.schema._model import (
    Array,
    EnumType,
    Field,
    Fixed,
    MapType,
    Named,
    Primitive,
    Record,
    Schema,
    Union,
)

_REASON_STEPS: Final = 50
_PROMOTED: Final = frozenset(
    [
        ("long", "int"),
        ("float", "int"),
        ("float", "long"),
        ("double", "int"),
        ("double", "long"),
        ("double", "float"),
        ("bytes", "string"),
        ("string", "bytes"),
    ]
)


def resolution_findings(
    reader: Schema, writer: Schema, policy: Policy, sides: Sides, budget: Budget
) -> list[Finding]:
    """Return every reason why `reader` cannot decode data of `writer`; empty if it can."""
    budget.next_pair()
    return _Resolution(policy is not Policy.AVRO, sides, budget).run(reader, writer)


@dataclass(eq=False, slots=True)
class _Outcome:
    """The result of one pair."""

    ok: bool  # whether it resolves
    reasons: list[Reason] = field(default_factory=list)  # its own
    # Outcomes below it, by step of the path.
    inner: list[tuple[str, _Outcome]] = field(default_factory=list)


_RESOLVES: Final = _Outcome(ok=True)
_Walk = Generator[tuple[Schema, Schema], _Outcome, _Outcome]


@dataclass(slots=True)
class _Resolution:
    strict: bool  # whether data loss that Java allows is reported
    sides: Sides  # the version numbers, for messages
    budget: Budget
    memo: dict[tuple[int, int], _Outcome] = field(default_factory=dict)  # outcomes by pair of ids
    # Pairs for which Java throws instead of answering: final, wherever they occur.
    ambiguous: list[_Outcome] = field(default_factory=list)

    def run(self, reader: Schema, writer: Schema) -> list[Finding]:
        tops = [self._drive(reader, writer), *self.ambiguous]
        if self.strict:
            tops.append(self._aliases(reader, writer))
        return self._collect(tops)

    def _drive(self, reader: Schema, writer: Schema) -> _Outcome:
        """Run the comparison of a pair, and of all pairs below it, without recursion."""
        stack: list[tuple[tuple[int, int], _Walk]] = []
        asked = (reader, writer)
        while True:
            key = (id(asked[0]), id(asked[1]))
            answer = self.memo.get(key)
            if answer is None:
                # Until its answer is known, a pair met again below itself resolves.
                self.memo[key] = _RESOLVES
                stack.append((key, self._pair(*asked)))
            while stack:
                key, walk = stack[-1]
                try:
                    asked = next(walk) if answer is None else walk.send(answer)
                    break
                except StopIteration as done:
                    answer = self.memo[key] = done.value
                    stack.pop()
            else:
                assert answer is not None
                return answer

    def _collect(self, tops: Sequence[_Outcome]) -> list[Finding]:
        seen: set[int] = set()
        found: dict[tuple[str, str, str], Finding] = {}
        stack = [("", top) for top in reversed(tops)]
        while stack:
            path, outcome = stack.pop()
            if id(outcome) in seen:
                continue
            seen.add(id(outcome))
            for reason in outcome.reasons:
                key = (reason.rule, reason.reader_pointer, reason.writer_pointer)
                found.setdefault(key, self._finding(reason, path))
            for step, one in reversed(outcome.inner):
                stack.append((path + step if step[:1] in "[{" else _dotted(path, step), one))
        return list(found.values())

    def _finding(self, reason: Reason, path: str) -> Finding:
        message = reason.message
        if path:
            message = f"{message} (field {path})"
        return Finding(
            rule=reason.rule,
            kind=RULES[reason.rule].kind,
            message=message[:1].upper() + message[1:],
            fix=reason.fix,
            path=path,
            reader_pointer=reason.reader_pointer,
            writer_pointer=reason.writer_pointer,
            reader_version=self.sides.reader,
            writer_version=self.sides.writer,
        )

    def _aliases(self, reader: Schema, writer: Schema) -> _Outcome:
        reasons = [
            messages.alias_in_use(self.sides, *pair) for pair in aliases_in_use(reader, writer)
        ]
        pairs = field_aliases_in_use(reader, writer)
        reasons += [messages.ambiguous_field(self.sides, *pair, rule="HW107") for pair in pairs]
        return _Outcome(ok=True, reasons=reasons)

    def _mismatch(self, reason: Reason) -> _Outcome:
        """Return the outcome of a pair that does not resolve; a reason costs more steps."""
        self.budget.spend(_REASON_STEPS)
        return _Outcome(ok=False, reasons=[reason])

    # One pair of types.

    def _pair(self, reader: Schema, writer: Schema) -> _Walk:
        self.budget.spend(1)
        if isinstance(writer, Union):
            return (yield from self._from_union(reader, writer))
        if isinstance(reader, Union):
            return (yield from self._into_union(reader, writer))
        if isinstance(reader, Primitive) and isinstance(writer, Primitive):
            return self._primitives(reader, writer)
        if isinstance(reader, Array) and isinstance(writer, Array):
            return _inside("[]", (yield reader.items, writer.items))
        if isinstance(reader, MapType) and isinstance(writer, MapType):
            return _inside("{}", (yield reader.values, writer.values))
        if isinstance(reader, Record) and isinstance(writer, Record):
            return (yield from self._records(reader, writer))
        if isinstance(reader, EnumType) and isinstance(writer, EnumType):
            return self._enums(reader, writer)
        if isinstance(reader, Fixed) and isinstance(writer, Fixed):
            return self._fixeds(reader, writer)
        return self._mismatch(messages.type_mismatch(self.sides, reader, writer))

    def _primitives(self, reader: Primitive, writer: Primitive) -> _Outcome:
        if reader.kind == writer.kind or (reader.kind, writer.kind) in _PROMOTED:
            return self._meaning(reader, writer) if self.strict else _RESOLVES
        return self._mismatch(messages.type_mismatch(self.sides, reader, writer))

    def _meaning(self, reader: Primitive | Fixed, writer: Primitive | Fixed) -> _Outcome:
        problem = logical_problem(reader, writer)
        if problem is None:
            return _RESOLVES
        reason = messages.changed_meaning(self.sides, reader, writer, *problem)
        return _Outcome(ok=True, reasons=[reason])

    # Named types.

    def _name_reasons(self, reader: Named, writer: Named) -> list[Reason]:
        if simple_name(reader.name) == simple_name(writer.name) or writer.name in reader.aliases:
            return []
        self.budget.spend(_REASON_STEPS)
        return [messages.name_mismatch(self.sides, reader, writer)]

    def _fixeds(self, reader: Fixed, writer: Fixed) -> _Outcome:
        reasons = self._name_reasons(reader, writer)
        if reader.size != writer.size:
            reasons.append(messages.fixed_size_mismatch(self.sides, reader, writer))
        if reasons:
            return _Outcome(ok=False, reasons=reasons)
        return self._meaning(reader, writer) if self.strict else _RESOLVES

    def _enums(self, reader: EnumType, writer: EnumType) -> _Outcome:
        reasons = self._name_reasons(reader, writer)
        known = frozenset(reader.symbols)
        missing = [symbol for symbol in writer.symbols if symbol not in known]
        if missing and reader.default is None:
            reasons.append(messages.missing_symbols(self.sides, reader, writer, missing))
        return _Outcome(ok=False, reasons=reasons) if reasons else _RESOLVES

    def _records(self, reader: Record, writer: Record) -> _Walk:
        self.budget.spend(len(reader.fields))
        reasons = self._name_reasons(reader, writer)
        ok, inner = not reasons, list[tuple[str, _Outcome]]()
        theirs = writer.by_name
        feeds: dict[int, Field] = {}
        renamed: Set[str] | None = None
        for mine in reader.fields:
            if mine.shared and not mine.aliases and theirs.get(mine.name) is mine:
                first = feeds.setdefault(id(mine), mine)
                if self.strict and first is not mine:
                    reasons.append(messages.field_feeds_two(self.sides, first, mine, mine))
                continue
            matches = _matches(mine, theirs)
            if len(matches) > 1:
                outcome = self._mismatch(messages.ambiguous_field(self.sides, mine, matches[0]))
                self.ambiguous.append(outcome)
            elif not matches:
                if renamed is None and not mine.has_default:
                    renamed = _renamed(reader, writer)
                outcome = self._missing_field(mine, reader, writer, renamed or ())
            else:
                (other,) = matches
                left, right = mine.type, other.type
                if isinstance(left, Primitive) and isinstance(right, Primitive):
                    outcome = self._primitives(left, right)
                else:
                    outcome = yield left, right
                if self.strict:
                    first = feeds.setdefault(id(other), mine)
                    if first is not mine:
                        reasons.append(messages.field_feeds_two(self.sides, first, mine, other))
                    if mine.name != other.name and not _same_full_name(reader, writer):
                        reason = messages.unreached_alias(self.sides, mine, other, reader, writer)
                        reasons.append(reason)
            if outcome is not _RESOLVES:
                ok = ok and outcome.ok
                inner.append((mine.name, outcome))
        return _Outcome(ok, reasons, inner) if reasons or inner else _RESOLVES

    def _missing_field(
        self, mine: Field, reader: Record, writer: Record, renamed: Container[str]
    ) -> _Outcome:
        if not mine.has_default:
            old = rename_of(mine, reader, writer) if self.budget.guess() else None
            alias = mine.name in renamed
            reason = messages.missing_default(self.sides, mine, old, writer, renamed=alias)
            return self._mismatch(reason)
        problem = default_problem(mine) if self.strict else None
        if problem is None:
            return _RESOLVES
        reason = messages.unusable_default(self.sides, mine, writer, problem)
        return _Outcome(ok=True, reasons=[reason])

    # Unions.

    def _from_union(self, reader: Schema, writer: Union) -> _Walk:
        """Resolve each branch of the writer: the reader must take all of them."""
        ok, inner = True, list[tuple[str, _Outcome]]()
        for branch in writer.branches:
            if isinstance(reader, Union) and isinstance(branch, Primitive):
                outcome = self._primitive_into_union(reader, branch)
            else:
                outcome = yield reader, branch
            if outcome is not _RESOLVES:
                ok = ok and outcome.ok
                inner.append(("", outcome))
        return _Outcome(ok, [], inner) if inner else _RESOLVES

    def _primitive_into_union(self, reader: Union, writer: Primitive) -> _Outcome:
        """Do the same as `_into_union` for a primitive: no pair below it has to wait."""
        chosen = None
        for branch in reader.branches:
            if isinstance(branch, Primitive):
                if branch.kind == writer.kind:
                    return self._meaning(branch, writer) if self.strict else _RESOLVES
                if chosen is None and (branch.kind, writer.kind) in _PROMOTED:
                    chosen = branch
        self.budget.spend(len(reader.branches))
        if chosen is not None:
            return self._meaning(chosen, writer) if self.strict else _RESOLVES
        return self._no_branch(reader, writer, [])

    def _into_union(self, reader: Union, writer: Schema) -> _Walk:
        """Return the outcome of the first branch that resolves, as Java decides."""
        if isinstance(writer, Primitive):
            return self._primitive_into_union(reader, writer)
        self.budget.spend(len(reader.branches))
        tried: list[tuple[Schema, _Outcome]] = []
        for branch in reader.branches:
            outcome = yield branch, writer
            if outcome.ok:
                if not self.strict or isinstance(writer, (Array, MapType)):
                    return _inside("", outcome)
                return self._named_branch(reader, branch, writer, outcome)
            tried.append((branch, outcome))
        return self._no_branch(reader, writer, tried)

    def _named_branch(
        self, reader: Union, branch: Schema, writer: Schema, outcome: _Outcome
    ) -> _Outcome:
        """Report where Java resolves by simple name and decodes by full name."""
        assert isinstance(writer, Named)
        assert isinstance(branch, Named)
        reasons = []
        rivals = [
            other
            for other in reader.branches
            if isinstance(other, Named) and _shares_simple_name(other, writer)
        ]
        if len(rivals) > 1:
            reasons.append(messages.ambiguous_branch(self.sides, reader, writer, len(rivals)))
        elif not isinstance(writer, Record) and not _same_full_name(branch, writer):
            reasons.append(messages.moved_branch(self.sides, branch, writer))
        if not reasons:
            return _inside("", outcome)
        return _Outcome(ok=True, reasons=reasons, inner=_inside("", outcome).inner)

    def _no_branch(
        self, reader: Union, writer: Schema, tried: Sequence[tuple[Schema, _Outcome]]
    ) -> _Outcome:
        meant = _intended_branch(writer, tried)
        if meant is not None:
            return _Outcome(ok=False, inner=[("", meant)])
        return self._mismatch(messages.missing_branch(self.sides, reader, writer))


def _intended_branch(writer: Schema, tried: Sequence[tuple[Schema, _Outcome]]) -> _Outcome | None:
    """Return the outcome of the branch of the same kind and name, or None."""
    alike = [(branch, outcome) for branch, outcome in tried if branch.kind == writer.kind]
    if isinstance(writer, Named):
        for branch, outcome in alike:
            assert isinstance(branch, Named)
            same = simple_name(branch.name) == simple_name(writer.name)
            if same or writer.name in branch.aliases:
                return outcome
    return alike[0][1] if len(alike) == 1 else None


def _same_full_name(reader: Named, writer: Named) -> bool:
    """Return whether the full names are equal, as a decoder needs."""
    return reader.name == writer.name or writer.name in reader.aliases


def _shares_simple_name(branch: Named, writer: Named) -> bool:
    """Return whether the branch has the simple name of the writer's type, or an alias with it."""
    simple = simple_name(writer.name)
    return any(simple_name(name) == simple for name in (branch.name, *branch.aliases))


def _matches(mine: Field, theirs: Mapping[str, Field]) -> list[Field]:
    direct = theirs.get(mine.name)
    found = [] if direct is None else [direct]
    for alias in mine.aliases:
        other = theirs.get(alias)
        if other is not None:
            found.append(other)
    return found


def _renamed(reader: Record, writer: Record) -> Set[str]:
    """Return the aliases of fields that are new in the data."""
    known = reader.by_name
    return {alias for one in writer.fields if one.name not in known for alias in one.aliases}


def _inside(step: str, outcome: _Outcome) -> _Outcome:
    return outcome if outcome is _RESOLVES else _Outcome(outcome.ok, [], [(step, outcome)])


def _dotted(path: str, step: str) -> str:
    return f"{path}.{step}" if path and step else path or step
