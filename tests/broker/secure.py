"""Files of a guarded broker (certificate, users, grants), and the four clients with a login."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import trustme

from headworks._server.security.users import derive, write_users
from tests.broker.clients import DEADLINE
from tests.tools import require

PASSWORDS = {"alice": "wonderland", "bob": "Grüße, sehr geheim", "carol": "c,=arol"}
_SALT = b"the same salt for every test"
_ITERATIONS = 4096  # of tests: quick


class DeniedError(Exception):
    """What a client says when it is not let in."""


@dataclass(frozen=True)
class Files:
    """A folder with all that a guarded broker reads."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Files:
        folder.mkdir(parents=True, exist_ok=True)
        files, authority = cls(folder), trustme.CA(key_type=trustme.KeyType.ECDSA)
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        authority.cert_pem.write_to_path(str(files.ca))
        certificate.private_key_pem.write_to_path(str(files.key))
        for number, blob in enumerate(certificate.cert_chain_pems):
            blob.write_to_path(str(files.certificate), append=number > 0)
        files.set_passwords(PASSWORDS)
        return files

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def certificate(self) -> Path:
        return self.folder / "cert.pem"

    @property
    def key(self) -> Path:
        return self.folder / "key.pem"

    @property
    def users(self) -> Path:
        return self.folder / "users"

    @property
    def access(self) -> Path:
        return self.folder / "access.toml"

    def set_passwords(self, passwords: dict[str, str]) -> None:
        write_users(self.users, {n: derive(p, _SALT, _ITERATIONS) for n, p in passwords.items()})

    @property
    def tls_options(self) -> list[str]:
        return ["--tls-cert", str(self.certificate), "--tls-key", str(self.key)]

    @property
    def user_options(self) -> list[str]:
        return ["--users", str(self.users)]


@dataclass(frozen=True)
class Way:
    """How a client gets in."""

    files: Files
    protocol: str = "PLAINTEXT"
    mechanism: str = "SCRAM-SHA-256"
    user: str = "alice"
    password: str = field(default=PASSWORDS["alice"])
    patience: float = DEADLINE  # seconds that a client goes on trying

    @classmethod
    def of(cls, files: Files, user: str, **more: Any) -> Way:
        return cls(files, "SASL_PLAINTEXT", user=user, password=PASSWORDS[user], **more)

    @property
    def librdkafka(self) -> dict[str, str]:
        found = {"security.protocol": self.protocol}
        if "SSL" in self.protocol:
            found["ssl.ca.location"] = str(self.files.ca)
        if "SASL" in self.protocol:
            found |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.user,
                "sasl.password": self.password,
            }
        return found

    @property
    def python(self) -> dict[str, Any]:
        found: dict[str, Any] = {"security_protocol": self.protocol}
        if "SASL" in self.protocol:
            found |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.user,
                "sasl_plain_password": self.password,
            }
        return found


def confluent(address: str, topic: str, way: Way, value: bytes) -> bytes:
    """Send a message and read it back: the last of the topic."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

    refused: list[str] = []

    def on_error(error: Any) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            refused.append(str(error))

    base: dict[str, Any] = {"bootstrap.servers": address, "error_cb": on_error, **way.librdkafka}
    producer = Producer(base)
    failures: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error:
            failures.append(error)

    producer.produce(topic, value, partition=0, on_delivery=delivered)
    end = time.monotonic() + way.patience
    while len(producer) and not refused and time.monotonic() < end:
        producer.poll(0.1)
    if refused or failures:
        producer.purge()
        producer.flush(5)
        raise DeniedError(str(refused or failures))
    consumer = Consumer({**base, "group.id": f"{topic}.unused"})
    try:
        _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE)
        consumer.assign([TopicPartition(topic, 0, high - 1)])
        message = consumer.poll(DEADLINE)
        assert message is not None
        if message.error():
            raise DeniedError(str(message.error()))
        found = message.value()
        assert found is not None
        return found
    except KafkaException as error:
        raise DeniedError(str(error)) from error
    finally:
        consumer.close()


def aiokafka(address: str, topic: str, way: Way, value: bytes) -> bytes:
    """See `confluent`."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.errors import KafkaError
    from aiokafka.helpers import create_ssl_context
    from aiokafka.structs import TopicPartition

    async def run() -> bytes:
        base = {"bootstrap_servers": address, **way.python}
        if "SSL" in way.protocol:
            base["ssl_context"] = create_ssl_context(cafile=str(way.files.ca))
        producer = AIOKafkaProducer(**base)
        consumer = AIOKafkaConsumer(**base, enable_auto_commit=False)
        try:
            await producer.start()
            sent = await producer.send_and_wait(topic, value, partition=0)
            await consumer.start()
            at = TopicPartition(topic, 0)
            consumer.assign([at])
            consumer.seek(at, sent.offset)
            async with asyncio.timeout(DEADLINE):
                return bytes((await consumer.getone()).value)
        except KafkaError as error:
            raise DeniedError(str(error)) from error
        finally:
            await producer.stop()
            await consumer.stop()

    return asyncio.run(run())


def kafka_python(address: str, topic: str, way: Way, value: bytes) -> bytes:
    """See `confluent`."""
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaError

    patience = int(way.patience * 1000)
    base = {"bootstrap_servers": address, "bootstrap_timeout_ms": patience, **way.python}
    if "SSL" in way.protocol:
        base["ssl_cafile"] = str(way.files.ca)
    opened: list[Any] = []
    try:
        producer = KafkaProducer(**base, max_block_ms=patience)
        opened.append(producer)
        sent = producer.send(topic, value, partition=0).get(DEADLINE)
        consumer = KafkaConsumer(**base, consumer_timeout_ms=int(DEADLINE * 1000))
        opened.append(consumer)
        at = TopicPartition(topic, 0)
        consumer.assign([at])
        consumer.seek(at, sent.offset)
        return bytes(next(iter(consumer)).value)
    except KafkaError as error:
        raise DeniedError(str(error)) from error
    finally:
        for client in opened:
            client.close()


def kafka_python_apart(address: str, topic: str, way: Way, value: bytes) -> bytes:
    """`kafka_python` in a process of its own: what it fails to open it does not close."""
    fields = asdict(way) | {"files": str(way.files.folder)}
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-m", "tests.broker.secure"],
        input=pickle.dumps((address, topic, fields, value)),
        capture_output=True,
        timeout=2 * DEADLINE,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
    )
    assert done.returncode == 0, done.stderr.decode()
    refusal, found = pickle.loads(done.stdout)
    if refusal:
        raise DeniedError(refusal)
    return bytes(found)


def _apart() -> None:
    address, topic, fields, value = pickle.loads(sys.stdin.buffer.read())
    way = Way(**fields | {"files": Files(Path(fields["files"]))})
    try:
        answer = "", kafka_python(address, topic, way, value)
    except DeniedError as error:
        answer = str(error) or "denied", b""
    sys.stdout.buffer.write(pickle.dumps(answer))


def kcat(address: str, topic: str, way: Way, value: bytes) -> bytes:
    """See `confluent`."""
    require("kcat")
    options = [part for pair in way.librdkafka.items() for part in ("-X", "=".join(pair))]
    options += ["-X", f"message.timeout.ms={int(way.patience * 1000)}"]

    def run(*arguments: str, text: bytes = b"") -> bytes:
        done = subprocess.run(
            ["kcat", "-b", address, *options, *arguments],
            input=text,
            capture_output=True,
            timeout=DEADLINE,
        )
        if done.returncode:
            raise DeniedError(done.stderr.decode())
        return done.stdout

    run("-P", "-t", topic, "-p", "0", text=value)
    return run("-C", "-t", topic, "-p", "0", "-o", "-1", "-e", "-q", "-D", "")


CLIENTS: dict[str, Callable[[str, str, Way, bytes], bytes]] = {
    "confluent-kafka": confluent,
    "aiokafka": aiokafka,
    "kafka-python": kafka_python_apart,
    "kcat": kcat,
}

if __name__ == "__main__":
    _apart()
