"""Find the brokers that a client starts with: named ones, or those registered in ZooKeeper.

Rules: SDKs and commands use this one module. An argument takes precedence over a setting, and the
address of a broker over the address of ZooKeeper. A client that runs for long keeps
`BootstrapServers`, so it still finds the cluster after every broker that it knew was replaced.
"""

from __future__ import annotations

import re
from typing import Any

from headworks._host_port import split_host_port
from headworks._kafka.client_properties import client_properties
from headworks._settings import lookup, resolve, resolve_optional
from headworks._zookeeper import live_brokers, open_session
from headworks._zookeeper.bootstrap_proxy import BootstrapProxy
from headworks.errors import UnreachableError, UsageError

_ZOOKEEPER_TIMEOUT_SECONDS = 5.0
_MAX_RECONNECT_MS = 2_000
_PROTOCOL = re.compile(r"(?i)(?:sasl_)?(?:plaintext|ssl)://")


def resolve_bootstrap(bootstrap: str | None = None, zookeeper: str | None = None) -> str:
    """Return HOST:PORT[,HOST:PORT..] of brokers, by these arguments and the settings.

    UsageError for a text that names no broker. UnreachableError if ZooKeeper does not answer, or if
    no broker is registered there.
    """
    ensemble = _ensemble(bootstrap, zookeeper)
    if ensemble is None:
        return _checked(resolve("bootstrap", bootstrap))
    with open_session(ensemble, wait=_ZOOKEEPER_TIMEOUT_SECONDS) as session:
        brokers = live_brokers(session)
    if not brokers:
        raise UnreachableError(
            f"no broker is registered in the ZooKeeper at {ensemble}",
            fix="start one with `headworks broker start --zookeeper`, or correct the address",
        )
    return ",".join(broker.address for broker in brokers.values())


class BootstrapServers:
    """`resolve_bootstrap` for a client that runs for long: follows ZooKeeper until `close`.

    Over TLS the client keeps the brokers that it started with, because a certificate names its own
    host.
    """

    def __init__(self, bootstrap: str | None = None, zookeeper: str | None = None) -> None:
        ensemble = _ensemble(bootstrap, zookeeper)
        self._proxy: BootstrapProxy | None = None
        if ensemble is None or resolve_optional("tls_ca") is not None:
            self.address = resolve_bootstrap(bootstrap, zookeeper)
        else:
            self._proxy = BootstrapProxy(ensemble)
            self.address = ",".join((*self._proxy.brokers, self._proxy.address))

    def client(self) -> dict[str, Any]:
        """Return `client_properties` for a client that starts with these brokers."""
        properties = client_properties(self.address)
        if self.followed:
            properties["reconnect.backoff.max.ms"] = _MAX_RECONNECT_MS  # librdkafka's default: 10 s
        return properties

    @property
    def followed(self) -> bool:
        """Whether new brokers are found when they replace these."""
        return self._proxy is not None

    def close(self) -> None:
        """Stop following ZooKeeper."""
        if self._proxy is not None:
            self._proxy.close()


def _checked(servers: str) -> str:
    """Return [PROTOCOL://]HOST[:PORT][,..] if it names brokers, as librdkafka takes it.

    librdkafka itself reads port 99999 as 34463.
    """
    named = [each.strip() for each in servers.split(",") if each.strip()]
    for each in named:
        bare = _PROTOCOL.sub("", each)
        if split_host_port(bare) is None and split_host_port(f"{bare}:9092") is None:
            raise UsageError(
                f"bootstrap {servers!r}: {each!r} is not HOST:PORT",
                fix="give HOST:PORT[,HOST:PORT..], with ports up to 65535",
            )
    if not named:
        raise UsageError(f"bootstrap {servers!r} names no broker", fix="give HOST:PORT")
    return servers


def _ensemble(bootstrap: str | None, zookeeper: str | None) -> str | None:
    """Return the address of ZooKeeper, or None if brokers are named."""
    if bootstrap is not None:
        return None
    if zookeeper is not None:
        return zookeeper
    return resolve_optional("zookeeper") if lookup("bootstrap").source == "default" else None
