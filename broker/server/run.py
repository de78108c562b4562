"""Run a broker as a process until a signal ends it; print one line when it is ready."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import json
import signal
import ssl
from dataclasses import dataclass, replace
from pathlib import Path

from headworks._broker.server.server import BrokerServer, ServerConfig
from headworks._host_port import split_host_port
from headworks._server.logs import configure
from headworks._server.security import (
    Access,
    Users,
    parse_listen,
    refuse_exposure,
    refuse_plaintext,
    server_tls,
)
from headworks.errors import UsageError


@dataclass(frozen=True, slots=True)
class StartOptions:
    """The options of `broker start`: the configuration, and the texts that complete it."""

    listen: str
    server: ServerConfig  # without the address, TLS, users, and grants
    advertise: str | None = None
    metrics: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    users: Path | None = None
    access: Path | None = None
    log_format: str = "text"
    log_level: str = "info"
    insecure: bool = False
    json: bool = False


def run(options: StartOptions) -> None:
    """Serve until SIGTERM or SIGINT. UsageError for options that are invalid, or unsafe."""
    configure(options.log_format, options.log_level)
    host, port = parse_listen(options.listen)
    advertise = None if options.advertise is None else parse_advertised(options.advertise)
    if advertise is None and ipaddress.ip_address(host).is_unspecified:
        raise UsageError(
            f"--listen {options.listen!r}: clients are told this address, and cannot connect to it",
            fix="give the address of one interface of this machine, or --advertise HOST:PORT",
        )
    _refuse_exposure(host, "broker", options)
    metrics = None
    if options.metrics is not None:
        metrics = parse_listen(options.metrics, "--metrics")
        _refuse_exposure(metrics[0], "metrics page", options)
    config = replace(
        options.server,
        host=host,
        port=port,
        advertise=advertise,
        metrics=metrics,
        tls=_tls(options),
        users=None if options.users is None else Users(options.users),
        access=None if options.access is None else Access.load(options.access),
    )
    # Requests create many small objects and no cycles: collecting less often gains 10 % of speed
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    asyncio.run(_serve(config, as_json=options.json))


def parse_advertised(text: str) -> tuple[str, int]:
    """Return the host (a name or an address) and port that clients are told, or UsageError."""
    found = split_host_port(text)
    if found is None:
        raise UsageError(
            f"--advertise {text!r} is not HOST:PORT", fix="for example broker-2.internal:9092"
        )
    return found


def _refuse_exposure(host: str, server: str, options: StartOptions) -> None:
    """Require users and TLS beyond loopback: otherwise passwords would cross the network."""
    insecure = options.insecure
    refuse_exposure(host, server, authenticates=options.users is not None, insecure=insecure)
    refuse_plaintext(host, server, encrypts=options.tls_cert is not None, insecure=insecure)


def _tls(options: StartOptions) -> ssl.SSLContext | None:
    if options.tls_cert is None and options.tls_key is None:
        return None
    if options.tls_cert is None or options.tls_key is None:
        raise UsageError("TLS needs two files", fix="give both --tls-cert and --tls-key")
    return server_tls(options.tls_cert, options.tls_key)


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
    waiting = {loop.create_task(stopping.wait())} | ({server.failure} if server.failure else set())
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    failed = server.failure is not None and server.failure.done() and not stopping.is_set()
    await server.stop()
    if failed and server.failure is not None:
        raise server.failure.result()
