"""The broker's files, damaged: logs, their small files, folders, the store, and the lists beside.

The ledger of a partition has each offset with its value, and each batch as it lay on disk. A batch
whose CRC and records still lie somewhere in the folder counts as whole: in the end it is served.

A message with acks=1 that was not flushed may vanish with its bytes: a file that ends exactly where
it was flushed looks like one after a power cut.
"""

from __future__ import annotations

import re
import shlex
import shutil
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from typer.testing import CliRunner

from headworks._broker.log.dump import DumpedBatch, dump_segment, segments_of
from headworks._broker.log.recovery_point import RecoveryPoint
from headworks._cli.main import command_line
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.records import Record, encode_batch, iter_batches, iter_records
from headworks.errors import CorruptError
from tests.broker.wire import Wire, fetch, fetched, kind, produce, produced
from tests.soak.damage_kinds import KINDS
from tests.soak.local_broker import LocalBroker
from tests.soak.process import Broker
from tests.waiting import until

Partition = tuple[str, int]
_PARTITIONS: tuple[Partition, ...] = (("t", 0), ("t", 1), ("k", 0), ("other", 0))
_CONFIGS = {"segment.bytes": "4000"}
_OPTIONS = ("--segment-bytes", "4000", "--compaction-seconds", "0.3", "--no-auto-create")
_FROM_CRC = 17  # of a batch: what nobody can rebuild
_DELETED = 25  # records of t-1, by a client
_ROUNDS = 6  # of damage found and mended, in a case
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Template:
    """A data folder, and what it holds."""

    data: Path
    values: dict[Partition, dict[int, bytes]]  # by offset, as a broker served them
    starts: dict[Partition, int]  # log start offsets
    batches: dict[Partition, dict[int, bytes]]  # by base offset, as they lie on disk


@dataclass(slots=True)
class _Reading:
    """The messages that a client reads of a partition."""

    values: dict[int, bytes] = field(default_factory=dict)
    start: int = 0
    error: str = ""  # why it does not go on


class BrokerSite:
    """A broker's data folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._templates: list[Template] = []

    def prepare(self) -> None:
        """Write a folder and stop the broker; write more to it, and kill the broker."""
        broker = Broker(self._folder / "made", *_OPTIONS)
        broker.start()
        with Wire(broker.address) as wire:
            _create(wire)
            sent = _produce(wire, Random(1), 120)
            compacted = broker.logs / "k-0" / "compacted"
            until(compacted.exists, _SECONDS)
            time.sleep(1.0)
        broker.stop()
        self._keep(broker, sent, "stopped")
        broker.start()
        with Wire(broker.address) as wire:
            sent += _produce(wire, Random(2), 10)
            _produce(wire, Random(3), 3, acks=1)
        broker.kill()
        self._keep(broker, sent, "killed")

    def _keep(self, broker: Broker, sent: list[tuple[Partition, int, bytes]], name: str) -> None:
        data = self._folder / name
        shutil.copytree(broker.folder / "broker", data)
        copy = LocalBroker(self._folder / f"read-{name}", _CONFIGS)
        shutil.copytree(data, copy.folder / "broker")
        copy.start()
        read = {partition: _read(copy, partition) for partition in _PARTITIONS}
        copy.close()
        for partition, offset, value in sent:
            kept = read[partition].values.get(offset)
            assert partition[0] == "k" or offset < read[partition].start or kept == value
        self._templates.append(
            Template(
                data,
                {partition: one.values for partition, one in read.items()},
                {partition: one.start for partition, one in read.items()},
                {partition: dict(_batches(data, partition)) for partition in _PARTITIONS},
            )
        )

    def run(self, folder: Path, random: Random) -> tuple[str, str, list[str]]:
        """Run a case; see `Site`."""
        template = random.choice(self._templates)
        broker = LocalBroker(folder, _CONFIGS)
        data = folder / "broker"
        shutil.copytree(template.data, data)
        damage = None
        while damage is None:
            name, harm = random.choice(list(KINDS.items()))
            damage = harm(data, random)
        case = _Case(broker, template, _whole(data, template))
        try:
            ending = case.follow()
        finally:
            broker.close()
        told = f"{template.data.name}, {name}"
        if not case.wrong:
            shutil.rmtree(folder)
        return told, ending, [f"{damage}: {line}" for line in case.wrong]


def _whole(data: Path, template: Template) -> dict[Partition, set[int]]:
    """The offsets whose batch is still whole somewhere in the folder of its partition."""
    found: dict[Partition, set[int]] = {}
    for partition, batches in template.batches.items():
        before = _folder(template.data, partition)
        files = []  # contents, and from which byte on a batch must be there
        for path in _folder(data, partition).glob("*.log"):
            content, same = path.read_bytes(), before / path.name
            in_place = same.exists() and same.stat().st_size == len(content)
            # compaction leaves gaps, so that nothing tells an offset but the header itself
            rebuilt = in_place and partition[0] != "k"
            files.append((content, _FROM_CRC if rebuilt else 0))
        flushed = _flushed(template.data, partition)
        found[partition] = {
            record.offset
            for base, raw in batches.items()
            # nor does anything tell where the log went on behind what was surely flushed
            if any(raw[start if base < flushed else 0 :] in file for file, start in files)
            for batch in iter_batches(raw)
            for record in iter_records(raw, batch)
        }
    return found


class _Case:
    """One damaged folder, until everything that is whole is served again."""

    def __init__(
        self, broker: LocalBroker, template: Template, whole: dict[Partition, set[int]]
    ) -> None:
        self.wrong: list[str] = []
        self._broker = broker
        self._template = template
        self._whole = whole
        self._told: set[Partition] = set()  # the partitions of which damage was reported

    def follow(self) -> str:
        """Start the broker, and do as it says, until it serves all partitions."""
        mended = False
        for _ in range(_ROUNDS):
            refused = self._broker.start()
            if refused:
                if not self._mend(refused):
                    self.wrong.append(f"no way out: {refused}")
                    return "wrong"
                mended = True
                continue
            readings = {one: _read(self._broker, one) for one in _PARTITIONS}
            words = self._broker.new_words()
            bad = [one for one, reading in readings.items() if reading.error]
            deadline = time.monotonic() + _SECONDS  # for the scrubber, if only clients saw it
            while not all(_fix_is_named(words, one) for one in bad) and time.monotonic() < deadline:
                time.sleep(0.05)
                words += self._broker.new_words()
            self._told |= {one for one in _PARTITIONS if _is_named(words, one) and "cut " in words}
            if not bad:
                self._judge(readings, words)
                self._broker.stop()
                if "Traceback" in self._broker.words:
                    self.wrong.append("a traceback")
                return "wrong" if self.wrong else "repaired" if mended else "served"
            self._broker.stop()
            mended = True
            for one in bad:
                self._judge_values(one, readings[one])
                lines = [line for line in words.splitlines() if _fix_is_named(line, one)]
                if not self._mend("\n".join(lines)):
                    self.wrong.append(f"{one}: {readings[one].error}: {lines}")
                    return "wrong"
                self._told.add(one)
        self.wrong.append(f"not mended in {_ROUNDS} rounds: {self._broker.words[-3000:]}")
        return "wrong"

    def _mend(self, words: str) -> bool:
        """Follow the fix in these words."""
        done = False
        data = self._broker.folder / "broker"
        for fix in re.findall(r"fix: (.*)", words):
            if "move it away" in fix and "salvage" not in fix and "coordination.sqlite" in words:
                for path in data.glob("coordination.sqlite*"):
                    path.rename(data / f"moved-{path.name}")
            elif ("delete it" in fix or "delete the file" in fix) and (
                named := re.search(r"(/\S+) (is damaged|names)", words)
            ):
                Path(named[1]).unlink()
                done = True
                continue
            commands = re.findall(r"`(headworks [^`]*)`", fix)
            for command in commands[-1:]:
                done = self._command(command) or done
        return done

    def _command(self, command: str) -> bool:
        arguments = shlex.split(command)[1:]
        if arguments[0] == "broker":
            arguments += ["--data-dir", str(self._broker.folder)]
        done = CliRunner().invoke(command_line(arguments[0]), arguments)
        if done.exit_code:
            self.wrong.append(f"`{command}` failed: {done.output} {done.exception}")
        return not done.exit_code

    def _judge(self, readings: dict[Partition, _Reading], words: str) -> None:
        for one, reading in readings.items():
            self._judge_values(one, reading)
            missing = self._template.values[one].keys() - reading.values.keys()
            if missing & self._whole[one] and not _cut_is_kept(words, one):
                intact = sorted(missing & self._whole[one])
                self.wrong.append(f"{one}: whole, and not served: {intact[:9]} of {len(intact)}")
            flushed = _flushed(self._template.data, one)
            if one not in self._told and any(offset < flushed for offset in missing):
                self.wrong.append(f"{one}: silently lost: {sorted(missing)[:9]} of {len(missing)}")

    def _judge_values(self, one: Partition, reading: _Reading) -> None:
        known = self._template.values[one]
        for offset, value in reading.values.items():
            if offset not in known and offset >= self._template.starts[one]:
                self.wrong.append(f"{one}: offset {offset} is served, and was never written")
            elif known.get(offset, value) != value:
                self.wrong.append(f"{one}: offset {offset} has another value")


def _names(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"


def _is_named(words: str, partition: Partition) -> bool:
    return re.search(rf"\b(?<!-){_names(partition)}\b", words) is not None


def _fix_is_named(words: str, partition: Partition) -> bool:
    return re.search(rf"\b(?<!-){_names(partition)}[ :/].* fix: ", words) is not None


def _cut_is_kept(words: str, partition: Partition) -> bool:
    """Whether a recovery cut the end of this log and kept it: it was not surely flushed."""
    return re.search(rf"partition {_names(partition)}: cut .* kept in ", words) is not None


def _folder(data: Path, partition: Partition) -> Path:
    return data / "logs" / _names(partition)


def _flushed(data: Path, partition: Partition) -> int:
    """The recovery point of a partition: messages with acks=all lie below it."""
    flushed = RecoveryPoint.load(_folder(data, partition)).flushed
    assert flushed is not None
    return flushed.offset


def _batches(data: Path, partition: Partition) -> Iterator[tuple[int, bytes]]:
    for path in segments_of(_folder(data, partition)):
        for item in dump_segment(path):
            assert isinstance(item, DumpedBatch), (path, item)
            at = item.batch
            with item.segment.open("rb") as file:
                file.seek(at.position)
                yield at.base_offset, file.read(at.size)


def _create(wire: Wire) -> None:
    creatable = kind(ApiKey.CREATE_TOPICS, 4, "request", "CreatableTopic")
    config = kind(ApiKey.CREATE_TOPICS, 4, "request", "CreatableTopicConfig")
    compact = (
        config(name="cleanup.policy", value="compact"),
        config(name="min.cleanable.dirty.ratio", value="0.01"),
    )
    topics = tuple(
        creatable(
            name=name,
            num_partitions=sum(topic == name for topic, _ in _PARTITIONS),
            replication_factor=1,
            assignments=(),
            configs=compact if name == "k" else (),
        )
        for name in ("t", "k", "other")
    )
    assert all(
        not one.error_code for one in wire.ask(ApiKey.CREATE_TOPICS, 4, topics=topics).topics
    )


def _produce(
    wire: Wire, random: Random, batches: int, *, acks: int = -1
) -> list[tuple[Partition, int, bytes]]:
    """Send batches to all partitions, and delete some records; what was acknowledged where."""
    sent = []
    for number in range(batches):
        for topic, index in _PARTITIONS:
            values = [random.randbytes(random.randint(5, 120)) for _ in range(random.randint(1, 4))]
            key = b"key-%d" % (number % 7)
            records = [Record(i, 1000 + i, key, value, ()) for i, value in enumerate(values)]
            wire.send(ApiKey.PRODUCE, 7, produce(topic, index, encode_batch(records), acks=acks))
            error, base = produced(wire.receive()[1], topic)
            assert not error
            sent += [((topic, index), base + i, value) for i, value in enumerate(values)]
    if batches > _DELETED:
        body = struct.pack(">ih", 1, 1) + b"t" + struct.pack(">iiqi", 1, 1, _DELETED, 5000)
        wire.send(ApiKey.DELETE_RECORDS, 1, body)
        wire.receive()
    return sent


def _read(broker: LocalBroker, partition: Partition) -> _Reading:
    """Read a partition from its start to its end, as a client that checks CRCs."""
    reading = _Reading()
    with Wire(broker.address) as wire:
        body = struct.pack(">ii", -1, 1) + struct.pack(">h", len(partition[0]))
        body += partition[0].encode() + struct.pack(">iiq", 1, partition[1], -2)
        wire.send(ApiKey.LIST_OFFSETS, 1, body)
        error, _, offset = struct.unpack(">hqq", wire.receive()[1][-18:])
        if error:
            reading.error = f"error {error}"
            return reading
        reading.start = offset
        while True:
            wire.send(ApiKey.FETCH, 11, fetch(*partition, offset))
            error, end, data = fetched(wire.receive()[1])
            if error:
                reading.error = f"error {error} at offset {offset}"
                return reading
            if offset >= end:
                return reading
            before = offset
            try:
                for batch in iter_batches(data):
                    for record in iter_records(data, batch):
                        if record.offset >= offset:
                            reading.values[record.offset] = bytes(record.value or b"")
                    offset = batch.last_offset + 1
            except CorruptError as problem:
                reading.error = f"offset {offset}: {problem}"
                return reading
            if offset == before:
                offset = end  # a gap up to the end
