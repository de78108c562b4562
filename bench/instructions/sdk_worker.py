"""The paths of the SDKs, called from outside: a line `PATH COUNT` on stdin, a line `done` back.

It runs in the interpreter of the checkout that is measured, by its path: it may import nothing of
`bench.instructions`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from bench.sdk.events import TOPIC, prepare
from consumer_sdk import Decoder
from headworks import _bundled_schemas
from headworks._wire import prefix
from headworks.registry_client import RegistryClient
from producer_sdk import Producer, WhenFull

_FLUSH_SECONDS = 600.0


def main(folder: Path, broker: str, registry: str) -> None:
    """Answer calls until stdin ends."""
    measured = prepare(folder / "events")
    kind = measured.module.PageView.__headworks__
    client = RegistryClient(registry)
    schema_id = client.register(f"{TOPIC}-value", measured.text).id
    client.register("headworks.audit-value", _bundled_schemas.audit_schema())
    decoder = Decoder(client, TOPIC, kind)
    value = prefix(schema_id) + kind.encode(measured.event)
    with Producer(
        broker,
        registry,
        application="bench",
        events=(measured.module.PageView,),
        state_dir=folder / "state",
        when_full=WhenFull.BLOCK,
        block_ms=60_000,
    ) as producer:

        def send(count: int) -> None:
            for _ in range(count):
                producer.send(measured.written())
            producer.flush(_FLUSH_SECONDS)

        paths: dict[str, Callable[[int], None]] = {
            "encode": lambda count: _repeat(count, lambda: kind.encode(measured.event)),
            "decode": lambda count: _repeat(count, lambda: decoder.decode(value)),
            "send": send,
        }
        print("done", flush=True)
        for line in sys.stdin:
            path, count = line.split()
            paths[path](int(count))
            print("done", flush=True)


def _repeat(count: int, call: Callable[[], object]) -> None:
    for _ in range(count):
        call()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
