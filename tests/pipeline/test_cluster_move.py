"""A running pipeline moves to another cluster, with messages in flight: each is in a table once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from hadoop_loader._fetch.kafka_log import KafkaLog
from hadoop_loader._operations import log_tails
from hadoop_loader._operations.move_groups import MovedGroups
from headworks._cli.main import command_line
from headworks._server import child_process
from headworks._server.child_process import Service
from headworks.errors import FindingsError
from headworks.groups import Groups, TopicPartition
from tests.interop.in_place import start_in_place
from tests.interop.programs import repeated_or_missing
from tests.mirror.messages import Sent, create, produce
from tests.pipeline.moving import PARTITIONS, Pipeline, Traffic
from tests.waiting import until

pytestmark = pytest.mark.e2e

_numbers = itertools.count()


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The new cluster."""
    with start_in_place(tmp_path_factory.mktemp("other")) as running:
        yield running


@pytest.fixture
def pipeline(
    broker: Service, other: Service, registry: Service, tmp_path: Path
) -> Iterator[Pipeline]:
    made = Pipeline(broker.address, other.address, registry.url, tmp_path / "warehouse")
    yield made
    made.traffic.end()


def test_producers_switch_while_the_old_cluster_still_has_messages(pipeline: Pipeline) -> None:
    group = f"readers-{pipeline.topic}"
    pipeline.join(group)
    pipeline.sent(200)
    pipeline.load(pipeline.old)
    read = pipeline.read(pipeline.old, group, until_n=150)
    pipeline.sent(200)  # the old cluster has them, and no table
    pipeline.traffic.address = pipeline.new
    until(lambda: pipeline.old in pipeline.traffic.left)
    pipeline.sent(100)
    with pytest.raises(FindingsError, match="of the old cluster are not loaded"):
        pipeline.move("beginning")
    assert pipeline.load(pipeline.old) > 100
    with pytest.raises(FindingsError, match=f"{group} has .* unread messages in {pipeline.topic}"):
        pipeline.move("beginning", group)
    read += pipeline.read(pipeline.old, group)
    moved = pipeline.move("beginning", group)
    assert moved.groups == {group: {pipeline.topic: dict.fromkeys(range(PARTITIONS), 0)}}
    assert pipeline.load(pipeline.new) > 0
    pipeline.sent(100)
    pipeline.traffic.end()
    pipeline.load(pipeline.new)
    assert repeated_or_missing(pipeline.loaded(), pipeline.traffic.sent) == ""
    read += pipeline.read(pipeline.new, group)
    assert repeated_or_missing(read, pipeline.traffic.sent) == ""


def test_a_mirror_copies_until_the_switch(pipeline: Pipeline, tmp_path: Path) -> None:
    given = ["mirror", "--from", pipeline.old, "--to", pipeline.new, "--topics", pipeline.topic]
    given += ["--name", pipeline.topic, "--commit-every", "0.3", "--data-dir", str(tmp_path)]
    slow, fast = f"slow-{pipeline.topic}", f"fast-{pipeline.topic}"
    pipeline.join(slow, fast)
    with child_process.start(given, log_file=tmp_path / "mirror.log"):
        pipeline.sent(200)
        pipeline.load(pipeline.old)
        read = {slow: pipeline.read(pipeline.old, slow, until_n=150)}
        pipeline.sent(200)
        pipeline.traffic.end()
        pipeline.load(pipeline.old)
        read[fast] = pipeline.read(pipeline.old, fast)
        copied = KafkaLog({"bootstrap.servers": pipeline.new})
        topics, wanted = {pipeline.topic: range(PARTITIONS)}, len(pipeline.traffic.sent)
        until(
            lambda: (
                wanted <= sum(m.high for m in copied.watermarks(topics)[pipeline.topic].values())
            )
        )
    assert pipeline.move("end", f"(slow|fast)-{pipeline.topic}").groups.keys() == {slow, fast}
    after = Traffic(pipeline.topic, pipeline.traffic.head, pipeline.new)
    before, pipeline.traffic = pipeline.traffic.sent, after
    after.start()
    pipeline.sent(100)
    after.end()
    pipeline.load(pipeline.new)
    assert repeated_or_missing(pipeline.loaded(), before | after.sent) == ""
    for group, numbers in read.items():
        numbers += pipeline.read(pipeline.new, group)
        assert repeated_or_missing(numbers, before | after.sent) == "", group


def test_a_group_stays_where_the_mirror_has_not_copied_all(pipeline: Pipeline) -> None:
    group = f"readers-{pipeline.topic}"
    pipeline.join(group)
    pipeline.sent(60)
    pipeline.traffic.end()
    pipeline.load(pipeline.old)
    pipeline.read(pipeline.old, group)
    stray = Producer({"bootstrap.servers": pipeline.new})  # other messages, as an early producer's
    stray.produce(pipeline.topic, b"another one", partition=0)
    assert stray.flush(30) == 0
    with pytest.raises(FindingsError, match=f"the last messages of {pipeline.topic}.0. are not"):
        pipeline.move("end", group)
    with Groups(pipeline.new) as groups:
        assert group not in {one.name for one in groups.listed()}


def test_a_group_that_reads_the_new_cluster_already_stays(pipeline: Pipeline) -> None:
    group = f"readers-{pipeline.topic}"
    pipeline.join(group)
    pipeline.sent(60)
    pipeline.traffic.end()
    pipeline.load(pipeline.old)
    pipeline.read(pipeline.old, group)
    pipeline.traffic = Traffic(pipeline.topic, pipeline.traffic.head, pipeline.new)
    pipeline.traffic.start()
    pipeline.sent(30)
    pipeline.traffic.end()
    with Groups(pipeline.new) as groups:
        groups.move(group, {TopicPartition(pipeline.topic, 1): 5})
    reason = f"{group} has its own offset in {pipeline.topic}.1."
    with pytest.raises(FindingsError, match=reason) as stays:
        pipeline.move("beginning", group)
    assert stays.value.fix is not None
    assert stays.value.fix.endswith(f"`headworks group delete {group} --bootstrap {pipeline.new}`")
    given = ["group", "delete", group, "--bootstrap", pipeline.new, "--yes"]
    assert CliRunner().invoke(command_line("group"), given).exit_code == 0
    assert group in pipeline.move("beginning", group).groups


class Transactions:
    """A topic on two clusters, written in transactions, and a group that has read the old one."""

    def __init__(self, old: str, new: str, *, partitions: int = 1) -> None:
        self.old, self.new = old, new
        self.topic = f"transactions{next(_numbers)}"
        create(old, self.topic, 1)
        create(new, self.topic, partitions)

    def send(self, address: str, numbers: range, *, commit: bool = True) -> None:
        """Write the numbers in a transaction, which ends in a marker."""
        given: dict[str, Any] = {"bootstrap.servers": address, "transactional.id": self.topic}
        producer = Producer(given)
        producer.init_transactions(60)
        producer.begin_transaction()
        for n in numbers:
            producer.produce(self.topic, str(n), partition=0, timestamp=1000 + n)
        assert producer.flush(60) == 0
        if commit:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)

    def copy(self, numbers: range) -> None:
        """Write the numbers to the new cluster, as a mirror does."""
        sent = [Sent(0, None, str(n).encode(), 1000 + n) for n in numbers]
        produce(self.new, self.topic, sent)

    def planned(self) -> Mapping[TopicPartition, int]:
        """Return where the group continues, which has read all of the old cluster."""
        place, log = TopicPartition(self.topic, 0), KafkaLog({"bootstrap.servers": self.old})
        with Groups(self.old) as groups:
            groups.move(self.topic, {place: log.watermarks({self.topic: [0]})[self.topic][0].high})
        return MovedGroups(self.old, self.new, self.topic).plan(copied=True)[self.topic]


def test_the_last_message_before_a_transactions_end_must_be_copied(
    broker: Service, other: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = Transactions(broker.address, other.address)
    moved.send(moved.old, range(20))
    moved.send(moved.old, range(100, 130), commit=False)
    moved.copy(range(15))
    with pytest.raises(FindingsError, match=r"the last messages of .* are not the same"):
        moved.planned()
    moved.copy(range(15, 20))
    assert moved.planned() == {TopicPartition(moved.topic, 0): 20}
    monkeypatch.setattr(log_tails, "MOST_LOOKED_BACK", 25)
    with pytest.raises(FindingsError, match=r"offsets of .* hold no message"):
        moved.planned()


def test_a_partition_of_aborted_messages_has_nothing_to_compare(
    broker: Service, other: Service
) -> None:
    moved = Transactions(broker.address, other.address)
    moved.send(moved.old, range(20), commit=False)
    assert moved.planned() == {TopicPartition(moved.topic, 0): 0}


def test_copies_in_another_number_of_partitions_are_not_compared(
    broker: Service, other: Service
) -> None:
    moved = Transactions(broker.address, other.address, partitions=2)
    moved.send(moved.old, range(20))
    with pytest.raises(FindingsError, match=r"has 1 partitions on .* and 2 on .* compared"):
        moved.planned()
