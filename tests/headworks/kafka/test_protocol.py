"""The hand-written codecs against kio, an independent implementation, and against nonsense."""

from __future__ import annotations

import importlib
import io
import subprocess
import sys
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from headworks._broker.log import SegmentFile
from headworks._kafka.protocol import (
    APIS,
    ErrorCode,
    MalformedError,
    decode,
    encode,
    parse_header,
    seal,
)
from headworks._kafka.protocol import fetch as fetch_messages
from headworks._kafka.protocol import produce as produce_messages
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.protocol.fetch import FetchPartition, PartitionData
from headworks._kafka.protocol.message_reader import fields_of
from headworks._kafka.protocol.oldest_versions import REQUESTS, SCHEMAS
from headworks._kafka.protocol.produce import PartitionRecords, ProduceResult
from headworks._kafka.records.file_slice import FileSlice
from tests.broker.build import batch
from tests.broker.wire import plain

pytestmark = pytest.mark.contract

_WITHOUT_KIO = {*REQUESTS, *SCHEMAS}  # versions that kio has no schema of
_PRODUCE_BY_ID = 13  # version from which topics are named by their ids


def kio_class(name: str, version: int, side: str, kind: str | None = None) -> Any:
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{side}")
    return getattr(module, kind or f"{name.capitalize()}{side.capitalize()}")


def written(entity: Any) -> bytes:
    with io.BytesIO() as out:
        entity_writer(type(entity))(out, entity)
        return out.getvalue()


def header_bytes(key: int, version: int, client: str | None) -> bytes:
    flexible = APIS[key].is_flexible(version)
    module = importlib.import_module(f"kio.schema.request_header.v{2 if flexible else 1}.header")
    return written(
        module.RequestHeader(
            request_api_key=key, request_api_version=version, correlation_id=42, client_id=client
        )
    )


_topics = st.dictionaries(
    st.text(min_size=1, max_size=200),
    st.dictionaries(st.integers(0, 1 << 30), st.none() | st.binary(max_size=300), min_size=1),
    max_size=3,
)


def _id(name: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_URL, name)


def _naming(version: int, name: str) -> dict[str, Any]:
    return {"topic_id": _id(name)} if version >= _PRODUCE_BY_ID else {"name": name}


@given(st.integers(3, 13), _topics, st.sampled_from([-1, 0, 1]), st.none() | st.text(max_size=200))
def test_produce_requests_parse_as_kio_wrote_them(
    version: int, topics: dict[str, dict[int, bytes | None]], acks: int, transactional: str | None
) -> None:
    topic_kind = kio_class("produce", version, "request", "TopicProduceData")
    partition_kind = kio_class("produce", version, "request", "PartitionProduceData")
    message = kio_class("produce", version, "request")(
        transactional_id=transactional,
        acks=acks,
        timeout=timedelta(seconds=1),
        topic_data=tuple(
            topic_kind(
                **_naming(version, name),
                partition_data=tuple(
                    partition_kind(index=index, records=records)
                    for index, records in partitions.items()
                ),
            )
            for name, partitions in topics.items()
        ),
    )
    data = bytearray(
        b"xx" + header_bytes(ApiKey.PRODUCE, version, "me") + written(message) + b"next"
    )
    end = len(data) - 4
    header = parse_header(data, 2, end)
    assert (header.key, header.version, header.correlation_id, header.client_id) == (
        ApiKey.PRODUCE,
        version,
        42,
        "me",
    )
    request = produce_messages.parse_request(data, header.body, end, version)
    assert (request.transactional_id, request.acks) == (transactional, acks)
    found: dict[str | bytes, dict[int, bytes | None]] = {}
    for part in request.partitions:
        records = None if part.start < 0 else bytes(data[part.start : part.stop])
        found.setdefault(part.topic, {})[part.partition] = records
    ids = version >= _PRODUCE_BY_ID
    assert found == {_id(name).bytes if ids else name: records for name, records in topics.items()}


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_replies_read_back_through_kio(version: int) -> None:
    ids = version >= _PRODUCE_BY_ID
    a, b = (_id(name).bytes if ids else name for name in "ab")
    results = [
        ProduceResult(a, 0, 0, 17, -1, 3),
        ProduceResult(a, 1, 2, message="CRC is wrong"),
        ProduceResult(b, 0, 0, 5, 1_600_000_000_000, 0),
    ]
    frame = produce_messages.encode_reply(42, version, results)
    flexible = version >= 9
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 42
    body = frame[9 if flexible else 8 :]
    reply, size = entity_reader(kio_class("produce", version, "response"))(body, 0)
    assert size == len(body)
    found = [
        (topic.topic_id.bytes if ids else topic.name, part.index, part.error_code, part.base_offset)
        for topic in reply.responses
        for part in topic.partition_responses
    ]
    assert found == [(a, 0, 0, 17), (a, 1, 2, -1), (b, 0, 0, 5)]
    if version >= 8:
        assert reply.responses[0].partition_responses[1].error_message == "CRC is wrong"


@given(
    st.integers(4, 12),
    st.dictionaries(st.text(min_size=1, max_size=150), st.lists(st.integers(0, 99), max_size=3)),
    st.integers(0, 1 << 40),
)
def test_fetch_requests_parse_as_kio_wrote_them(
    version: int, topics: dict[str, list[int]], offset: int
) -> None:
    topic_kind = kio_class("fetch", version, "request", "FetchTopic")
    partition_kind = kio_class("fetch", version, "request", "FetchPartition")
    fields: dict[str, Any] = {
        "max_wait": timedelta(milliseconds=500),
        "min_bytes": 1,
        "max_bytes": 50_000_000,
        "isolation_level": 1,
        "topics": tuple(
            topic_kind(
                topic=name,
                partitions=tuple(
                    partition_kind(partition=p, fetch_offset=offset, partition_max_bytes=1 << 20)
                    for p in partitions
                ),
            )
            for name, partitions in topics.items()
        ),
    }
    if version < 15:
        fields["replica_id"] = -1
    if version >= 7:
        fields |= {"session_id": 9, "session_epoch": 4, "forgotten_topics_data": ()}
    if version >= 11:
        fields["rack_id"] = ""
    message = kio_class("fetch", version, "request")(**fields)
    data = header_bytes(ApiKey.FETCH, version, None) + written(message)
    header = parse_header(data, 0, len(data))
    request = fetch_messages.parse_request(data, header.body, len(data), version)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 50_000_000)
    assert request.session_epoch == (4 if version >= 7 else -1)
    assert request.partitions == tuple(
        FetchPartition(name, p, -1, offset, 1 << 20) for name, ps in topics.items() for p in ps
    )


@pytest.mark.parametrize("version", range(4, 13))
def test_fetch_replies_read_back_through_kio(version: int, tmp_path: Path) -> None:
    records = bytes(batch(3))
    (tmp_path / "file").write_bytes(b"before" + records + b"after")
    piece = FileSlice(SegmentFile(tmp_path / "file"), 6, len(records))
    reads = [
        PartitionData("a", 0, 0, 3, 0, piece),
        PartitionData("a", 1, 1, 7, 2),
        PartitionData("b", 0, 0, 3, 0, piece._replace(size=0)),
        PartitionData("b", 2, 0, 3, 0, piece),
    ]
    frame = b"".join(
        (tmp_path / "file").read_bytes()[p.position : p.position + p.size]
        if isinstance(p, FileSlice)
        else p
        for p in fetch_messages.encode_reply(42, version, reads)
    )
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    body = frame[9 if version >= 12 else 8 :]
    reply, size = entity_reader(kio_class("fetch", version, "response"))(body, 0)
    assert size == len(body)
    found = [
        (t.topic, p.partition_index, int(p.error_code), p.high_watermark, bytes(p.records or b""))
        for t in reply.responses
        for p in t.partitions
    ]
    assert found == [
        ("a", 0, 0, 3, records),
        ("a", 1, 1, 7, b""),
        ("b", 0, 0, 3, b""),
        ("b", 2, 0, 3, records),
    ]
    for topic in reply.responses:
        for part in topic.partitions:
            assert part.last_stable_offset == part.high_watermark
            assert not part.aborted_transactions


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_every_advertised_version_has_a_schema_of_the_same_shape(api: Any) -> None:
    camel = "".join(word.capitalize() for word in api.name.split("_"))
    for version in range(max(api.minimum, api.served_from), api.maximum + 1):
        if (api.key, version) in _WITHOUT_KIO:
            continue
        for side in ("request", "response"):
            kind = kio_class(api.name, version, side, f"{camel}{side.capitalize()}")
            assert kind.__api_key__ == api.key
            assert kind.__flexible__ == api.is_flexible(version)


@settings(max_examples=300)
@given(st.sampled_from(sorted(APIS)), st.integers(-1, 14), st.binary(max_size=200))
def test_nonsense_is_malformed_and_nothing_else(key: int, version: int, body: bytes) -> None:
    api = APIS[key]
    data = bytearray(key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + body)
    try:
        header = parse_header(data, 0, len(data))
        if key == ApiKey.PRODUCE and 0 <= version <= 9:
            request = produce_messages.parse_request(data, header.body, len(data), version)
            assert all(isinstance(part, PartitionRecords) for part in request.partitions)
        elif key == ApiKey.FETCH and api.serves(version):
            fetch_messages.parse_request(data, header.body, len(data), version)
        elif api.serves(version):
            decode(api, version, bytes(data[header.body :]))
    except MalformedError:
        pass


@pytest.mark.parametrize("version", [3, 9])
def test_counts_that_promise_more_than_there_is_end_at_once(version: int) -> None:
    head = header_bytes(ApiKey.PRODUCE, version, None)
    if version < 9:
        body = b"\xff\xff" + b"\0\1" + bytes(4) + b"\x7f\xff\xff\xff" + b"\xff\xfa" + bytes(8)
    else:
        body = b"\0" + b"\0\1" + bytes(4) + b"\xff\xff\xff\xff\x07" + b"\0" + bytes(8)
    data = bytearray(head + body)
    header = parse_header(data, 0, len(data))
    with pytest.raises(MalformedError):
        produce_messages.parse_request(data, header.body, len(data), version)


def test_tagged_fields_are_skipped() -> None:
    data = bytearray(header_bytes(3, 12, "me"))
    tagged = data[:-1] + b"\x02\x00\x03abc\x07\x00" + b"body"
    header = parse_header(tagged, 0, len(tagged))
    assert bytes(tagged[header.body :]) == b"body"
    with pytest.raises(MalformedError):
        parse_header(data[:-1] + b"\x01\x00\x7f", 0, len(data) + 2)


def test_encoding_leaves_out_what_a_version_lacks_and_misses_what_it_needs() -> None:
    api = APIS[22]
    fields = {"error_code": ErrorCode.NONE, "producer_id": 5, "producer_epoch": 1, "unknown": 1}
    assert encode(api, 0, fields) == bytes(4) + bytes(2) + (5).to_bytes(8, "big") + b"\0\1"
    with pytest.raises(KeyError, match="producer_epoch"):
        encode(api, 0, {"error_code": ErrorCode.NONE})
    assert seal(api, 2, 7, b"x") == b"\0\0\0\6\0\0\0\7\0x"
    assert seal(api, 1, 7, b"x") == b"\0\0\0\5\0\0\0\7x"


def sample(kind: Any, data: st.DataObject) -> Any:
    """Any instance of one of kio's messages."""
    return kind(**{field.name: _sample_field(field, data) for field in fields_of(kind)})


def _sample_field(field: Any, data: st.DataObject) -> Any:
    if field.array:
        one = field._replace(array=False, nullable=False)
        if field.nullable and data.draw(st.booleans()):
            return None
        return tuple(_sample_field(one, data) for _ in range(data.draw(st.integers(0, 3))))
    if field.nested is not None:
        return sample(field.nested, data)
    values: dict[str, st.SearchStrategy[Any]] = {
        "string": st.text(max_size=150),
        "bytes": st.binary(max_size=150),
        "bool": st.booleans(),
        "uuid": st.none(),
        "int8": st.integers(-128, 127),
        "int16": st.integers(-5, 999),
        "int32": st.integers(-5, 1 << 30),
        "int64": st.integers(-5, 1 << 60),
        "timedelta_i32": st.integers(0, 1 << 30).map(lambda ms: timedelta(milliseconds=ms)),
        "timedelta_i64": st.integers(0, 1 << 40).map(lambda ms: timedelta(milliseconds=ms)),
    }
    strategy = values[field.kind]
    return data.draw(st.none() | strategy if field.nullable and field.tag is None else strategy)


_VERSIONS = [
    (api, version)
    for api in APIS.values()
    for version in range(api.minimum, api.maximum + 1)
    if api.key not in (ApiKey.PRODUCE, ApiKey.FETCH) and (api.key, version) not in _WITHOUT_KIO
]


@pytest.mark.parametrize(("api", "version"), _VERSIONS, ids=lambda v: getattr(v, "name", str(v)))
def test_requests_read_as_kio_wrote_them(api: Any, version: int) -> None:
    camel = "".join(word.capitalize() for word in api.name.split("_"))

    @settings(max_examples=8, deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        message = sample(kio_class(api.name, version, "request", f"{camel}Request"), data)
        assert decode(api, version, written(message)) == message

    check()


@pytest.mark.parametrize(("key", "version"), SCHEMAS)
def test_requests_with_a_schema_of_ours_read_as_they_were_written(key: int, version: int) -> None:
    @settings(max_examples=20, deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        message = sample(SCHEMAS[key, version], data)
        assert decode(APIS[key], version, plain(message)) == message

    check()


@pytest.mark.parametrize(
    ("version", "body"), [(1, b"\x7f\xff\xff\xff"), (9, b"\xff\xff\xff\xff\7")]
)
def test_an_array_that_promises_gigabytes_allocates_nothing(version: int, body: bytes) -> None:
    with pytest.raises(MalformedError, match="elements"):
        decode(APIS[3], version, body + bytes(8))


@pytest.mark.e2e
def test_hypothesis_is_not_loaded_for_kio(tmp_path: Path) -> None:
    """It is half of a broker's start, and leaves a folder where the broker was started."""
    code = (
        "import sys\n"
        "from headworks._kafka.protocol import APIS, ApiKey, ErrorCode, decode, encode\n"
        "assert decode(APIS[ApiKey.METADATA], 1, b'\\0\\0\\0\\0').topics == ()\n"
        "assert encode(APIS[ApiKey.FIND_COORDINATOR], 0, "
        "{'error_code': ErrorCode.NONE, 'node_id': 1, 'host': 'h', 'port': 2})\n"
        "assert not [name for name in sys.modules if name.startswith('hypothesis')]\n"
        "import hypothesis.strategies\n"
    )
    subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, check=True)
