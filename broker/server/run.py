"""Run a broker as a process: options in, one line out when it serves, signals end it."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import json
import logging
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from broker.server.limits import Limits
from broker.server.server import BrokerServer, ServerConfig
from headworks.errors import UsageError

__all__ = ["StartOptions", "parse_listen", "run"]


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What the command line gives."""

    listen: str
    folder: Path
    default_partitions: int = 4
    auto_create_topics: bool = True
    show_unflushed: bool = False
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    max_connections: int = 2000
    idle_seconds: float = 600.0
    metrics: str | None = None
    insecure: bool = False
    json: bool = False


def run(options: StartOptions) -> None:
    """Serve until SIGTERM or SIGINT."""
    host, port = parse_listen(options.listen, insecure=options.insecure)
    metrics = None
    if options.metrics is not None:
        metrics = parse_listen(options.metrics, insecure=options.insecure, option="--metrics")
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    config = ServerConfig(
        folder=options.folder,
        host=host,
        port=port,
        default_partitions=options.default_partitions,
        auto_create_topics=options.auto_create_topics,
        show_unflushed=options.show_unflushed,
        topic_defaults=options.topic_defaults,
        limits=Limits(connections=options.max_connections, idle_seconds=options.idle_seconds),
        metrics=metrics,
    )
    # Requests make many small objects and no cycles: looking for those less often is 10 % of speed
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    asyncio.run(_serve(config, as_json=options.json))


def parse_listen(listen: str, *, insecure: bool, option: str = "--listen") -> tuple[str, int]:
    """Host and port of HOST:PORT or [HOST]:PORT; UsageError beyond loopback unless `insecure`."""
    host, separator, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{option} {listen!r} is not HOST:PORT", fix="for example 127.0.0.1:9092")
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise UsageError(
            f"{option} {listen!r}: the host must be an address of this machine",
            fix="for example 127.0.0.1:9092, or 0.0.0.0:9092 is not possible: see --help",
        ) from None
    if address.is_unspecified:
        raise UsageError(
            f"{option} {listen!r}: clients are told this address, and cannot connect to it",
            fix="give the address of one interface of this machine",
        )
    if not address.is_loopback and not insecure:
        raise UsageError(
            f"{option} {listen!r} is reachable from other machines, and the broker asks nobody who"
            f" they are: whoever reaches it may read, write and delete everything",
            fix="listen on 127.0.0.1, or give --insecure if the network is trusted",
        )
    return str(address), int(port)


async def _serve(config: ServerConfig, *, as_json: bool) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    server = BrokerServer(config)
    await server.start()
    if as_json:
        print(json.dumps({"service": "broker", "listen": server.address}), flush=True)
    else:
        print(f"broker serving on {server.address}, data in {config.folder}", flush=True)
    await stopping.wait()
    await server.stop()
