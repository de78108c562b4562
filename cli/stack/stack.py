"""The all-in-one stack: broker, registry, console, and audit on loopback, over one data folder.

Rules: every started server is stopped, in reverse order, however the block ends. The platform's own
schemas (the audit event) are registered before any client can produce.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headworks._server import child_process
from headworks.errors import UsageError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunningStack:
    """A running broker and registry, and their data folder."""

    broker: child_process.Service
    registry: child_process.Service
    data_dir: Path
    zookeeper: str | None = None


@contextmanager
def running_stack(
    data_dir: Path,
    *,
    broker: str = "127.0.0.1:0",
    registry: str = "127.0.0.1:0",
    zookeeper: str | None = None,
    metrics: str | None = None,
) -> Iterator[RunningStack]:
    """Run broker and registry at the given addresses (port 0: any free one).

    With `zookeeper` (an address, or "embedded" to start one) the broker is number 1 of that
    cluster. With `metrics` (HOST:PORT) it serves metrics. Raises UsageError if the folder cannot be
    written or an address is taken.
    """
    _make(data_dir)
    start_broker = ["broker", "start", "--listen", broker, "--data-dir", str(data_dir)]
    start_broker += [] if metrics is None else ["--metrics", metrics]
    log = data_dir / "logs" / "broker.log"
    with _ensemble(data_dir, zookeeper) as ensemble:
        start_broker += ["--zookeeper", ensemble or "", "--broker-id", "1"]
        with (
            running_registry(data_dir, listen=registry) as one,
            child_process.start([*start_broker, "--registry", one.url], log_file=log) as two,
        ):
            yield RunningStack(two, one, data_dir, ensemble)


@contextmanager
def _ensemble(data_dir: Path, zookeeper: str | None) -> Iterator[str | None]:
    """Yield the address of the ZooKeeper to use, and run an embedded one if requested."""
    if zookeeper != "embedded":
        yield zookeeper
        return
    from headworks._cli.stack.embedded_zookeeper import EmbeddedZooKeeper

    with EmbeddedZooKeeper(data_dir / "zookeeper") as running:
        yield running.address


@contextmanager
def running_registry(
    data_dir: Path, *, listen: str = "127.0.0.1:0"
) -> Iterator[child_process.Service]:
    """Run only the registry, beside another broker; errors as `running_stack`."""
    _make(data_dir)
    store = f"sqlite:///{(data_dir / 'registry.db').resolve()}"
    start = ["registry", "start", "--listen", listen, "--store", store]
    with child_process.start(start, log_file=data_dir / "logs" / "registry.log") as registry:
        register_platform_schemas(registry.url)
        yield registry


@contextmanager
def running_console(
    data_dir: Path,
    *,
    broker: str,
    registry: str,
    listen: str = "127.0.0.1:0",
    store: str | None = None,
    schemas: Path | None = None,
) -> Iterator[child_process.Service]:
    """Run the console over a broker, a registry, the folder's warehouse, and the audit store.

    `schemas` is the folder of the catalog (default: the setting).
    """
    start = ["console", "start", "--listen", listen, "--bootstrap", broker]
    start += ["--registry", registry, "--warehouse", str(data_dir / "warehouse")]
    start += ["--audit-store", store or audit_store_url(data_dir)]
    start += [] if schemas is None else ["--schemas", str(schemas)]
    with child_process.start(start, log_file=data_dir / "logs" / "console.log") as console:
        yield console


@contextmanager
def starting_in_background(starting: AbstractContextManager[T]) -> Iterator[Callable[[], T]]:
    """Enter a context in the background; the yielded function waits for it.

    The context is left when the block ends, unless it was never entered.
    """
    with ThreadPoolExecutor(1, "starting") as pool:
        entering = pool.submit(starting.__enter__)
        try:
            yield entering.result
        finally:
            if entering.exception() is None:
                starting.__exit__(None, None, None)


@contextmanager
def running_audit(
    data_dir: Path,
    *,
    broker: str,
    registry: str,
    store: str | None = None,
    metrics: str | None = "127.0.0.1:0",
) -> Iterator[child_process.Service]:
    """Run the reconciler over `store` (default: in the folder); its address has the metrics."""
    url = store or audit_store_url(data_dir)
    start = ["audit", "run", "--bootstrap", broker, "--registry", registry, "--store", url]
    start += [] if metrics is None else ["--metrics", metrics]
    with child_process.start(start, log_file=data_dir / "logs" / "audit.log") as audit:
        yield audit


def audit_store_url(data_dir: Path) -> str:
    """Return the URL of the store that the audit keeps in a data folder."""
    return f"sqlite:///{(data_dir / 'audit.db').resolve()}"


def _make(data_dir: Path) -> None:
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot write the data folder {data_dir}: {error.strerror}",
            fix="choose another with --data-dir",
        ) from None


def register_platform_schemas(registry: str, *, missing_only: bool = False) -> None:
    """Register the schemas that our own servers write with, unless they are registered.

    With `missing_only`, a subject that has a version already stays as it is.
    """
    # Imported while the servers start, not before they do.
    from headworks import _bundled_schemas
    from headworks.registry_client import RegistryClient
    from headworks.schema import governance_of, parse, subject_of

    client = RegistryClient(registry)
    for path in sorted((_bundled_schemas.folder() / "headworks").glob("*.avsc")):
        text = path.read_text(encoding="utf-8")
        subject = subject_of(governance_of(parse(text)).topic)
        if not missing_only or client.latest(subject) is None:
            client.register(subject, text)
