"""Fuzzing: the parsers in this process, and a broker over its sockets while others use it.

What is checked, all the time:

- a parser raises MalformedError or nothing, soon, and keeps no memory;
- the broker answers or closes within a bound; a reply reads back through an independent codec;
- what must hold in every siege (see `siege`).
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import psutil

from headworks._kafka.protocol import APIS, MalformedError, decode, parse_header
from headworks._kafka.protocol import fetch as fetch_messages
from headworks._kafka.protocol import produce as produce_messages
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.protocol.oldest_versions import REPLIES
from headworks._kafka.records.varint import write_unsigned
from tests.broker.wire import Wire, agrees, produce, reply
from tests.soak.process import Broker
from tests.soak.requests import frame, random_request, spoil, versions
from tests.soak.siege import CANARY, SECONDS, Report, besiege

_APIS = tuple(APIS.values())
_API_VERSIONS = 18
_MB = 1 << 20
_PARSE_SECONDS = 2.0  # of this process, whatever else the machine does
_PARSE_GROWTH = 32 * _MB
_LEAST = {"attacks": 6, "valid requests answered": 6, "songs of the canary": 6}
_WAITING = (0, 1, 11, 14)  # Produce, Fetch, JoinGroup, SyncGroup: may answer late, or never


# -- the parsers -----------------------------------------------------------------------------------


def fuzz_parser(seconds: float, seed: int) -> Report:
    """Feed the parsers with spoiled requests."""
    random, report, process = Random(seed), Report(), psutil.Process()
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds and not report.wrong:
        for _ in range(500):
            _parse_one(random, report)
            _repeat_one(random, report)
        used = process.memory_info().rss
        warm = used if passed < seconds / 5 else report.memory[0]
        report.memory = (warm, max(used, report.memory[1] if passed >= seconds / 5 else 0))
    report.seconds = time.monotonic() - began
    if report.memory[1] - report.memory[0] > _PARSE_GROWTH:
        report.wrong.append(f"memory grew from {report.memory[0]} to {report.memory[1]}")
    return report


def _parse_one(random: Random, report: Report) -> None:
    api = random.choice(_APIS)
    version = random.choice(versions(api))
    body = random_request(api, version, random)
    if random.random() < 0.1:
        body = random.randbytes(random.randrange(60))
    data = spoil(frame(api, version, 1, body)[4:], random)
    buffer = bytearray(data + random.randbytes(random.choice((0, 0, 100))))
    began = time.process_time()
    try:
        parse(buffer, len(data))
        report.counts["parsed"] += 1
    except MalformedError:
        report.counts["malformed"] += 1
    except Exception as error:
        report.wrong.append(f"{error!r} from {data!r}")
    passed = time.process_time() - began
    report.slowest = max(report.slowest, passed)
    if passed > _PARSE_SECONDS:
        report.wrong.append(f"{passed:.1f} s for {data!r}")


def _repeat_one(random: Random, report: Report) -> None:
    """The short cut for produce requests that repeat the last one must agree with the parser."""
    version = random.choice((7, 9))
    first = bytearray(_one_part(version, random))
    header = parse_header(first, 0, len(first))
    template = produce_messages.ProduceTemplate()
    request = produce_messages.parse_request(first, header.body, len(first), version)
    template.learn(first, header, request)
    data = bytearray(_one_part(version, random) if random.random() < 0.3 else first)
    at = random.randrange(len(data))
    data[at:] = spoil(bytes(data[at : at + 40]), random) + data[at + 40 :]
    data = bytearray(struct.pack(">i", len(data))) + data
    more = data if random.random() < 0.3 else random.randbytes(random.choice((0, 0, 100)))
    data = data + more
    found = list(template.matches(data, 0, len(data), _MB))
    report.counts["repeats" if found else "no repeats"] += 1
    start = 0
    for one in found:
        if not agrees(template, data, one, start):
            report.wrong.append(f"{one} at {start} is not what {bytes(data)!r} says")
        start = one[-1]


def _one_part(version: int, random: Random) -> bytes:
    body = produce("fuzz-a", 0, random.randbytes(random.choice((20, 20, 130))))
    if version == 9:
        records = random.randbytes(random.choice((20, 20, 130)))
        size = write_unsigned(len(records) + 1)
        body = b"\0\0\1\0\0\1\1\2\7fuzz-a\2\0\0\0\0" + size + records + b"\0\0\0"
    return frame(APIS[ApiKey.PRODUCE], version, random.randrange(99), body)[4:]


def parse(buffer: bytearray, end: int) -> None:
    """What a connection does with the request that lies at 0..`end`, up to its handler."""
    header = parse_header(buffer, 0, end)
    api = APIS.get(header.key)
    if api is None or not api.minimum <= header.version <= api.maximum:
        raise MalformedError("not served")
    if header.key == ApiKey.PRODUCE:
        request = produce_messages.parse_request(buffer, header.body, end, header.version)
        for part in request.partitions:
            assert -1 <= part.start <= part.stop <= end
    elif header.key == ApiKey.FETCH:
        fetch_messages.parse_request(buffer, header.body, end, header.version)
    else:
        decode(api, header.version, bytes(buffer[header.body : end]))


# -- the broker ------------------------------------------------------------------------------------


def fuzz_wire(folder: Path, seconds: float, seed: int) -> Report:
    """Attack a broker over its sockets for so long."""
    options = ("--default-partitions", "1", "--max-partitions", "60", "--segment-bytes", "200000")
    broker = Broker(folder, *options)
    broker.start()
    _create(broker.address)

    def attack(random: Random, report: Report) -> None:
        (_ask if random.random() < 0.3 else _hurt)(broker.address, random, report)

    with Wire(broker.address, SECONDS) as wire:
        wire.ask(_API_VERSIONS, 0)  # now the broker has taken the connection in, and it is counted
        return besiege(broker, wire, attack, seconds, seed, _LEAST)


def _create(address: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    names = (CANARY, "fuzz-a", "fuzz-b", "fuzz-c")
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(SECONDS)


def _ask(address: str, random: Random, report: Report) -> None:
    """Valid requests must be answered, in order, with what an independent codec can read."""
    with Wire(address, timeout=SECONDS) as wire:
        for _ in range(random.randint(1, 5)):
            api = random.choice([api for api in _APIS if api.key not in _WAITING])
            version = random.choice(range(max(api.minimum, api.served_from), api.maximum + 1))
            body = random_request(api, version, random)
            correlation = wire.send(api.key, version, body)
            try:
                got, answer = wire.receive()
                assert got == correlation
                if (api.key, version) not in _WITHOUT_SCHEMA:
                    reply(api.key, version, answer)
            except Exception as error:
                report.wrong.append(f"{api.name} v{version} {body!r}: {error!r}")
                return
            report.counts["valid requests answered"] += 1


# DescribeTransactions gives -1 for a transaction that has not begun: kio reads no time before 1970
_WITHOUT_SCHEMA = {*REPLIES, (ApiKey.DESCRIBE_TRANSACTIONS, 0)}


def _hurt(address: str, random: Random, report: Report) -> None:
    """Spoiled requests, several at once and in pieces; the end must come when we end."""
    data = b"".join(_spoiled(random) for _ in range(random.choice((1, 1, 1, 2, 5, 40))))
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), SECONDS) as sock:
        try:
            for piece in _pieces(data, random):
                sock.sendall(piece)
            sock.settimeout(random.choice((0.001, 0.02)))
            with contextlib.suppress(TimeoutError):
                while sock.recv(1 << 16):
                    pass
            sock.settimeout(SECONDS)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass
        except TimeoutError:
            report.wrong.append(f"no end within {SECONDS} s after {data!r}")
        except OSError:
            report.counts["connections reset"] += 1
    report.counts["attacks"] += 1


def _spoiled(random: Random) -> bytes:
    if random.random() < 0.05:
        return random.randbytes(random.randrange(1, 200))
    api = random.choice(_APIS)
    version = random.choice((*versions(api), random.randint(-1, 20)))
    served = version if version in versions(api) else api.maximum
    whole = frame(api, version, 1, random_request(api, served, random))
    if random.random() < 0.85:
        body = spoil(whole[4:], random)
        whole = struct.pack(">i", len(body)) + body
    if random.random() < 0.05:
        whole = spoil(whole[:4], random) + whole[4:]
    return whole


def _pieces(data: bytes, random: Random) -> Iterator[bytes]:
    if random.random() < 0.8:
        yield data
        return
    while data:
        size = random.choice((1, 3, 50, 1000))
        yield data[:size]
        data = data[size:]
