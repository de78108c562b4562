"""`python -m bench broker`: the broker beside RabbitMQ, ActiveMQ, NATS JetStream, Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from bench.broker import batching, latency, netdb, payload, scale
from bench.broker.clients import Clients, compile_c, compile_java
from bench.broker.contender import Contender, started
from bench.broker.kafka_like import ApacheKafka, Headworks, KafkaLike
from bench.broker.packages import ACTIVEMQ, COMPILER, KAFKA_CLIENT, NATS, RABBITMQ, Needed, provide
from bench.broker.peers import ActiveMq, Nats, RabbitMq
from bench.frame import Bench
from headworks.errors import HeadworksError

TITLE = "The broker and its peers, native clients, 200-byte messages"


def run(bench: Bench) -> None:
    """The paper's experiment with all, then what only the Kafkas can do, then ours alone."""
    clients = Clients(bench.folder / "clients")
    clients.folder.mkdir()
    provide([COMPILER, KAFKA_CLIENT], bench.say)
    compile_c(clients.folder, "kafka", "rdkafka")
    compile_c(clients.folder, "many")
    with started(bench, Headworks(clients)) as ours:
        with _peers(bench, clients) as peers:
            netdb.run(bench, [ours, *peers])
            latency.run(bench, [ours, *(one for one in peers if isinstance(one, KafkaLike))])
        batching.run(bench, ours)
        payload.run(bench)
        scale.run(bench, ours, clients)


@contextmanager
def _peers(bench: Bench, clients: Clients) -> Iterator[list[Contender]]:
    """Those that could be started, all at the same time; the others are reported."""
    folder = clients.folder
    table: tuple[tuple[Contender, tuple[Needed, ...], Callable[[], None]], ...] = (
        (RabbitMq(clients), (RABBITMQ,), lambda: compile_c(folder, "rabbitmq", "rabbitmq")),
        (ActiveMq(clients), (ACTIVEMQ,), lambda: compile_java(folder)),
        (Nats(clients), (NATS,), lambda: compile_c(folder, "nats", "nats")),
        (ApacheKafka(clients), (), lambda: None),
    )
    waiting = []
    for contender, needed, build in table:
        try:
            provide(needed, bench.say)
            build()
        except HeadworksError as error:
            bench.missing(contender.name, str(error))
        else:
            waiting.append(contender)
    running: list[Contender] = []
    # The threads stay until all has ended: servers are bound to the thread that started them.
    with ThreadPoolExecutor(len(table)) as pool:
        starts = [(one, pool.submit(_start, bench, one)) for one in waiting]
        try:
            for contender, start in starts:
                try:
                    start.result()
                except HeadworksError as error:
                    bench.missing(contender.name, str(error))
                else:
                    running.append(contender)
            yield running
        finally:
            for contender in waiting:
                contender.stop()


def _start(bench: Bench, contender: Contender) -> None:
    bench.say(f"starting {contender.name}")
    contender.start(bench.folder / contender.name.replace(" ", "-"))
