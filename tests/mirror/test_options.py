"""Options of a mirror: parsing, and refusals before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headworks._cli.mirror import _one_each
from headworks._mirror import MirrorOptions, MirrorSource, read_properties
from headworks._mirror.options import whole_names
from headworks._mirror.topics import ANY_PARTITION, PartitionMapping
from headworks.errors import UsageError

pytestmark = pytest.mark.unit


def options(**given: Any) -> MirrorOptions:
    defaults: dict[str, Any] = {
        "name": "main",
        "sources": (MirrorSource("a:1", {}, None),),
        "target": "b:1",
        "target_client": {},
        "topics": whole_names("shop\\..*", "--topics"),
        "excluding": None,
        "registry": "http://r:1",
        "copy_schemas": False,
        "audit": True,
        "folder": Path("x"),
    }
    return MirrorOptions(**{**defaults, **given})


def test_topics_are_chosen_by_their_whole_names() -> None:
    wants = options(excluding=whole_names(".*-test", "--excluding")).wants
    assert wants("shop.orders")
    assert not any(map(wants, ("workshop.orders", "shop", "shop.orders-test", "__offsets")))
    assert not options(topics=whole_names(".*", "--topics")).wants("__consumer_offsets")


@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 49), st.booleans())
def test_a_message_goes_to_a_partition_that_is_there(
    source: int, target: int, partition: int, keyed: bool
) -> None:
    placed = PartitionMapping(source, target).partition(partition % source, keyed=keyed)
    if source == target:
        assert placed == partition % source
    elif keyed:
        assert placed == ANY_PARTITION
    else:
        assert 0 <= placed < target


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": "a b"}, "cannot be called"),
        ({"compression": "rar"}, "not known"),
        ({"sources": (MirrorSource("b:1", {}, None),)}, "both source and target"),
        ({"sources": (MirrorSource("a:1", {}, None),) * 2}, "given twice"),
        ({"copy_schemas": True}, "not named"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        options(**wrong)


def test_a_wrong_pattern_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--topics 'shop\(' is not a regular expression"):
        whole_names("shop(", "--topics")


def test_client_properties_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# theirs\n\nsasl.password = a=b \nsocket.timeout.ms=5000\n")
    assert read_properties("h:1", path) == {
        "bootstrap.servers": "h:1",
        "sasl.password": "a=b",
        "socket.timeout.ms": "5000",
    }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("sasl.password", ":1: expected name=value"),
        ("enable.auto.commit=true", "is the mirror's own"),
        ("enable.idempotence=false", "is the mirror's own"),
        ("acks=1", "is the mirror's own"),
        ("group.id=other", "is the mirror's own"),
    ],
)
def test_a_promise_cannot_be_switched_off(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(line)
    with pytest.raises(UsageError, match=words):
        read_properties("h:1", path)


def test_options_of_sources_are_given_once_or_once_for_each() -> None:
    assert _one_each(["a", "b"], [], "--x") == [None, None]
    assert _one_each(["a", "b"], ["1"], "--x") == ["1", "1"]
    assert _one_each(["a", "b"], ["1", "2"], "--x") == ["1", "2"]
    with pytest.raises(UsageError, match="--x is given 2 times and --from 3 times"):
        _one_each(["a", "b", "c"], ["1", "2"], "--x")
