"""Messages that were read before a gap are copied, also if the source has removed them since."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from headworks._mirror.errors import SessionEndedError
from headworks._mirror.options import MirrorOptions, MirrorSource
from headworks._mirror.progress import MirrorProgress
from headworks._mirror.reader import SourceReader
from headworks.errors import FindingsError

pytestmark = pytest.mark.unit

PLACE = ("t", 0)


class Message:
    """A message of offset `at`, or the error of librdkafka for an offset that is gone."""

    def __init__(self, at: int | None) -> None:
        self._at = at

    def topic(self) -> str:
        return PLACE[0]

    def partition(self) -> int:
        return PLACE[1]

    def offset(self) -> int | None:
        return self._at

    def value(self) -> bytes:
        return b"removed"

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._AUTO_OFFSET_RESET) if self._at is None else None


class Consumer:
    """A source that has removed everything below offset 200, with ten messages read ahead."""

    def __init__(self, _properties: object) -> None:
        self.read_ahead = [Message(at) for at in (*range(100, 110), None)]
        self.committed: list[int] = []

    def consume(self, most: int, _timeout: float) -> list[Message]:
        found, self.read_ahead = self.read_ahead[:most], self.read_ahead[most:]
        return found

    def get_watermark_offsets(self, _place: object, timeout: float) -> tuple[int, int]:
        assert timeout > 0
        return 200, 300

    def commit(self, offsets: list[TopicPartition], **_options: Any) -> None:
        self.committed += [one.offset for one in offsets]


class Topics:
    """Topics of which none was recreated."""

    def recreated(self) -> set[str]:
        return set()


def reader(monkeypatch: pytest.MonkeyPatch, folder: Path, *, skip: bool) -> tuple[Any, Any, Any]:
    monkeypatch.setattr("headworks._mirror.reader.KafkaConsumer", Consumer)
    options = MirrorOptions(
        "m", (), "target", {}, re.compile("t"), None, "", False, False, folder, skip_lost=skip
    )
    progress = MirrorProgress("source")
    source = MirrorSource("source", {"bootstrap.servers": "source"}, None)
    topics: Any = Topics()
    made = SourceReader(options, source, topics, progress, lambda: None)
    made.committed[PLACE] = 100
    return made, made._consumer, progress


def test_nothing_is_committed_before_the_target_has_what_was_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made, consumer, progress = reader(monkeypatch, tmp_path, skip=True)
    assert [message.offset() for message in made.read(1000, 0.1)] == list(range(100, 110))
    assert made.held_up
    assert not consumer.committed
    made.commit({PLACE: 110})  # as a session does once the target has acknowledged them
    with pytest.raises(SessionEndedError):
        made.step_over()
    assert consumer.committed == [110, 200]
    assert progress.lost["t"] == 90


def test_without_skip_lost_they_are_copied_as_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made, consumer, _ = reader(monkeypatch, tmp_path, skip=False)
    assert len(made.read(1000, 0.1)) == 10
    with pytest.raises(FindingsError, match="offset 100 or a later one is wanted, 200 to 300 are"):
        made.step_over()
    assert not consumer.committed
