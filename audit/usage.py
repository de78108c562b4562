"""The users of each version of a subject, from counted uses and the groups of a broker. Pure.

Rules:

- Producers and mirrors write a version, by the schema id in their messages. A consumer group reads
  with the version whose schema its class has. A group that reads dicts has no version of its own,
  and nobody knows which fields it needs.
- "Never seen" and "not counted" are different answers. Nothing is concluded from a time in which a
  tier did not count by schema, or of which counts are missing. So `since` is when everything known
  of the topics was counted.
- A group with committed offsets that reports nothing by schema is an unknown reader. So is one that
  has members and has reported nothing for a day of written messages.
- Message keys are not counted by schema, so the usage of a key's subject is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headworks.registry_client import SubjectVersion

DEPRECATED = "deprecated"  # the metadata property by which a version is deprecated, with the reason
_DAY_MS = 86_400_000
_CONSUMER = "consumer:"
LOADER = "hadoop"
# The way out, for an unknown reader of the user's own.
TO_BE_KNOWN = "a consumer of the SDK reports what it reads with audit=True"


@dataclass(frozen=True, slots=True)
class CountedUse:
    """A use of a schema: `messages` of `topic`, between two reports (milliseconds since 1970).

    `is_counted` is False if the tier does not count by schema; both ids are None then. `written` is
    the id in the messages (None: they had none). `read` is the id of the reader's own schema: 0 if
    its registry does not have it, None if there is none. `host` is empty once it has expired.
    """

    topic: str
    tier: str
    application: str
    host: str
    is_counted: bool
    written: int | None
    read: int | None
    messages: int
    first_sent: int
    last_sent: int


@dataclass(frozen=True, slots=True)
class KnownVersion:
    """A version of a subject: its number, its id, and why it is deprecated ("": it is not).

    `fingerprint` is that of its canonical text, by which it is found in another history; "" if the
    text cannot be read.
    """

    number: int
    id: int
    deprecated: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class ReadingGroup:
    """A group with committed offsets of a topic, and whether it has members."""

    topic: str
    group: str
    is_active: bool


@dataclass(frozen=True, slots=True)
class VersionUser:
    """A program that uses a version: its tier, application, hosts, messages, and last report."""

    tier: str
    application: str
    hosts: tuple[str, ...]
    topic: str
    messages: int
    last_used: int  # milliseconds since 1970 UTC

    @property
    def group(self) -> str | None:
        """Its consumer group, or None."""
        return self.tier.removeprefix(_CONSUMER) if self.tier.startswith(_CONSUMER) else None

    @property
    def name(self) -> str:
        """Its name in a sentence."""
        if self.group is not None:
            return f"group {self.group} ({self.application})"
        return self.application


@dataclass(frozen=True, slots=True)
class VersionUsage:
    """A version, and who writes it, and who reads with it; the last user first."""

    version: int
    id: int
    deprecated: str
    written_by: tuple[VersionUser, ...]
    read_by: tuple[VersionUser, ...]
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class SubjectUsage:
    """The usage of a subject's versions, newest first. Times are milliseconds since 1970 UTC.

    `since`: the time from which every use was counted (None: nothing was counted). `as_of`: the
    time up to which the counts are known. `unknown_readers` is None if no broker was asked.
    """

    subject: str
    topics: tuple[str, ...]
    since: int | None
    as_of: int
    versions: tuple[VersionUsage, ...]
    # Groups that read dicts, and those whose own schema is not registered in this subject.
    dict_readers: tuple[VersionUser, ...] = ()
    unregistered_readers: tuple[VersionUser, ...] = ()
    # Programs that count messages, but not by schema; and writers of other schemas or of none.
    uncounted: tuple[VersionUser, ...] = ()
    other_writers: tuple[VersionUser, ...] = ()
    unknown_readers: tuple[str, ...] | None = None

    def found(self, fingerprint: str) -> tuple[VersionUsage, ...]:
        """Return the usage of the versions with that fingerprint."""
        return tuple(one for one in self.versions if one.fingerprint == fingerprint)

    def version(self, number: int) -> VersionUsage | None:
        """Return the usage of a version, or None."""
        return next((one for one in self.versions if one.version == number), None)

    def as_dict(self, instant: Callable[[int], object] = lambda at: at) -> dict[str, Any]:
        """Return the usage as JSON, with each time as `instant` gives it."""
        found = _with_instants(asdict(self), instant)
        assert isinstance(found, dict)
        return found

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> SubjectUsage:
        """Read the result of `as_dict` with its times in milliseconds.

        Raises KeyError, TypeError, or ValueError for anything else.
        """
        users = {
            one.name: tuple(map(_user, found[one.name]))
            for one in fields(cls)
            if one.name in ("dict_readers", "unregistered_readers", "uncounted", "other_writers")
        }
        unknown = found["unknown_readers"]
        return cls(
            str(found["subject"]),
            tuple(map(str, found["topics"])),
            None if found["since"] is None else int(found["since"]),
            int(found["as_of"]),
            tuple(
                VersionUsage(
                    int(one["version"]),
                    int(one["id"]),
                    str(one["deprecated"]),
                    tuple(map(_user, one["written_by"])),
                    tuple(map(_user, one["read_by"])),
                    str(one["fingerprint"]),
                )
                for one in found["versions"]
            ),
            **users,
            unknown_readers=None if unknown is None else tuple(map(str, unknown)),
        )


def deprecations(marked: Mapping[int, str], history: Sequence[SubjectVersion]) -> dict[int, str]:
    """Return the deprecated versions of a history by number, each with the reason.

    `marked` are those that the settings of the subject mark.
    """
    found = {
        one.version: marked.get(one.version) or one.properties.get(DEPRECATED, "")
        for one in history
    }
    return {version: reason for version, reason in found.items() if reason}


def subject_usage(
    subject: str,
    versions: Sequence[KnownVersion],
    uses: Iterable[CountedUse],
    readers: Collection[ReadingGroup] | None,
    *,
    topics: Sequence[str],
    as_of: int,
    last_hole: int = 0,
) -> SubjectUsage:
    """Return the usage of `subject`, whose messages are in `topics`.

    `uses` are all uses of these topics, and `readers` all groups of the broker with offsets of
    them (None: no broker was asked). Counts from before `last_hole` are incomplete.
    """
    found = list(uses)
    ids = {one.id for one in versions}
    counted = [one for one in found if one.is_counted]
    writing = [one for one in counted if _writes(one)]
    reading = [one for one in counted if one.tier.startswith(_CONSUMER) or one.tier == LOADER]
    known = tuple(
        VersionUsage(
            one.number,
            one.id,
            one.deprecated,
            _users(use for use in writing if use.written == one.id),
            _users(use for use in reading if use.read == one.id),
            one.fingerprint,
        )
        for one in sorted(versions, key=lambda one: one.number, reverse=True)
    )
    return SubjectUsage(
        subject,
        tuple(topics),
        _since(found, last_hole),
        as_of,
        known,
        _users(use for use in reading if use.read is None),
        _users(use for use in reading if use.read is not None and use.read not in ids),
        _users(use for use in found if not use.is_counted),
        _users(use for use in writing if use.written not in ids),
        None if readers is None else _unknown(readers, found),
    )


def _writes(use: CountedUse) -> bool:
    return not use.tier.startswith(_CONSUMER) and use.tier != LOADER


def _since(uses: Sequence[CountedUse], last_hole: int) -> int | None:
    """Return the time from which all uses were counted by schema."""
    counted = [use.first_sent for use in uses if use.is_counted]
    if not counted:
        return None
    return max([min(counted), last_hole, *(use.last_sent for use in uses if not use.is_counted)])


def _users(uses: Iterable[CountedUse]) -> tuple[VersionUser, ...]:
    together: defaultdict[tuple[str, str, str], list[CountedUse]] = defaultdict(list)
    for use in uses:
        together[use.tier, use.application, use.topic].append(use)
    found = [
        VersionUser(
            tier,
            application,
            tuple(sorted({use.host for use in group if use.host})),
            topic,
            sum(use.messages for use in group),
            max(use.last_sent for use in group),
        )
        for (tier, application, topic), group in together.items()
    ]
    return tuple(sorted(found, key=lambda user: (-user.last_used, user.tier, user.application)))


def _unknown(readers: Iterable[ReadingGroup], uses: Sequence[CountedUse]) -> tuple[str, ...]:
    last_read: dict[tuple[str, str], int] = {}
    last_written: dict[str, int] = {}
    for use in uses:
        if use.is_counted and use.tier.startswith(_CONSUMER):
            key = (use.topic, use.tier.removeprefix(_CONSUMER))
            last_read[key] = max(last_read.get(key, 0), use.last_sent)
        elif use.is_counted and _writes(use):
            last_written[use.topic] = max(last_written.get(use.topic, 0), use.last_sent)
    found = set()
    for one in readers:
        seen = last_read.get((one.topic, one.group))
        written = last_written.get(one.topic, 0)
        if seen is None or (one.is_active and seen < written - _DAY_MS):
            found.add(one.group)
    return tuple(sorted(found))


def _user(found: Mapping[str, Any]) -> VersionUser:
    return VersionUser(
        str(found["tier"]),
        str(found["application"]),
        tuple(map(str, found["hosts"])),
        str(found["topic"]),
        int(found["messages"]),
        int(found["last_used"]),
    )


def _with_instants(value: object, instant: Callable[[int], object]) -> object:
    if isinstance(value, dict):
        return {
            key: instant(item)
            if key in ("since", "as_of", "last_used") and isinstance(item, int)
            else _with_instants(item, instant)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_with_instants(item, instant) for item in value]
    return value
