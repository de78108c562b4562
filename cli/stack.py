"""The all-in-one stack: broker and registry on loopback, over one data folder.

Rules: what was started is stopped, in reverse order, however the block ends; the platform's own
schemas (the audit event) are registered before anybody can produce.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from headworks import catalogue, service
from headworks.errors import UsageError
from headworks.registry_client import RegistryClient
from headworks.schema import governance_of, parse, subject_of

__all__ = ["Stack", "running_stack"]


@dataclass(frozen=True, slots=True)
class Stack:
    """A running broker and registry, and the folder of their state."""

    broker: service.Service
    registry: service.Service
    data_dir: Path


@contextmanager
def running_stack(
    data_dir: Path, *, broker: str = "127.0.0.1:0", registry: str = "127.0.0.1:0"
) -> Iterator[Stack]:
    """Start broker and registry at the addresses given (port 0: any free one); stop them at exit.

    Raises UsageError if the folder cannot be written or an address is taken.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot write the data folder {data_dir}: {error.strerror}",
            fix="choose another with --data-dir",
        ) from None
    logs, store = data_dir / "logs", f"sqlite:///{(data_dir / 'registry.db').resolve()}"
    start_broker = ["broker", "start", "--listen", broker, "--data-dir", str(data_dir)]
    start_registry = ["registry", "start", "--listen", registry, "--store", store]
    with ExitStack() as running:
        one = running.enter_context(service.start(start_broker, log_file=logs / "broker.log"))
        two = running.enter_context(service.start(start_registry, log_file=logs / "registry.log"))
        _register_platform_schemas(RegistryClient(two.url))
        yield Stack(one, two, data_dir)


def _register_platform_schemas(client: RegistryClient) -> None:
    for path in sorted((catalogue.folder() / "headworks").glob("*.avsc")):
        text = path.read_text(encoding="utf-8")
        client.register(subject_of(governance_of(parse(text)).topic), text)
