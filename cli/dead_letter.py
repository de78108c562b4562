"""`headworks dead-letter`: list the dead letters of a topic, show one, and send them back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.broker_address import bootstrap_servers, topics_metadata
from headworks._cli.confirmation import YesOption, confirm
from headworks._cli.option_groups import expand_groups
from headworks._cli.options import BootstrapOption, RegistryOption
from headworks._cli.output import Format, FormatOption, print_json, print_status, print_table
from headworks._cli.times import format_instant, parse_instant
from headworks._kafka.dead_letters import DEAD_LETTER_SUFFIX
from headworks._settings import resolve
from headworks.errors import FindingsError, UsageError

if TYPE_CHECKING:
    from consumer_sdk._dead_letters.letter import DeadLetter
    from consumer_sdk._dead_letters.redrive import Redrive, RedriveReport
    from consumer_sdk._dead_letters.selection import LetterSelection

dead_letter_app = typer.Typer(
    no_args_is_help=True, help="List the dead letters of topics, show one, and send them back."
)
Topic = Annotated[str, typer.Argument(help="the topic whose messages died")]
LetterTopic = Annotated[
    str | None,
    typer.Option("--dead-letter-topic", help="topic of the letters (default: TOPIC.dead-letter)"),
]


@dataclass(frozen=True, slots=True)
class LetterOptions:
    """Which letters of the dead-letter topic are meant."""

    dead_letter_topic: LetterTopic = None
    group: Annotated[
        str | None, typer.Option(help="letters that this group gave up (default: any group)")
    ] = None
    exception: Annotated[
        str | None, typer.Option(help="letters of this exception class, such as UnknownCustomer")
    ] = None
    reason: Annotated[str | None, typer.Option(help="letters whose reason holds this text")] = None
    key: Annotated[str | None, typer.Option(help="letters with this key, as text")] = None
    since: Annotated[
        str | None, typer.Option(help="letters with this record timestamp or a later one")
    ] = None
    until: Annotated[str | None, typer.Option(help="letters with an earlier record timestamp")] = (
        None
    )

    def source(self, topic: str) -> str:
        """Return the dead-letter topic."""
        return self.dead_letter_topic or f"{topic}{DEAD_LETTER_SUFFIX}"

    def selection(self, topic: str, at: str | None = None) -> LetterSelection:
        """Return the selection. Raises UsageError for a wrong time or place."""
        from consumer_sdk._dead_letters.selection import LetterSelection

        return LetterSelection(
            topic=topic,
            group=self.group,
            exception=self.exception,
            reason=self.reason,
            key=None if self.key is None else self.key.encode(),
            since=None if self.since is None else parse_instant(self.since, "--since"),
            until=None if self.until is None else parse_instant(self.until, "--until"),
            at=None if at is None else _place(at),
        )


@dataclass(frozen=True, slots=True)
class SendingOptions:
    """How the chosen letters are sent back."""

    at: Annotated[
        str | None, typer.Option("--at", metavar="PARTITION:OFFSET", help="only this letter")
    ] = None
    to_group: Annotated[
        str | None,
        typer.Option("--to-group", help="let only this group read them (default: all readers)"),
    ] = None
    max_redrives: Annotated[
        int, typer.Option("--max-redrives", min=1, help="leave letters redriven this many times")
    ] = 3
    maximum: Annotated[
        int | None, typer.Option("--max", min=1, help="send at most this many letters")
    ] = None
    name: Annotated[
        str | None,
        typer.Option("--name", help="continue the redrive of this name (default: the selection's)"),
    ] = None


@dataclass(slots=True)
class _Summary:
    """The letters of one line of the list."""

    letters: int = 0
    redriven: int = 0
    first: str = ""
    last: str = ""
    reason: str = ""

    def add(self, letter: DeadLetter) -> None:
        """Count a letter."""
        self.letters += 1
        self.redriven += letter.redrives > 0
        self.last, self.reason = f"{letter.partition}:{letter.offset}", letter.reason
        self.first = self.first or self.last

    @property
    def cells(self) -> tuple[object, ...]:
        """The last columns of the line."""
        return self.letters, self.redriven, self.first, self.last, self.reason


@dead_letter_app.command("list")
@expand_groups
def list_letters(
    letters: LetterOptions,
    topic: Annotated[
        str | None, typer.Argument(help="the topic whose messages died (default: all topics)")
    ] = None,
    bootstrap: BootstrapOption = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Count the dead letters by the group that gave them up and by the exception."""
    address = bootstrap_servers(bootstrap)
    known = topics_metadata(address)
    if topic is None:
        suffix = DEAD_LETTER_SUFFIX
        topics = sorted(name.removesuffix(suffix) for name in known if name.endswith(suffix))
    else:
        topics = [topic]
    rows = []
    for one in topics:
        found: dict[tuple[str, str], _Summary] = {}
        for letter in _letters(address, one, letters, None):
            found.setdefault((letter.group or "-", letter.exception or "-"), _Summary()).add(letter)
        rows += [(one, *names, *summary.cells) for names, summary in sorted(found.items())]
    header = ("topic", "group", "exception", "letters", "redriven", "first", "last", "last reason")
    if format is Format.JSON:
        print_json([dict(zip(header, row, strict=True)) for row in rows])
    elif rows:
        print_table(header, rows)
    else:
        print_status("there are no such dead letters")


@dead_letter_app.command()
@expand_groups
def show(
    topic: Topic,
    place: Annotated[str, typer.Argument(metavar="PARTITION:OFFSET", help="see the list")],
    letters: LetterOptions,
    bootstrap: BootstrapOption = None,
    registry: RegistryOption = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Show one dead letter: its reason, its headers, and its event."""
    address = bootstrap_servers(bootstrap)
    found = next(_letters(address, topic, letters, place), None)
    if found is None:
        raise UsageError(
            f"{letters.source(topic)} holds no dead letter of {topic} at {place}",
            fix="see `headworks dead-letter list`",
        )
    shown = {
        "place": f"{found.partition}:{found.offset}",
        "topic": found.topic,
        "origin": f"{found.origin_partition}:{found.origin_offset}",
        "group": found.group or None,
        "exception": found.exception,
        "reason": found.reason,
        "died_at": None if found.died_at is None else format_instant(found.died_at),
        "timestamp": format_instant(found.timestamp),
        "redrives": found.redrives,
        "key": None if found.key is None else found.key.decode(errors="replace"),
        "headers": {name: (value or b"").decode(errors="replace") for name, value in found.headers},
        "event": _event(found, resolve("registry", registry)),
    }
    if format is Format.JSON:
        print_json(shown)
    else:
        for name, value in shown.items():
            print(f"{name:<10} {'-' if value is None else value}")


@dead_letter_app.command()
@expand_groups
def redrive(
    topic: Topic,
    letters: LetterOptions,
    sending: SendingOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show what would be sent, and send nothing")
    ] = False,
    yes: YesOption = False,
    bootstrap: BootstrapOption = None,
    registry: RegistryOption = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Send dead letters back, to their topic or to one group alone; exit 1 if some are left."""
    from consumer_sdk._audit_tier import default_state_dir
    from consumer_sdk._dead_letters.redrive import Redrive, RedriveOptions, check_target
    from headworks._kafka.client_properties import client_properties

    check_target(sending.to_group, topic)
    address = bootstrap_servers(bootstrap)
    topics_metadata(address)  # raises soon, with the reason, if no broker answers
    options = RedriveOptions(
        source=letters.source(topic),
        selection=letters.selection(topic, sending.at),
        to_group=sending.to_group,
        max_redrives=sending.max_redrives,
        maximum=sending.maximum,
        name=sending.name,
    )
    client = client_properties(address)
    found = Redrive(options, client, resolve("registry", registry), default_state_dir())
    where = topic if sending.to_group is None else f"group {sending.to_group} alone"
    if dry_run or not yes:
        report = found.preview()
        _print_report(report, options.group, format, dry_run=True)
        if dry_run or not report.sent:
            return
        count = _letters_text(sum(report.sent.values()))
        confirm(f"send {count} to {where}?")
    with _continued(found):
        report = found.run()
    _print_report(report, options.group, format, dry_run=False)
    if sending.to_group is not None and report.sent and format is Format.TEXT:
        print_status(f"members of {sending.to_group} read them that have the option redriven=True")
    if report.left:
        raise FindingsError(
            f"{_letters_text(sum(report.left.values()))} stayed in {options.source}",
            fix="look at them with `headworks dead-letter show`",
        )


@contextmanager
def _continued(redrive: Redrive) -> Iterator[None]:
    """Print what was sent before an error or an interruption."""
    try:
        yield
    except BaseException:
        sent = sum(redrive.report.sent.values())
        print_status(f"{_letters_text(sent)} sent; the same command continues")
        raise


def _print_report(report: RedriveReport, group: str, format: Format, *, dry_run: bool) -> None:
    if format is Format.JSON:
        print_json({"sent": report.sent, "left": report.left, "group": group, "dry_run": dry_run})
        return
    verb = "would be sent" if dry_run else "sent"
    for topic, count in sorted(report.sent.items()):
        print_status(f"{_letters_text(count)} {verb} to {topic}")
    for reason, count in sorted(report.left.items()):
        print_status(f"{_letters_text(count)} stay: they {reason}")
    if not report.sent:
        print_status(
            f"no letter {verb}: there is none that this redrive, {group}, has not sent before"
            " (--name NAME starts another, which sends all of them again)"
        )


def _letters(
    address: str, topic: str, options: LetterOptions, at: str | None
) -> Iterator[DeadLetter]:
    """Yield the letters of a topic; none if its dead-letter topic does not exist."""
    from consumer_sdk._dead_letters.letter import letter_of
    from consumer_sdk._dead_letters.reading import LetterReader
    from headworks._kafka.client_properties import client_properties

    selection = options.selection(topic, at)
    source = options.source(topic)
    with LetterReader(client_properties(address), source, "headworks-dead-letter-list") as reader:
        for batch in reader.batches(selection.bounded(reader.bounds())):
            found = (letter_of(message) for message in batch)
            yield from (one for one in found if one is not None and selection.includes(one))


def _event(letter: DeadLetter, registry: str) -> object:
    """Return the event of a letter as JSON values, or why it has none."""
    import json

    from consumer_sdk import Decoder
    from consumer_sdk._jsonable import to_jsonable
    from consumer_sdk._untyped_events import tagged
    from headworks.errors import HeadworksError
    from headworks.registry_client import RegistryClient

    if letter.value is None:
        return None
    try:
        event, _ = Decoder(RegistryClient(registry), letter.topic).decode(letter.value)
    except HeadworksError as error:
        return f"{len(letter.value)} bytes that do not decode: {error.message}"
    return json.loads(json.dumps(tagged(event), default=to_jsonable))


def _place(text: str) -> tuple[int, int]:
    partition, sign, offset = text.partition(":")
    if not sign or not partition.isdecimal() or not offset.isdecimal():
        raise UsageError(f"{text!r} is not a place", fix="give PARTITION:OFFSET, such as 0:17")
    return int(partition), int(offset)


def _letters_text(number: int) -> str:
    return "1 dead letter" if number == 1 else f"{number:,} dead letters"
