"""Schema ids mean on the target what they mean on the source, or the mirror stops."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from headworks._server import child_process
from headworks._server.child_process import Service
from headworks.registry_client import Reference, RegistryClient
from tests.mirror.conftest import Clusters
from tests.mirror.messages import SECONDS, Sent, copied, create, produce, wait_for
from tests.soak.mirror import end_offsets

pytestmark = pytest.mark.e2e

Mirror = Callable[..., child_process.Service]


def record(name: str, *fields: tuple[str, str]) -> str:
    made = [{"name": field, "type": kind} for field, kind in fields]
    return json.dumps({"type": "record", "name": name, "fields": made})


def framed(schema_id: int) -> bytes:
    return struct.pack(">bI", 0, schema_id) + b"datum"


def arguments(clusters: Clusters, topic: str, registry: Service, other: Service) -> list[str]:
    return [
        "--from", clusters.east.address, "--to", clusters.target.address,
        "--topics", re.escape(topic), "--no-audit", "--name", topic,
        "--from-registry", registry.url, "--to-registry", other.url,
    ]  # fmt: skip


def fill(registry: Service, prefix: str) -> RegistryClient:
    """So that the ids of this registry are ahead of the other's."""
    client = RegistryClient(registry.url)
    for number in range(3):
        client.register(f"{prefix}fill-value", record(f"Fill{number}", ("x", "int")))
        client.set_compatibility(f"{prefix}fill-value", "NONE")
    return client


def test_what_is_no_schema_id_passes(
    clusters: Clusters, mirror: Mirror, prefix: str, registry: Service, other_registry: Service
) -> None:
    topic = prefix + "plain"
    create(clusters.east.address, topic, 1)
    values = [None, b"", b"\0", b"\0\xff\xff\xff\xff..", b"text"]
    produce(clusters.east.address, topic, [Sent(0, None, value) for value in values])
    mirror(*arguments(clusters, topic, registry, other_registry))
    assert [m.value() for m in copied(clusters.target.address, topic, 0, 5)] == values


@pytest.mark.parametrize("as_key", [False, True])
def test_it_stops_before_a_schema_that_the_target_does_not_have(
    clusters: Clusters,
    mirror: Mirror,
    prefix: str,
    registry: Service,
    other_registry: Service,
    tmp_path: Path,
    as_key: bool,
) -> None:
    topic = prefix + "absent"
    client = fill(registry, prefix)
    known = client.register(f"{topic}-value", record("Order" + prefix[:-1], ("x", "int")))
    create(clusters.east.address, topic, 1)
    framed_, plain = framed(known.id), b"plain"
    produce(
        clusters.east.address,
        topic,
        [Sent(0, None, plain), Sent(0, framed_, plain) if as_key else Sent(0, None, framed_)],
    )
    running = mirror(*arguments(clusters, topic, registry, other_registry))
    assert running.process.wait(SECONDS) == 1
    words = (tmp_path / "mirror.log").read_text()
    assert f"{topic} partition 0 offset 1 is written in schema {known.id}" in words
    assert "let --registry-mirror copy schemas" in words
    assert end_offsets(clusters.target.address, topic)[0] <= 1


def test_it_stops_before_an_id_that_is_another_schema_on_the_target(
    clusters: Clusters,
    mirror: Mirror,
    prefix: str,
    registry: Service,
    other_registry: Service,
    tmp_path: Path,
) -> None:
    topic = prefix + "clash"
    ours, theirs = RegistryClient(registry.url), RegistryClient(other_registry.url)
    theirs.register(f"{topic}-other", record("Other", ("x", "int")))
    latest = theirs.latest(f"{topic}-other")
    assert latest is not None
    clash = latest.id
    number = 0
    while (
        got := ours.register(f"{topic}-{number}", record(f"C{number}", ("x", "int"))).id
    ) < clash:
        number += 1
    if not ours.uses(clash):
        pytest.fail(f"the id {clash} is not taken on the source ({got} is)")
    create(clusters.east.address, topic, 1)
    produce(clusters.east.address, topic, [Sent(0, None, framed(clash))])
    given = [*arguments(clusters, topic, registry, other_registry), "--registry-mirror"]
    running = mirror(*given)
    assert running.process.wait(SECONDS) == 1
    words = (tmp_path / "mirror.log").read_text()
    assert f"schema {clash}, which is one schema in" in words
    assert f"{topic}-other here" in words
    assert end_offsets(clusters.target.address, topic)[0] == 0


def test_schemas_are_copied_before_the_messages_that_need_them(
    clusters: Clusters, mirror: Mirror, prefix: str, other_registry: Service, tmp_path: Path
) -> None:
    """With what they refer to, and their older versions; also what comes while the mirror runs."""
    topic = prefix + "copied"
    store = f"sqlite:///{tmp_path / 'registry.db'}"
    with child_process.start(
        ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
    ) as target:
        client, copy = RegistryClient(other_registry.url), RegistryClient(target.url)
        fill(other_registry, prefix)
        client.set_compatibility(f"{topic}-value", "NONE")
        place = client.register(f"{topic}-place", record(f"{topic}.Place", ("city", "string")))
        reference = Reference(f"{topic}.Place", f"{topic}-place", place.version)
        registered = [
            client.register(
                f"{topic}-value",
                record("Trip", ("to", f"{topic}.Place"), *more),
                references=[reference],
            )
            for more in ((), (("x", "int"),))
        ]
        newest = registered[1]
        create(clusters.east.address, topic, 1)
        produce(clusters.east.address, topic, [Sent(0, None, framed(newest.id))])
        given = arguments(clusters, topic, other_registry, target)
        running = mirror(*given, "--registry-mirror")
        copied(clusters.target.address, topic, 0, 1)
        assert copy.schema_text(newest.id) == client.schema_text(newest.id)
        assert copy.uses(place.id) == [(f"{topic}-place", 1)]
        assert [copy.version(f"{topic}-value", n).id for n in (1, 2)] == [r.id for r in registered]
        assert copy.version(f"{topic}-value", 2).references == (reference,)

        # a version that comes while the mirror runs
        third = client.register(f"{topic}-value", record("Trip", ("y", "long")))
        produce(clusters.east.address, topic, [Sent(0, None, framed(third.id))])
        copied(clusters.target.address, topic, 0, 2)
        assert wait_for(lambda: copy.uses(third.id)) == [(f"{topic}-value", 3)]
        assert running.stop() == 0
